//go:build linux

package kubelet

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// weeded are the pods of a namespace that the manager was the first to have deleted, and when the API server received its
// request, by the audit log.
func weeded(namespace string) map[types.UID]time.Time {
	GinkgoHelper()
	file, err := os.Open(h.AuditLog)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(file.Close()).To(Succeed()) }()
	found, known := map[types.UID]time.Time{}, sets.New[types.UID]()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event auditv1.Event
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			continue // the last line may be half written
		}
		if event.Verb != "delete" || event.ObjectRef.Resource != "pods" || event.ObjectRef.Namespace != namespace ||
			event.Stage != auditv1.StageResponseComplete || event.ResponseStatus.Code != http.StatusOK {
			continue
		}
		var pod corev1.Pod
		Expect(json.Unmarshal(event.ResponseObject.Raw, &pod)).To(Succeed())
		if event.User.Username == harness.Username && !known.Has(pod.UID) {
			found[pod.UID] = event.RequestReceivedTimestamp.Time
		}
		known.Insert(pod.UID)
	}
	Expect(lines.Err()).NotTo(HaveOccurred())
	return found
}

// weededAt is when the API server received the manager's request to delete a pod.
func weededAt(namespace string, pod types.UID) (received time.Time) {
	GinkgoHelper()
	Eventually(func() bool {
		var found bool
		received, found = weeded(namespace)[pod]
		return found
	}).Should(BeTrue(), "the manager should have deleted pod %s", pod)
	return received
}

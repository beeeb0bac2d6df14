package weederconfig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// removal is a DELETE that the manager asked for, as the API server's audit log has it. Refused ones are among them.
type removal struct {
	Pod string
	UID types.UID
	// Received is when the API server did, by this machine's clock.
	Received time.Time
	Done     bool
}

// removals are the manager's DELETEs of a namespace's pods, in the order of their ends.
func (s shop) removals() (all []removal) {
	GinkgoHelper()
	log, err := os.ReadFile(h.AuditLog)
	Expect(err).NotTo(HaveOccurred())
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event auditv1.Event
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			continue // half a line: it is being written, or its API server was killed
		}
		if event.Verb != "delete" || event.ObjectRef == nil || event.ObjectRef.Resource != "pods" || event.ObjectRef.Namespace != s.namespace ||
			event.Stage != auditv1.StageResponseComplete || event.User.Username != harness.Username {
			continue
		}
		var options metav1.DeleteOptions
		Expect(json.Unmarshal(event.RequestObject.Raw, &options)).To(Succeed())
		all = append(all, removal{
			event.ObjectRef.Name, *options.Preconditions.UID, event.RequestReceivedTimestamp.Time, event.ResponseStatus.Code == http.StatusOK,
		})
	}
	Expect(lines.Err()).NotTo(HaveOccurred())
	return all
}

// removed are the pods that the manager deleted. That a pod is asked to be deleted again once it was fails the spec.
func (s shop) removed() map[string]removal {
	GinkgoHelper()
	done := map[types.UID]bool{}
	found := map[string]removal{}
	for _, r := range s.removals() {
		Expect(done[r.UID]).To(BeFalse(), "pod %s was deleted, and then asked to be deleted again", r.Pod)
		if done[r.UID] = r.Done; r.Done {
			found[r.Pod] = r
		}
	}
	return found
}

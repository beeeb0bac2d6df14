package probeconfig

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/timings"
)

// scalings are the manager's writes of scales in the namespace that were made, in their order.
func (s shoot) scalings(context.Context) (writes []string) {
	GinkgoHelper()
	for _, w := range scalingsOf(func(namespace string) bool { return namespace == s.namespace }) {
		writes = append(writes, fmt.Sprintf("%s %d", w.name, w.replicas))
	}
	return writes
}

// written are the scalings in the namespace, once the log has so many: it has a write only after the answer, and what
// was written can be read before.
func (s shoot) written(ctx context.Context, writes int) (all []string) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) []string {
		all = s.scalings(ctx)
		return all
	}).WithContext(ctx).Should(HaveLen(writes), s.namespace)
	return all
}

// scaling is a write of the manager's that was made.
type scaling struct {
	namespace, name string
	replicas        int32
	at              time.Time
	// unanswered: the API server gave up on it, or the manager on the API server, and whether it was made isn't logged.
	unanswered bool
}

// scalingsOf reads the audit log, in which writes are in the order in which they were answered. What wasn't answered was made
// unless it was made again: the manager looks before it repeats a write.
func scalingsOf(namespace func(string) bool) (writes []scaling) {
	GinkgoHelper()
	file, err := os.Open(h.AuditLog)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var event auditv1.Event
		if json.Unmarshal(lines.Bytes(), &event) != nil { // the last line may be half written
			continue
		}
		ref := event.ObjectRef
		code := event.ResponseStatus.Code
		if event.User.Username != harness.Username || ref == nil || ref.Subresource != "scale" || !namespace(ref.Namespace) ||
			code != http.StatusOK && code != http.StatusGatewayTimeout {
			continue
		}
		var scale struct{ Spec struct{ Replicas int32 } }
		Expect(json.Unmarshal(event.RequestObject.Raw, &scale)).To(Succeed())
		made := scaling{ref.Namespace, ref.Name, scale.Spec.Replicas, event.RequestReceivedTimestamp.Time, code != http.StatusOK}
		if i := lastOf(writes, ref.Namespace, ref.Name); i >= 0 && writes[i].unanswered && writes[i].replicas == made.replicas {
			writes = slices.Delete(writes, i, i+1)
		}
		writes = append(writes, made)
	}
	return writes
}

// lastOf is where the object's last write is, or -1.
func lastOf(writes []scaling, namespace, name string) int {
	for i, w := range slices.Backward(writes) {
		if w.namespace == namespace && w.name == name {
			return i
		}
	}
	return -1
}

// ofWave says whether a namespace is a target of the wave.
func ofWave(namespace string) bool { return strings.HasPrefix(namespace, "wave-") }

// downAt is how many targets were scaled down then, by the audit log: a status that is read later may tell of later.
func (w *wave) downAt(at time.Time) int {
	GinkgoHelper()
	down := map[string]bool{}
	for _, s := range scalingsOf(ofWave) {
		if s.at.Before(at) {
			down[s.namespace] = s.replicas == 0
		}
	}
	maps.DeleteFunc(down, func(_ string, is bool) bool { return !is })
	return len(down)
}

// mostDown are the namespaces that had something scaled down when the most had at once, since the story began: an earlier spec's
// target may still rise then. Of what someone else scaled up the audit log's scalings don't tell that the manager gave it back.
// The log has requests by when they were answered, after the answer is sent; they are looked at by when they came, since a
// place is taken after it was given back.
func (s *story) mostDown() (most []string) {
	GinkgoHelper()
	down := map[string]sets.Set[string]{} // names by namespace
	writes := scalingsOf(func(string) bool { return true })
	slices.SortStableFunc(writes, func(a, b scaling) int { return a.at.Compare(b.at) })
	for _, w := range writes {
		switch {
		case w.at.Before(s.began), w.namespace == s.broken.namespace && w.name == scaledByOthers:
		case w.replicas == 0:
			if down[w.namespace] == nil {
				down[w.namespace] = sets.New[string]()
			}
			down[w.namespace].Insert(w.name)
		default:
			if down[w.namespace].Delete(w.name).Len() == 0 {
				delete(down, w.namespace)
			}
		}
		if len(down) > len(most) {
			most = slices.Sorted(maps.Keys(down))
		}
	}
	return most
}

// expectPaced: of the wave and of rising no more than ten targets begin to be scaled up in any minute, by either manager: the
// first until it is killed, the second since.
func (s *story) expectPaced() {
	GinkgoHelper()
	rising := shootsOf(s.rising)
	paced := func(namespace string) bool {
		return ofWave(namespace) || slices.ContainsFunc(rising, func(s shoot) bool { return s.namespace == namespace })
	}
	Expect(begun(ofWave, s.mended, time.Now())[0]).To(BeTemporally(">=", s.mended.Add(timings.OfSuites().Settle())), "none goes up that isn't healthy for so long")
	first, second := begun(paced, s.mended, s.killed), begun(paced, s.restarted, time.Now())
	Expect(len(first)+len(second)).To(BeNumerically(">", 10), "there was something to pace")
	for _, begun := range [][]time.Time{first, second} {
		for i := 10; i < len(begun); i++ {
			// The pace is by when the manager decides; the audit log has when the API server got the write, a little later.
			Expect(begun[i].Sub(begun[i-10])).To(BeNumerically(">", timings.OfSuites().ScaleUpWindow()*11/12), "target %d after target %d: %s", i, i-10, strings.Join(stamps(begun), " "))
		}
	}
}

// begun is when targets began to be scaled up within a time, in order.
func begun(of func(namespace string) bool, from, until time.Time) (at []time.Time) {
	GinkgoHelper()
	seen := map[string]bool{}
	for _, s := range scalingsOf(of) {
		if s.at.After(from) && s.at.Before(until) && s.replicas > 0 && !seen[s.namespace] {
			seen[s.namespace] = true
			at = append(at, s.at)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

func stamps(all []time.Time) (texts []string) {
	for _, at := range all {
		texts = append(texts, at.Format("04:05.000"))
	}
	return texts
}

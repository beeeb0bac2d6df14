package conditionset

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
)

// Events on single nodes are held to this pace: in a storm they would cost the API server more than the taints do. What
// is left out stands in the audit trail and in the counts of the set's own Events.
const (
	nodeEventsPerSecond = 10
	nodeEventsBurst     = 50
)

// Reporter tells of acts and of states: Events for people, metrics for machines.
type Reporter struct {
	Events events.EventRecorder
	nodes  *rate.Limiter
}

// NewReporter reports to a recorder.
func NewReporter(recorder events.EventRecorder) *Reporter {
	return &Reporter{Events: recorder, nodes: rate.NewLimiter(nodeEventsPerSecond, nodeEventsBurst)}
}

// acted tells of a plan that was carried out, on the node and on each set.
func (r *Reporter) acted(plan condition.Plan, now time.Time) {
	for _, step := range plan.Steps {
		countAct(step, now)
		if step.Verb == condition.Repair {
			continue
		}
		if !r.nodes.AllowN(now, 2) {
			eventsDropped.Inc()
			continue
		}
		reason, note := actEvent(plan.Node.Name, step)
		node, set := nodeRef(plan.Node), setRef(step)
		r.Events.Eventf(node, set, corev1.EventTypeNormal, reason, string(step.Verb), "%s", note)
		r.Events.Eventf(set, node, corev1.EventTypeNormal, reason, string(step.Verb), "%s", note)
	}
}

func actEvent(node string, step condition.Step) (reason, note string) {
	switch step.Verb {
	case condition.Taint:
		return v1alpha1.ReasonTainted, fmt.Sprintf("ConditionSet %s taints node %s with %s:%s: its conditions match", step.SetName, node, step.Key, step.To)
	case condition.Escalate:
		return v1alpha1.ReasonTainted, fmt.Sprintf("ConditionSet %s raises taint %s of node %s from %s to %s: %s", step.SetName, step.Key, node, step.From, step.To, words(step.Reason))
	case condition.Deescalate:
		return v1alpha1.ReasonUntainted, fmt.Sprintf("ConditionSet %s lowers taint %s of node %s from %s to %s: %s", step.SetName, step.Key, node, step.From, step.To, words(step.Reason))
	default:
		return v1alpha1.ReasonUntainted, fmt.Sprintf("ConditionSet %s no longer asks for taint %s:%s on node %s: %s", step.SetName, step.Key, step.From, node, words(step.Reason))
	}
}

var wording = map[condition.Reason]string{
	condition.Recovered:        "its conditions recovered",
	condition.NoLongerSelected: "the set no longer selects it",
	condition.KeyChanged:       "the set has another taintKey now",
	condition.EffectChanged:    "the set asks for another effect now",
	condition.PolicyWithdrawn:  "the set was deleted or only observes",
	condition.PutBack:          "someone else removed it",
	condition.NoLongerHeld:     "nothing holds the eviction back any more",
	condition.EvictAfterOver:   "evictAfter has passed",
	condition.RecordInvalid:    "the record claimed what isn't ours",
}

func words(reason condition.Reason) string {
	if w, ok := wording[reason]; ok {
		return w
	}
	return string(reason)
}

// failed counts a write that didn't come about; the controller logs the error itself.
func (r *Reporter) failed(plan condition.Plan, err error) {
	for _, step := range plan.Steps {
		countFailure(step, err)
	}
}

// changed tells of conditions that turned since the status before, on the set.
func (r *Reporter) changed(cs *v1alpha1.ConditionSet, before, after []metav1.Condition) {
	for _, c := range after {
		if c.Type == v1alpha1.ConditionReconciling || c.Type == v1alpha1.ConditionReady {
			continue // Accepted, Stalled, LimitReached and BreakerOpen say it better
		}
		if a := find(after, v1alpha1.ConditionAccepted); c.Type == v1alpha1.ConditionStalled && a != nil && a.Reason == c.Reason {
			continue // Accepted has said the very same
		}
		was := find(before, c.Type)
		if was != nil && was.Status == c.Status && was.Reason == c.Reason {
			continue
		}
		kind := corev1.EventTypeWarning
		if c.Type == v1alpha1.ConditionAccepted && c.Status == metav1.ConditionTrue {
			kind = corev1.EventTypeNormal
		}
		r.Events.Eventf(cs, nil, kind, c.Reason, c.Type, "%s", truncate(c.Message))
	}
}

func find(conditions []metav1.Condition, conditionType string) *metav1.Condition {
	for i := range conditions {
		if conditions[i].Type == conditionType {
			return &conditions[i]
		}
	}
	return nil
}

// truncate keeps a note within what the Events API takes, 1 kB.
func truncate(note string) string {
	const most = 1000
	if len(note) <= most {
		return note
	}
	return strings.ToValidUTF8(note[:most], "") + " …"
}

func nodeRef(n *condition.Node) *corev1.Node {
	return &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID}}
}

func setRef(step condition.Step) *v1alpha1.ConditionSet {
	return &v1alpha1.ConditionSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ConditionSet"},
		ObjectMeta: metav1.ObjectMeta{Name: step.SetName, UID: step.Set},
	}
}

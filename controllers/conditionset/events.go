package conditionset

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/kube"
)

// Reporter reports acts as Events and metrics.
type Reporter struct {
	Events   events.EventRecorder
	acts     *kube.ActEvents
	isStored func(set string) bool
	broken   brokenRecords
}

// NewReporter reports to a recorder; knows says whether a set of a name is stored.
func NewReporter(recorder events.EventRecorder, knows func(set string) bool) *Reporter {
	dropped := func(events int) { eventsDropped.Add(float64(events)) }
	return &Reporter{Events: recorder, acts: kube.NewActEvents(recorder, dropped), isStored: knows}
}

// reportActs reports an applied plan, on the node and on each set.
func (r *Reporter) reportActs(plan condition.Plan, now time.Time) {
	for _, step := range plan.Steps {
		countAct(r.policyLabel(step.SetName), step, now)
		if step.Verb == condition.Repair {
			continue
		}
		reason, note := actEvent(plan.Node.Name, step)
		r.acts.Emit(now, nodeRef(plan.Node), setRef(step), reason, string(step.Verb), note)
	}
}

// countFailures counts a write that failed; the controller logs the error itself.
func (r *Reporter) countFailures(plan condition.Plan, err error) {
	for _, step := range plan.Steps {
		countFailure(r.policyLabel(step.SetName), step, err)
	}
}

// policyLabel bounds the series: an undo has its set's name from the node's record, which may say anything.
func (r *Reporter) policyLabel(set string) string {
	if !r.isStored(set) {
		return "unknown"
	}
	return set
}

func actEvent(node string, step condition.Step) (reason, note string) {
	switch step.Verb {
	case condition.Taint:
		return v1alpha1.ReasonTainted, fmt.Sprintf("ConditionSet %s taints node %s with %s:%s: its conditions match", step.SetName, node, step.Key, step.To)
	case condition.Escalate:
		return v1alpha1.ReasonTainted, fmt.Sprintf("ConditionSet %s raises taint %s of node %s from %s to %s: %s", step.SetName, step.Key, node, step.From, step.To, reasonText(step.Reason))
	case condition.Deescalate:
		return v1alpha1.ReasonUntainted, fmt.Sprintf("ConditionSet %s lowers taint %s of node %s from %s to %s: %s", step.SetName, step.Key, node, step.From, step.To, reasonText(step.Reason))
	default:
		return v1alpha1.ReasonUntainted, fmt.Sprintf("ConditionSet %s no longer asks for taint %s:%s on node %s: %s", step.SetName, step.Key, step.From, node, reasonText(step.Reason))
	}
}

var reasonTexts = map[condition.Reason]string{
	condition.Recovered:        "its conditions recovered",
	condition.NoLongerSelected: "the set no longer selects it",
	condition.KeyChanged:       "the set has another taintKey now",
	condition.EffectChanged:    "the set asks for another effect now",
	condition.PolicyWithdrawn:  "the set was deleted or only observes",
	condition.PutBack:          "someone else removed it",
	condition.NoLongerHeld:     "nothing holds the higher effect back any more",
	condition.EvictAfterOver:   "evictAfter has passed",
	condition.RecordInvalid:    "the record claimed what isn't ours",
}

func reasonText(reason condition.Reason) string {
	if w, ok := reasonTexts[reason]; ok {
		return w
	}
	return string(reason)
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

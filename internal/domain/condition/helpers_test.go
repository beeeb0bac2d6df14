package condition_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

const recordAnnotation = "autohealer.resourcestack.com/owned-taints"

// noon is the present of all tests.
var noon = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

// ago is so long before noon.
func ago(d time.Duration) time.Time { return noon.Add(-d) }

// moment is when our clock and the API server's agree.
func moment(now time.Time) timing.Moment { return timing.Moment{Now: now, Server: now} }

type nodeOption func(*corev1.Node)

// newNode was created a day before noon, and is Ready.
func newNode(name string, options ...nodeOption) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name + "-uid"), ResourceVersion: "1", CreationTimestamp: metav1.NewTime(ago(24 * time.Hour)),
		Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	reports("Ready", "True", n.CreationTimestamp.Time)(n)
	for _, o := range options {
		o(n)
	}
	return n
}

// reports adds a condition that has had its status since then, with a heartbeat at noon.
func reports(conditionType, status string, since time.Time) nodeOption {
	return reportsAt(conditionType, status, since, noon)
}

func reportsAt(conditionType, status string, since, heartbeat time.Time) nodeOption {
	return func(n *corev1.Node) {
		n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == conditionType })
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(conditionType), Status: corev1.ConditionStatus(status),
			LastTransitionTime: metav1.NewTime(since), LastHeartbeatTime: metav1.NewTime(heartbeat),
		})
	}
}

// gone takes a condition away.
func gone(conditionType string) nodeOption {
	return func(n *corev1.Node) {
		n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == conditionType })
	}
}

func tainted(key, effect string) nodeOption {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
	}
}

func labelled(key, value string) nodeOption {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

func inZone(zone string) nodeOption { return labelled("topology.kubernetes.io/zone", zone) }

func controlPlane(n *corev1.Node) { n.Labels["node-role.kubernetes.io/control-plane"] = "" }

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func deleting(n *corev1.Node) {
	now := metav1.NewTime(noon)
	n.DeletionTimestamp = &now
}

func recorded(annotation string) nodeOption { return annotated(recordAnnotation, annotation) }

func annotated(key, value string) nodeOption {
	return func(n *corev1.Node) { n.Annotations[key] = value }
}

// owning gives the node a taint of ours: the taint and its record, set since then by the set of that name.
func owning(set, key, effect string, since time.Time) nodeOption {
	return func(n *corev1.Node) {
		tainted(key, effect)(n)
		claiming(set, key, effect, since)(n)
	}
}

// claiming gives the node the record only.
func claiming(set, key, effect string, since time.Time) nodeOption {
	return func(n *corev1.Node) {
		o, err := condition.ParseOwnership(n.Annotations[recordAnnotation])
		if err != nil {
			panic(err)
		}
		claim := condition.OwnedTaint{Key: key, Effect: corev1.TaintEffect(effect), Set: types.UID(set + "-uid"), Name: set, Generation: 1, Since: metav1.NewTime(since)}
		if effect == "NoExecute" {
			claim.EvictSince = &metav1.Time{Time: since}
		}
		o.Taints = append(o.Taints, claim)
		n.Annotations[recordAnnotation] = o.String()
	}
}

// remembering gives the node's record a past taint by a set.
func remembering(set string, at time.Time) nodeOption {
	return func(n *corev1.Node) {
		o, err := condition.ParseOwnership(n.Annotations[recordAnnotation])
		if err != nil {
			panic(err)
		}
		o.History = append(o.History, condition.PastTaint{Set: types.UID(set + "-uid"), At: metav1.NewTime(at)})
		n.Annotations[recordAnnotation] = o.String()
	}
}

// newConditionSet has the UID "<name>-uid", generation 1 and a spec in YAML.
func newConditionSet(t testing.TB, name, spec string) *v1alpha1.ConditionSet {
	t.Helper()
	cs := &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name + "-uid"), Generation: 1, CreationTimestamp: metav1.NewTime(ago(12 * time.Hour)),
	}}
	if err := yaml.UnmarshalStrict([]byte(spec), &cs.Spec); err != nil {
		t.Fatalf("spec of %s: %v", name, err)
	}
	if cs.Spec.Type == "" {
		cs.Spec.Type = "Type" + name
	}
	return cs
}

func newSet(t testing.TB, name, spec string) *condition.Set {
	t.Helper()
	s, err := condition.NewSet(newConditionSet(t, name, spec))
	if err != nil {
		t.Fatalf("set %s: %v", name, err)
	}
	return s
}

// stage is how a node looked at a time.
type stage struct {
	at   time.Time
	node *corev1.Node
}

func watched(stages ...stage) *condition.Node {
	var n *condition.Node
	for _, s := range stages {
		n = condition.NewNode(s.node, n, s.at)
	}
	return n
}

// steady is a node that we have known for 25 minutes, with the reporters whose heartbeat is of noon seen alive.
func steady(n *corev1.Node) *condition.Node {
	before := n.DeepCopy()
	for i := range before.Status.Conditions {
		if c := &before.Status.Conditions[i]; c.LastHeartbeatTime.Time.Equal(noon) {
			c.LastHeartbeatTime = metav1.NewTime(ago(time.Minute))
		}
	}
	return watched(stage{ago(25 * time.Minute), before}, stage{noon, n})
}

func texts[T any](of []T, text func(T) string) []string {
	var all []string
	for _, x := range of {
		all = append(all, text(x))
	}
	return all
}

func taintText(t corev1.Taint) string { return fmt.Sprintf("%s:%s", t.Key, t.Effect) }

func claimText(t condition.OwnedTaint) string {
	text := fmt.Sprintf("%s %s:%s", t.Set, t.Key, t.Effect)
	if t.TaintCount > 0 {
		text += fmt.Sprintf(" for the %dth time", t.TaintCount)
	}
	return text
}

func stepText(s condition.Step) string {
	return fmt.Sprintf("%s %s %s %s>%s %s", s.Verb, s.SetName, s.Key, s.From, s.To, s.Reason)
}

func holdText(h condition.Hold) string { return fmt.Sprintf("%s %s", h.Set, h.Reason) }

func intOrPercent(text string) intstr.IntOrString { return intstr.Parse(text) }

func stillRecorded(fleet *condition.Fleet, uid types.UID) bool {
	nodes, _ := fleet.Recorded(uid)
	return nodes > 0
}

// full is a room in which one more limit is used up.
func full(room condition.Headroom, limit condition.Cap, reason condition.Reason) condition.Headroom {
	return func(of condition.Cap, c condition.Claimant, expired time.Time) condition.Gate {
		switch {
		case of == limit:
			return condition.Gate{Reason: reason}
		case room != nil:
			return room(of, c, expired)
		}
		return condition.Gate{}
	}
}

package oracle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// recordKey is the annotation in which a node tells whose taints it has.
const recordKey = "autohealer.resourcestack.com/owned-taints"

// ConditionSets is the kind that turns node conditions into taints.
type ConditionSets struct{}

// Policies are the ConditionSets.
func (ConditionSets) Policies() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: ourGroup, Version: "v1alpha1", Resource: "conditionsets"}
}

// Foreign are the nodes.
func (ConditionSets) Foreign() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{{Version: "v1", Resource: "nodes"}}
}

// Trim keeps the conditions of the status, without their heartbeats.
func (ConditionSets) Trim(node *unstructured.Unstructured) {
	conditions, found, _ := unstructured.NestedSlice(node.Object, "status", "conditions")
	delete(node.Object, "status")
	if !found {
		return
	}
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok {
			for _, field := range []string{"lastHeartbeatTime", "reason", "message"} {
				delete(fields, field)
			}
		}
	}
	node.Object["status"] = map[string]any{"conditions": conditions}
}

// Begin gives a reader that has seen no node yet.
func (ConditionSets) Begin(o Options) Reader { return newNodes(o) }

// claim is an entry of a node's record: what one set asked for.
type claim struct {
	Key        string             `json:"key"`
	Effect     corev1.TaintEffect `json:"effect"`
	Set        types.UID          `json:"set"`
	Name       string             `json:"name"`
	Generation int64              `json:"generation"`
	Since      time.Time          `json:"since"`
}

// record is a node's annotation. Whoever stands in its history was here too.
type record struct {
	Taints  []claim `json:"taints"`
	History []struct {
		Set types.UID `json:"set"`
	} `json:"history"`
}

// effect is the highest that is asked for a key: the one the node's taint should have.
func (r record) effect(key string) corev1.TaintEffect {
	var highest corev1.TaintEffect
	for _, c := range r.Taints {
		if c.Key == key && rank(c.Effect) > rank(highest) {
			highest = c.Effect
		}
	}
	return highest
}

func (r record) of(set types.UID, key string) claim {
	for _, c := range r.Taints {
		if c.Set == set && c.Key == key {
			return c
		}
	}
	return claim{}
}

func rank(effect corev1.TaintEffect) int {
	return slices.Index([]corev1.TaintEffect{"", "PreferNoSchedule", "NoSchedule", "NoExecute"}, effect)
}

// resetKey is the annotation by which people reset a set's breaker.
const resetKey = "autohealer.resourcestack.com/reset-breaker"

// holdKey is the annotation by which people ask to leave an object alone.
const holdKey = "autohealer.resourcestack.com/hold-until"

// node is what one revision of a node says.
type node struct {
	uid    types.UID
	name   string
	labels map[string]string
	zone   string
	// counted: one of those that percentages are of; worker: it would be one, if it were available.
	counted, worker, plane, available, deleting bool
	taints                                      []corev1.Taint
	record                                      record
	recordText                                  string
	recordErr                                   error
	held                                        bool
	heldUntil                                   time.Time // zero when that can't be read
	// members are the conditions: status and transition; statuses the status alone.
	members  map[corev1.NodeConditionType]string
	statuses map[corev1.NodeConditionType]corev1.ConditionStatus
	// rest is all that Autohealer has no business with.
	rest corev1.Node
}

func (n *node) Records() []types.UID {
	var sets []types.UID
	for _, c := range n.record.Taints {
		sets = append(sets, c.Set)
	}
	for _, h := range n.record.History {
		sets = append(sets, h.Set)
	}
	slices.Sort(sets)
	return slices.Compact(sets)
}

// owned are the taints that the record claims.
func (n *node) owned() []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(n.taints), func(t corev1.Taint) bool { return !n.owns(t) })
}

func (n *node) owns(t corev1.Taint) bool { return t.Effect != "" && n.record.effect(t.Key) == t.Effect }

// repels and evicts tell what the taints that we own do, at most.
func (n *node) repels() bool { return slices.ContainsFunc(n.owned(), repels) }
func (n *node) evicts() bool { return slices.ContainsFunc(n.owned(), evicts) }

func repels(t corev1.Taint) bool { return rank(t.Effect) >= rank(corev1.TaintEffectNoSchedule) }
func evicts(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }

func parseNode(object []byte) (*node, error) {
	var o corev1.Node
	if err := json.Unmarshal(object, &o); err != nil {
		return nil, fmt.Errorf("read a node: %w", err)
	}
	n := &node{
		uid: o.UID, name: o.Name, labels: o.Labels, zone: o.Labels[corev1.LabelTopologyZone],
		taints: o.Spec.Taints, recordText: o.Annotations[recordKey],
		members: map[corev1.NodeConditionType]string{}, statuses: map[corev1.NodeConditionType]corev1.ConditionStatus{},
	}
	_, plane := o.Labels["node-role.kubernetes.io/control-plane"]
	_, master := o.Labels["node-role.kubernetes.io/master"]
	n.plane = plane || master
	n.deleting = o.DeletionTimestamp != nil
	n.worker = !n.plane && !n.deleting
	n.available = !n.deleting && available(&o)
	n.counted = n.worker && n.available
	for _, c := range o.Status.Conditions {
		n.members[c.Type], n.statuses[c.Type] = string(c.Status)+" "+c.LastTransitionTime.UTC().String(), c.Status
	}
	if n.recordText != "" {
		n.recordErr = json.Unmarshal([]byte(n.recordText), &n.record)
	}
	if until, held := o.Annotations[holdKey]; held {
		n.held = true
		n.heldUntil, _ = time.Parse(time.RFC3339, until)
	}
	delete(o.Annotations, recordKey)
	if len(o.Annotations) == 0 {
		o.Annotations = nil
	}
	o.Spec.Taints, o.Status, o.Generation = nil, corev1.NodeStatus{}, 0
	n.rest = o
	return n, nil
}

// available: it is Ready, nobody cordoned it, and neither Kubernetes nor an autoscaler keeps pods away from it.
func available(o *corev1.Node) bool {
	ready := slices.ContainsFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return ready && !o.Spec.Unschedulable && !slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool {
		return repels(t) && (strings.HasPrefix(t.Key, "node.kubernetes.io/") && t.Key != "node.kubernetes.io/os" || t.Key == "ToBeDeletedByClusterAutoscaler" || t.Key == "karpenter.sh/disrupted")
	})
}

// reserved are keys that belong to Kubernetes, to autoscalers or to providers: of these, those that tests use.
func reserved(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	for _, domain := range []string{"kubernetes.io", "k8s.io", "karpenter.sh", "cloud.google.com", "kubernetes.azure.com"} {
		if prefix != key && (prefix == domain || strings.HasSuffix(prefix, "."+domain)) {
			return true
		}
	}
	return key == "ToBeDeletedByClusterAutoscaler" || key == "DeletionCandidateOfClusterAutoscaler"
}

// without gives the taints of a that b doesn't have exactly so.
func without(a, b []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(a), func(t corev1.Taint) bool {
		return slices.ContainsFunc(b, func(u corev1.Taint) bool { return sameTaint(t, u) })
	})
}

func sameTaint(t, u corev1.Taint) bool {
	return t.Key == u.Key && t.Effect == u.Effect && t.Value == u.Value && t.TimeAdded.Equal(u.TimeAdded)
}

func sameTaints(a, b []corev1.Taint) bool {
	return len(a) == len(b) && len(without(a, b)) == 0
}

func sameRest(a, b *node) bool { return reflect.DeepEqual(a.rest, b.rest) }

func describe(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

func byKey(a, b claim) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Set, b.Set))
}

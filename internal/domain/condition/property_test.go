package condition_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// world is a cluster with a fleet that sees it late, writers that interfere, and writes that fail in every way.
type world struct {
	t      *rapid.T
	api    *cluster
	fleet  *condition.Fleet
	limits limit.Limits
	now    time.Time
	// unseen are watch events under way, seen what the fleet was last shown.
	unseen []*corev1.Node
	seen   map[string]*corev1.Node
	sets   map[string]*storedSet
	// answers are writes that landed and whose answers are still on their way.
	answers map[string]string
	// sent are writes that the API server hasn't got yet.
	sent map[string]condition.Plan
	// foreign are the taints that someone else set, by node.
	foreign map[string][]corev1.Taint
	// keys are those that the present manager knows to be declared.
	keys map[string]bool
	// intolerant nodes run a system pod that tolerates nothing.
	intolerant map[string]bool
	uids       int
	// done are the harmful acts since the last restart.
	done map[string]bool
	// deleted are nodes that went with taints of ours, and still count.
	deleted []deletedNode
	// evictions are when nodes began to evict, by zone; recorded are those that the manager noted before.
	evictions map[string]time.Time
	recorded  []limit.Act
}

type storedSet struct {
	*v1alpha1.ConditionSet
	state lifecycle.State
}

var (
	worldKeys       = []string{"example.com/a", "example.com/b", "example.com/c"}
	worldEffects    = []string{"NoExecute", "NoSchedule", "PreferNoSchedule"}
	worldConditions = []string{"KubeletUnhealthy", "KernelDeadlock", "Custom"}
	worldZones      = []string{"x", "y", "z"}
)

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, api: newCluster(), now: noon, seen: map[string]*corev1.Node{}, sets: map[string]*storedSet{}, answers: map[string]string{},
		sent: map[string]condition.Plan{}, foreign: map[string][]corev1.Taint{}, intolerant: map[string]bool{}, keys: map[string]bool{}, done: map[string]bool{}, evictions: map[string]time.Time{},
	}
	w.limits = calm(rapid.SampledFrom([]string{"10%", "30%", "2", "100%"}).Draw(t, "maxTainted"), rapid.SampledFrom([]string{"5%", "20%", "1", "100%"}).Draw(t, "maxEvicting"))
	zones := rapid.IntRange(1, 3).Draw(t, "zones")
	for i := range rapid.IntRange(2, 12).Draw(t, "nodes") {
		n := newNode(fmt.Sprintf("n%02d", i), inZone(worldZones[i%zones]), labelled("pool", "a"))
		if rapid.IntRange(0, 6).Draw(t, "plane") == 0 {
			controlPlane(n)
		}
		w.intolerant[n.Name] = rapid.IntRange(0, 4).Draw(t, "intolerant") == 0
		for _, c := range worldConditions {
			w.drawCondition(c)(n)
		}
		w.api.put(n)
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "sets") {
		w.createSet(fmt.Sprintf("s%d", i))
	}
	w.restart()
	return w
}

func (w *world) drawCondition(conditionType string) nodeOption {
	status := rapid.SampledFrom([]string{"True", "True", "False", "Unknown", ""}).Draw(w.t, "status")
	if status == "" {
		return gone(conditionType)
	}
	return reportsAt(conditionType, status, w.now.Add(-time.Duration(rapid.IntRange(-60, 600).Draw(w.t, "transition"))*time.Second), w.now)
}

func (w *world) drawSpec() v1alpha1.ConditionSetSpec {
	effect := rapid.SampledFrom(worldEffects).Draw(w.t, "effect")
	spec := v1alpha1.ConditionSetSpec{
		Type: "T", Effect: corev1.TaintEffect(effect), TaintKey: rapid.SampledFrom(worldKeys).Draw(w.t, "key"),
		Conditions:   map[string]v1alpha1.MemberCondition{},
		For:          v1alpha1.Duration(rapid.SampledFrom([]string{"", "0s", "90s"}).Draw(w.t, "for")),
		RecoverAfter: v1alpha1.Duration(rapid.SampledFrom([]string{"", "0s", "90s"}).Draw(w.t, "recoverAfter")),
	}
	for _, c := range rapid.SliceOfNDistinct(rapid.SampledFrom(worldConditions), 1, 2, rapid.ID[string]).Draw(w.t, "members") {
		spec.Conditions[c] = v1alpha1.MemberCondition{Status: v1alpha1.RequiredStatus{JSON: rapid.SampledFrom([]string{"true", "true", `"unknown"`}).Draw(w.t, "required")}}
	}
	if effect == "NoExecute" {
		spec.EvictAfter = v1alpha1.Duration(rapid.SampledFrom([]string{"", "3m"}).Draw(w.t, "evictAfter"))
	}
	if rapid.IntRange(0, 3).Draw(w.t, "capped") == 0 {
		own := intOrPercent(rapid.SampledFrom([]string{"1", "2"}).Draw(w.t, "maxNodes"))
		spec.MaxNodes = &own
	}
	if rapid.IntRange(0, 3).Draw(w.t, "pooled") == 0 {
		spec.NodeSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	}
	spec.IncludeControlPlane = rapid.Bool().Draw(w.t, "includeControlPlane")
	return spec
}

func (w *world) createSet(name string) {
	w.uids++
	s := &storedSet{ConditionSet: &v1alpha1.ConditionSet{}, state: lifecycle.Active}
	s.Name, s.UID, s.Generation, s.CreationTimestamp = name, types.UID(fmt.Sprintf("%s-uid%d", name, w.uids)), 1, metav1.NewTime(w.now)
	s.Spec = w.drawSpec()
	s.Status.TaintKeys = []string{s.Spec.TaintKey}
	w.sets[name] = s
}

func (w *world) at() timing.Moment { return moment(w.now) }

func (w *world) observeSet(s *storedSet) {
	set, err := condition.NewSet(s.ConditionSet)
	if err != nil {
		w.t.Fatalf("set %s: %v", s.Name, err)
	}
	for _, key := range s.Status.TaintKeys {
		w.keys[key] = true
	}
	w.fleet.ObserveSet(set, s.state, nil, "", w.at())
}

// restart is a new manager that knows only what is stored.
func (w *world) restart() {
	w.fleet = condition.NewFleet(w.limits)
	w.unseen, w.seen = nil, maps.Clone(w.api.nodes)
	clear(w.answers)
	clear(w.sent)
	clear(w.keys)
	clear(w.done)
	for _, n := range w.api.nodes {
		w.fleet.ObserveNode(n, w.at())
	}
	for _, s := range w.sets {
		w.observeSet(s)
	}
	w.fleet.MarkSynced(w.at())
	w.fleet.Recall(w.recorded, w.at())
	w.deleted = nil // only who saw them go counts them
}

// change lets someone change a node; the fleet hears of it later.
func (w *world) change(name string, options ...nodeOption) {
	then := w.api.nodes[name].DeepCopy()
	for _, o := range options {
		o(then)
	}
	turns := available(then) != available(w.api.nodes[name])
	if turns { // what is on its way is by what was there before
		w.arrive()
		w.answer()
	}
	w.unseen = append(w.unseen, w.api.update(name, options...))
	if turns {
		w.deliver(len(w.unseen))
	}
}

func available(n *corev1.Node) bool {
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == "Ready" && c.Status == "True" })
	leaves := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == "node.kubernetes.io/unreachable" && t.Effect != "PreferNoSchedule"
	})
	return ready && !leaves && !n.Spec.Unschedulable
}

// deliver shows the fleet the oldest events.
func (w *world) deliver(events int) {
	for range min(events, len(w.unseen)) {
		n := w.unseen[0]
		w.unseen = w.unseen[1:]
		if _, exists := w.api.nodes[n.Name]; exists {
			w.noteSeen(n)
			w.fleet.ObserveNode(n, w.at())
		}
	}
}

// noteSeen keeps the newest that the fleet was shown: a live read may be ahead of the watch.
func (w *world) noteSeen(n *corev1.Node) {
	before, known := w.seen[n.Name]
	if !known || before.UID != n.UID || versionOf(n) >= versionOf(before) {
		w.seen[n.Name] = n
	}
}

func versionOf(n *corev1.Node) int {
	v, err := strconv.Atoi(n.ResourceVersion)
	if err != nil {
		panic(err)
	}
	return v
}

func (w *world) drawNode() string {
	return rapid.SampledFrom(slices.Sorted(maps.Keys(w.api.nodes))).Draw(w.t, "node")
}

// decide is a worker's turn for one node, up to the moment at which the write is sent.
func (w *world) decide(name string) (condition.Plan, bool) {
	if _, busy := w.sent[name]; busy {
		return condition.Plan{}, false
	}
	if _, busy := w.answers[name]; busy {
		return condition.Plan{}, false
	}
	plan, next := w.fleet.Decide(name, w.at(), nil)
	for range 2 {
		if next != condition.ReadLive {
			break
		}
		w.noteSeen(w.api.nodes[name])
		w.fleet.ObserveLive(w.api.nodes[name], w.at())
		evidence := &condition.Evidence{}
		if w.intolerant[name] {
			evidence.SystemPods = []ecosystem.SystemPod{{Name: "npd"}}
		}
		plan, next = w.fleet.Decide(name, w.at(), evidence)
	}
	if plan.RequeueAt.Before(w.now) && !plan.RequeueAt.IsZero() {
		w.t.Fatalf("looks again at %s, which is past at %s", plan.RequeueAt, w.now)
	}
	if next != condition.Write {
		return plan, false
	}
	for _, s := range plan.Steps {
		if s.Harmful() && (w.sets[s.SetName] == nil || w.sets[s.SetName].state != lifecycle.Active) {
			w.t.Fatalf("step %s by a set that may not act", stepText(s))
		}
	}
	return plan, true
}

// write brings a plan to the API server and checks what it does there.
func (w *world) write(plan condition.Plan) (version string, err error) {
	name := plan.Node.Name
	before, usedBefore := w.api.nodes[name], w.used(w.declared)
	after, err := w.api.patch(plan)
	if err != nil {
		return "", err
	}
	w.unseen = append(w.unseen, after)
	w.checkOnce(plan)
	w.checkOwnership(before, after)
	w.checkCaps(usedBefore, w.used(w.declared), plan)
	w.checkPace(before, after)
	return after.ResourceVersion, nil
}

// declared says whether the manager can know that a set declared the key.
func (w *world) declared(key string) bool { return w.keys[key] }

func recordOf(n *corev1.Node) condition.Ownership {
	o, err := condition.ParseOwnership(n.Annotations[recordAnnotation])
	if err != nil {
		panic(err)
	}
	return o
}

func (w *world) checkOwnership(before, after *corev1.Node) {
	was, is := recordOf(before), recordOf(after)
	var kept []corev1.Taint // what isn't ours must still be there, in its order
	for _, t := range before.Spec.Taints {
		if !was.Owns(t) || !w.declared(t.Key) {
			kept = append(kept, t)
		}
	}
	for _, t := range after.Spec.Taints {
		if len(kept) > 0 && t.MatchTaint(&kept[0]) && t.Value == kept[0].Value {
			kept = kept[1:]
			continue
		}
		if !is.Owns(t) {
			w.t.Fatalf("%s: taint %s isn't recorded in %s", after.Name, taintText(t), is)
		}
	}
	if len(kept) > 0 {
		w.t.Fatalf("%s: taint %s of someone else is lost or moved: %v -> %v", after.Name, taintText(kept[0]), texts(before.Spec.Taints, taintText), texts(after.Spec.Taints, taintText))
	}
}

// used counts the nodes that each limit counts, as the API server has them: "tainted", "evicting", the same by zone,
// "plane", and each set by its name. Claims to keys that aren't believed are forged.
func (w *world) used(believed func(key string) bool) map[string]int {
	used := map[string]int{}
	for _, n := range w.counting(believed) {
		record, repels, evicts, any := recordOf(n), false, false, false
		for _, t := range n.Spec.Taints {
			if record.Owns(t) && believed(t.Key) {
				any, repels, evicts = true, repels || t.Effect != "PreferNoSchedule", evicts || t.Effect == "NoExecute"
			}
		}
		zone := n.Labels["topology.kubernetes.io/zone"]
		if repels {
			used["tainted"]++
			used["tainted/"+zone]++
		}
		if evicts {
			used["evicting"]++
			used["evicting/"+zone]++
		}
		if _, plane := n.Labels["node-role.kubernetes.io/control-plane"]; plane && any {
			used["plane"]++
		}
		sets := map[string]bool{} // by name: a restored set takes over what is there already
		for _, c := range record.Taints {
			if believed(c.Key) {
				sets[c.Name] = true
			}
		}
		for name := range sets {
			used[name]++
		}
	}
	return used
}

// counting are the nodes that there are, and those that were deleted and still count.
func (w *world) counting(believed func(key string) bool) []*corev1.Node {
	nodes := slices.Collect(maps.Values(w.api.nodes))
	for _, d := range w.deleted {
		last := time.Time{}
		for _, c := range recordOf(d.Node).Taints {
			if believed(c.Key) && c.Since.After(last) {
				last = c.Since.Time
			}
			if believed(c.Key) && c.EvictSince != nil && c.EvictSince.After(last) {
				last = c.EvictSince.Time
			}
		}
		if last.After(d.at) {
			last = d.at
		}
		if w.now.Before(last.Add(w.limits.EvictPace)) {
			nodes = append(nodes, d.Node)
		}
	}
	return nodes
}

// deletedNode is a node as it was when it was deleted.
type deletedNode struct {
	*corev1.Node
	at time.Time
}

// checkPace: in no zone do two nodes begin to evict within the pace, whatever became of the first.
func (w *world) checkPace(before, after *corev1.Node) {
	evicts := func(n *corev1.Node) bool {
		record := recordOf(n)
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == "NoExecute" && record.Owns(t) && w.declared(t.Key) })
	}
	if evicts(before) || !evicts(after) {
		return
	}
	zone, at := after.Labels["topology.kubernetes.io/zone"], time.Time{}
	for _, c := range recordOf(after).Taints {
		if c.EvictSince != nil && c.EvictSince.After(at) {
			at = c.EvictSince.Time
		}
	}
	if last, ok := w.evictions[zone]; ok && at.Sub(last) < w.limits.EvictPace {
		w.t.Fatalf("%s begins to evict at %s, another node of zone %s did at %s", after.Name, at, zone, last)
	}
	w.evictions[zone] = at
	w.recorded = append(w.recorded, limit.Act{UID: after.UID, Name: after.Name, Zone: zone, Began: at})
}

// allowed is what the limits allow now a node that asks, which counts though it isn't available; "" for none.
func (w *world) allowed(asks string) map[string]int {
	total, zones := 0, map[string]int{}
	for _, n := range w.api.nodes {
		if _, plane := n.Labels["node-role.kubernetes.io/control-plane"]; !plane && n.DeletionTimestamp == nil {
			zone := n.Labels["topology.kubernetes.io/zone"]
			zones[zone] += 0 // one without an available node is a zone, too
			if available(n) || n.Name == asks {
				total++
				zones[zone]++
			}
		}
	}
	allowed := map[string]int{"tainted": w.limits.MaxTaintedNodes.Of(total), "evicting": w.limits.MaxEvictingNodes.Of(total), "plane": 1}
	if len(zones) >= 3 {
		for _, zone := range worldZones {
			allowed["tainted/"+zone] = w.limits.MaxTaintedNodes.OfZone(zones[zone], total)
			allowed["evicting/"+zone] = w.limits.MaxEvictingNodes.OfZone(zones[zone], total)
		}
	}
	for _, s := range w.sets {
		if s.Spec.MaxNodes != nil {
			allowed[s.Name] = s.Spec.MaxNodes.IntValue()
		}
	}
	return allowed
}

// checkOnce: no act is done twice. What names it is what the audit log names it by.
func (w *world) checkOnce(plan condition.Plan) {
	for _, s := range plan.Steps {
		id := fmt.Sprintf("%s/%d/%s/%s/%s/%s/%d", s.Set, s.Generation, plan.Node.UID, s.Key, s.Verb, s.To, s.Trigger.Unix())
		if s.Harmful() && w.done[id] {
			w.t.Fatalf("%s is done again, by %v", id, texts(plan.Steps, stepText))
		}
		w.done[id] = w.done[id] || s.Harmful()
	}
}

func (w *world) checkCaps(before, after map[string]int, plan condition.Plan) {
	for name, most := range w.allowed(plan.Node.Name) {
		if after[name] > before[name] && after[name] > most {
			w.t.Fatalf("%s rises from %d to %d, allowed are %d, by %v", name, before[name], after[name], most, texts(plan.Steps, stepText))
		}
	}
}

// checkSettled: a write that is seen leaves nothing to do.
func (w *world) checkSettled(written condition.Plan) {
	name := written.Node.Name
	waits := slices.ContainsFunc(written.Holds, func(h condition.Hold) bool { return h.Reason == condition.HeldByRemoval })
	if len(w.unseen) != 1 || waits { // news of others, or the end of another's claim to the key, may give something to do
		return
	}
	w.deliver(1)
	if plan, again := w.decide(name); again {
		w.t.Fatalf("%s is written again: %v after %v with %s", name, texts(plan.Steps, stepText), texts(plan.Node.Taints, taintText), plan.Node.Owned)
	}
}

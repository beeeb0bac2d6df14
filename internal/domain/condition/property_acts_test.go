package condition_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// acts are everything that may happen in a world, each as often as it is listed.
func (w *world) acts() map[string]func() {
	return map[string]func(){
		"flip": func() {
			w.change(w.drawNode(), w.drawCondition(rapid.SampledFrom(worldConditions).Draw(w.t, "condition")))
		},
		"heartbeat": func() {
			for _, name := range slices.Sorted(maps.Keys(w.api.nodes)) {
				w.change(name, func(n *corev1.Node) {
					for i := range n.Status.Conditions {
						n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(w.now)
					}
				})
			}
		},
		"time":       func() { w.now = w.now.Add(time.Duration(rapid.IntRange(1, 400).Draw(w.t, "seconds")) * time.Second) },
		"long time":  func() { w.now = w.now.Add(16 * time.Minute) },
		"deliver":    func() { w.deliver(rapid.IntRange(1, 10).Draw(w.t, "events")) },
		"everything": func() { w.deliver(len(w.unseen)) },
		"relabel": func() {
			w.change(w.drawNode(), labelled("pool", rapid.SampledFrom([]string{"a", "b"}).Draw(w.t, "pool")))
		},
		"foreign taint": w.addForeignTaint,
		"strip":         w.stripTaint,
		"forge":         w.forgeRecord,
		"decide":        w.decideAndWrite,
		"decide more":   w.decideAndWrite,
		"decide most":   w.decideAndWrite,
		"send":          w.send,
		"arrive":        w.arrive,
		"answer":        w.answer,
		"restart":       w.restart,
		"state":         w.changeState,
		"respec":        w.changeSpec,
		"delete set":    w.deleteSet,
		"node joins": func() {
			w.arrive() // a write that was sent when there was one zone less
			w.uids++
			n := newNode(fmt.Sprintf("n%02d", rapid.IntRange(0, 15).Draw(w.t, "number")), inZone(rapid.SampledFrom(worldZones).Draw(w.t, "zone")))
			if _, exists := w.api.nodes[n.Name]; !exists {
				n.UID = types.UID(fmt.Sprintf("node-uid%d", w.uids))
				w.drawCondition("KubeletUnhealthy")(n)
				w.unseen = append(w.unseen, w.api.put(n))
				w.deliver(len(w.unseen))
			}
		},
		"node leaves": w.removeNode,
		"node is cordoned": func() {
			w.change(w.drawNode(), func(n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable })
		},
	}
}

func (w *world) decideAndWrite() {
	w.now = w.now.Add(time.Second) // acts are named by the second
	name := w.drawNode()
	plan, ok := w.decide(name)
	if !ok {
		return
	}
	outcome := rapid.SampledFrom([]string{"lands", "lands", "lands", "answers late", "fails", "uncertain, landed", "uncertain, lost"}).Draw(w.t, "outcome")
	switch outcome {
	case "fails":
		w.fleet.Failed(name)
		return
	case "uncertain, lost":
		return
	}
	version, err := w.write(plan)
	switch {
	case err != nil:
		w.fleet.Failed(name)
	case outcome == "answers late":
		w.answers[name] = version
	case outcome == "lands":
		w.fleet.Written(name, version)
		w.checkSettled(plan)
	}
}

// send lets a write travel while other things happen.
func (w *world) send() {
	name := w.drawNode()
	if plan, ok := w.decide(name); ok {
		w.sent[name] = plan
	}
}

func (w *world) arrive() {
	for _, name := range slices.Sorted(maps.Keys(w.sent)) {
		plan := w.sent[name]
		delete(w.sent, name)
		if version, err := w.write(plan); err != nil {
			w.fleet.Failed(name)
		} else {
			w.fleet.Written(name, version)
		}
	}
}

func (w *world) answer() {
	for name, version := range w.answers {
		w.fleet.Written(name, version)
	}
	clear(w.answers)
}

// addForeignTaint sets any taint that our record of the node doesn't claim; not even a forger could tell that from ours.
func (w *world) addForeignTaint() {
	name := w.drawNode()
	n := w.api.nodes[name]
	taint := corev1.Taint{Key: rapid.SampledFrom(append([]string{"corp.example/x", "node.kubernetes.io/unreachable"}, worldKeys...)).Draw(w.t, "key"),
		Effect: corev1.TaintEffect(rapid.SampledFrom(worldEffects).Draw(w.t, "effect")), Value: "theirs"}
	for _, c := range recordOf(n).Taints {
		if c.Key == taint.Key && c.Effect == taint.Effect {
			return
		}
	}
	if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		return
	}
	w.foreign[name] = append(w.foreign[name], taint)
	w.change(name, func(n *corev1.Node) {
		n.Spec.Taints = slices.Insert(n.Spec.Taints, rapid.IntRange(0, len(n.Spec.Taints)).Draw(w.t, "place"), taint)
	})
}

// stripTaint removes a taint, ours or not.
func (w *world) stripTaint() {
	name := w.drawNode()
	taints := w.api.nodes[name].Spec.Taints
	if len(taints) == 0 {
		return
	}
	i := rapid.IntRange(0, len(taints)-1).Draw(w.t, "which")
	w.now = w.now.Add(time.Second) // acts are named by the second
	w.foreign[name] = slices.DeleteFunc(w.foreign[name], func(t corev1.Taint) bool { return t.MatchTaint(&taints[i]) })
	w.change(name, func(n *corev1.Node) { n.Spec.Taints = slices.Delete(slices.Clone(n.Spec.Taints), i, i+1) })
}

// forgeRecord claims taints of a reserved key and of one that no set declared.
func (w *world) forgeRecord() {
	name := w.drawNode()
	o := recordOf(w.api.nodes[name])
	for _, key := range []string{"corp.example/x", "node.kubernetes.io/unreachable"} {
		o.Taints = append(o.Taints, condition.OwnedTaint{Key: key, Effect: corev1.TaintEffect(rapid.SampledFrom(worldEffects).Draw(w.t, "effect")),
			Set: types.UID(rapid.SampledFrom([]string{"s0-uid1", "bogus"}).Draw(w.t, "set")), Name: "s0", Since: metav1.NewTime(w.now)})
	}
	w.change(name, recorded(o.String()))
}

func (w *world) drawSet() *storedSet {
	if len(w.sets) == 0 {
		return nil
	}
	return w.sets[rapid.SampledFrom(slices.Sorted(maps.Keys(w.sets))).Draw(w.t, "set")]
}

func (w *world) changeState() {
	if s := w.drawSet(); s != nil {
		w.arrive() // a write that was sent under the old state
		s.state = rapid.SampledFrom([]lifecycle.State{lifecycle.Active, lifecycle.Active, lifecycle.Refused, lifecycle.NotJudged, lifecycle.Deleted}).Draw(w.t, "state")
		w.observeSet(s)
	}
}

func (w *world) changeSpec() {
	if s := w.drawSet(); s != nil {
		w.arrive()
		s.ConditionSet = s.DeepCopy()
		s.Spec, s.Generation = w.drawSpec(), s.Generation+1
		if !slices.Contains(s.Status.TaintKeys, s.Spec.TaintKey) {
			s.Status.TaintKeys = append(s.Status.TaintKeys, s.Spec.TaintKey)
		}
		w.observeSet(s)
	}
}

// deleteSet deletes a set past its finalizer; another may come under its name at once.
func (w *world) deleteSet() {
	s := w.drawSet()
	if s == nil {
		return
	}
	w.arrive()
	delete(w.sets, s.Name)
	w.fleet.ForgetSet(s.UID, moment(w.now))
	if rapid.Bool().Draw(w.t, "restored") {
		w.createSet(s.Name)
		w.observeSet(w.sets[s.Name])
	}
	w.confirmOrphans()
}

// confirmOrphans is what the controller does after two live reads a minute apart.
func (w *world) confirmOrphans() {
	known := map[types.UID]bool{}
	for _, s := range w.sets {
		known[s.UID] = true
	}
	for _, n := range w.api.nodes {
		for _, uid := range recordOf(n).Sets() {
			if !known[uid] {
				w.fleet.ConfirmOrphan(uid)
			}
		}
	}
}

func (w *world) removeNode() {
	if len(w.api.nodes) < 3 {
		return
	}
	name := w.drawNode()
	w.arrive()
	w.answer()
	w.deliver(len(w.unseen))
	if rapid.Bool().Draw(w.t, "slowly") {
		w.change(name, deleting)
		w.deliver(1)
		return
	}
	if record := recordOf(w.api.nodes[name]); slices.ContainsFunc(w.api.nodes[name].Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect == "NoExecute" && record.Owns(t) && w.declared(t.Key)
	}) {
		w.deleted = append(w.deleted, deletedNode{w.api.nodes[name], w.now})
	}
	uid := w.api.nodes[name].UID
	delete(w.api.nodes, name)
	delete(w.seen, name)
	delete(w.foreign, name)
	w.fleet.ForgetNode(name, uid, w.at())
}

// calmDown lets everything arrive and time pass until nothing is written any more.
func (w *world) calmDown() {
	w.arrive()
	w.answer()
	w.confirmOrphans()
	for range 60 {
		w.acts()["heartbeat"]()
		w.deliver(len(w.unseen))
		writes := 0
		for _, name := range slices.Sorted(maps.Keys(w.api.nodes)) {
			if plan, ok := w.decide(name); ok {
				version, err := w.write(plan)
				if err != nil {
					w.t.Fatalf("with everything seen a write of %s fails: %v", name, err)
				}
				w.fleet.Written(name, version)
				w.checkSettled(plan)
				writes++
			}
		}
		w.now = w.now.Add(time.Minute)
		if writes == 0 && w.waitsForNothing() {
			return
		}
	}
	w.t.Fatalf("still busy after an hour")
}

// waitsForNothing: no node's plan names a time at which more may be done, but for holds that only others can end.
func (w *world) waitsForNothing() bool {
	for _, name := range slices.Sorted(maps.Keys(w.api.nodes)) {
		plan, writes := w.decide(name)
		if writes {
			w.fleet.Failed(name)
			return false
		}
		paced := slices.ContainsFunc(plan.Holds, func(h condition.Hold) bool { return h.Reason == condition.HeldByEvictPace })
		if paced || len(plan.Holds) == 0 && !plan.RequeueAt.IsZero() {
			return false
		}
	}
	return true
}

// checkNobodyWaitsInVain: who is held by a limit is held because it is used up. A node may still stand in the queue of one
// limit when it has come to wait for another; each look at it moves it on.
func (w *world) checkNobodyWaitsInVain() {
	vain := ""
	for range 10 * len(w.api.nodes) {
		if vain = w.waitsInVain(); vain == "" {
			return
		}
	}
	w.t.Fatal(vain)
}

func (w *world) waitsInVain() (vain string) {
	claimed := func(string) bool { return true } // a forged claim that nobody can judge yet uses up its node's place
	used, allowed := w.used(claimed), w.allowed("")
	for _, name := range slices.Sorted(maps.Keys(w.api.nodes)) {
		plan, writes := w.decide(name)
		if writes { // its turn has come
			version, err := w.write(plan)
			if err != nil {
				w.t.Fatalf("with everything seen a write of %s fails: %v", name, err)
			}
			w.fleet.Written(name, version)
			w.deliver(len(w.unseen))
			return name + " moved on"
		}
		for _, h := range plan.Holds {
			if strings.Contains(h.Message, "deleted since") { // of a write in flight to such a node nobody knows whether it came about
				continue
			}
			limitName, ofLimit := map[condition.Reason]string{"LimitReached": "tainted", "EvictLimitReached": "evicting"}[h.Reason]
			zoned := limitName + "/" + w.api.nodes[name].Labels["topology.kubernetes.io/zone"]
			most, byZone := allowed[zoned]
			set, _, _ := strings.Cut(string(h.Set), "-")
			if ofLimit && used[limitName] < allowed[limitName] && (!byZone || used[zoned] < most) ||
				h.Reason == condition.HeldByMaxNodes && used[set] < allowed[set] {
				vain = fmt.Sprintf("%s waits in vain: %s; used %v, allowed %v", name, h.Message, used, allowed)
			}
		}
	}
	return vain
}

// checkForecasts compares what a set would do with a count over all nodes that the fleet was shown.
func (w *world) checkForecasts() {
	for _, s := range w.sets {
		p := w.fleet.Forecast(s.ConditionSet, w.limits, w.at())
		set, _ := condition.NewSet(s.ConditionSet)
		selected, matching, foreign := 0, 0, 0
		for _, n := range w.seen {
			known := condition.NewNode(n, nil, w.now)
			if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == s.Spec.TaintKey && !recordOf(n).Owns(t) }) {
				foreign++
			}
			if known.Deleting || !set.Selects(known) {
				continue
			}
			selected++
			all := true
			for _, m := range set.Members {
				r, _ := known.Observations.Of(m.Type)
				all = all && r.Status == m.Status
			}
			if all {
				matching++
			}
		}
		sum, ok := w.fleet.Summary(s.UID, w.at())
		if p.Matching != matching || p.Selected != selected || p.ForeignTainted != foreign || !ok || sum.Matching != matching || sum.Selected != selected {
			w.t.Fatalf("set %s: forecast %d of %d, %d foreign; summary %d of %d; counted %d of %d, %d foreign", s.Name, p.Matching, p.Selected, p.ForeignTainted, sum.Matching, sum.Selected, matching, selected, foreign)
		}
	}
}

// checkUndone: with every set withdrawn, nothing but what others set is left.
func (w *world) checkUndone() {
	for _, s := range w.sets {
		s.state = lifecycle.Deleted
		w.observeSet(s)
	}
	w.calmDown()
	for name, n := range w.api.nodes {
		record := recordOf(n) // claims to keys that nobody can know any more are left to a human
		if kept := slices.ContainsFunc(record.Taints, func(c condition.OwnedTaint) bool { return w.declared(c.Key) }); kept || len(record.History) > 0 {
			w.t.Fatalf("%s keeps the record %s", name, record)
		}
		left := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool {
			return slices.ContainsFunc(w.foreign[name], func(f corev1.Taint) bool { return f.MatchTaint(&t) })
		})
		if slices.ContainsFunc(left, func(t corev1.Taint) bool { return w.declared(t.Key) || !record.Owns(t) }) || len(n.Spec.Taints)-len(left) != len(w.foreign[name]) {
			w.t.Fatalf("%s has %v, of others are %v, keys %v, record %s", name, texts(n.Spec.Taints, taintText), texts(w.foreign[name], taintText), w.keys, record)
		}
	}
	for _, s := range w.sets {
		if stillRecorded(w.fleet, s.UID) {
			w.t.Fatalf("set %s still counts as recorded", s.Name)
		}
	}
}

func TestWhateverHappensTheInvariantsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		acts := w.acts()
		names := slices.Sorted(maps.Keys(acts))
		for range rapid.IntRange(10, 120).Draw(t, "acts") {
			acts[rapid.SampledFrom(names).Draw(t, "act")]()
			w.checkForecasts()
		}
		w.calmDown()
		w.checkNobodyWaitsInVain()
		w.checkUndone()
	})
}

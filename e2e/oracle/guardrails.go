package oracle

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/json" // keeps integers integers
)

// guardrails are the objects that change the limits and pause everything.
var guardrails = schema.GroupVersionResource{Group: ourGroup, Version: "v1alpha1", Resource: "guardrails"}

// Rules is what all Guardrails together say from a moment on.
type Rules struct {
	From time.Time
	// PausedBy is the Guardrail that pauses new acts; "" when none does.
	PausedBy string
	// FrozenBy is the Guardrail that stops undo, too; "" when none does.
	FrozenBy string
	// Tainted and Evicting are caps on nodes, all of which hold.
	Tainted, Evicting []intstr.IntOrString
	// Deletions are caps on the pods deleted in a minute, all of which hold.
	Deletions []intstr.IntOrString
	// ScaledDown are caps on targets that are scaled down, all of which hold.
	ScaledDown []intstr.IntOrString
}

// rail is one Guardrail as it is at some point of the replay.
type rail struct {
	name           string
	paused, frozen bool
	// refused: it can only make things stricter.
	refused bool
	limits  map[string]intstr.IntOrString
}

func (o Options) builtin(name string) intstr.IntOrString {
	if name == maxDeletions {
		return intstr.FromInt32(int32(o.MaxPodDeletionsPerMinute))
	}
	percent := map[string]int{maxTainted: o.MaxTaintedPercent, maxEvicting: o.MaxEvictingPercent, maxScaledDown: o.MaxScaledDownPercent}[name]
	return intstr.FromString(fmt.Sprintf("%d%%", percent))
}

const (
	maxTainted    = "maxTaintedNodes"
	maxEvicting   = "maxEvictingNodes"
	maxDeletions  = "maxPodDeletionsPerMinute"
	maxScaledDown = "maxScaledDownTargets"
)

// ruling takes in a revision of a Guardrail.
func (j *judging) ruling(r revision) {
	switch {
	case r.unseen: // a write to status
		return
	case r.object == nil:
		delete(j.rails, r.uid)
	default:
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal(r.object, &object.Object); err != nil {
			j.broke(Blind, r.at, r.version, r.name, fmt.Sprintf("its JSON can't be read: %v", err))
			return
		}
		j.rails[r.uid] = j.rail(object)
	}
	j.world.Rules = append(j.world.Rules, merged(j.rails, j.options, r.at))
}

func (j *judging) rail(object *unstructured.Unstructured) rail {
	g := rail{name: object.GetName(), limits: map[string]intstr.IntOrString{}}
	g.paused, _, _ = unstructured.NestedBool(object.Object, "spec", "paused")
	g.frozen, _, _ = unstructured.NestedBool(object.Object, "spec", "frozen")
	g.refused = j.options.Admissible(object) != nil
	for _, name := range []string{maxTainted, maxEvicting, maxDeletions, maxScaledDown} {
		if value, found, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "limits", name); found {
			g.limits[name] = intstr.Parse(fmt.Sprint(value))
		}
	}
	return g
}

func merged(rails map[types.UID]rail, o Options, at time.Time) Rules {
	rules := Rules{From: at}
	for _, g := range rails {
		if (g.paused || g.frozen) && (rules.PausedBy == "" || g.name < rules.PausedBy) {
			rules.PausedBy = g.name
		}
		if g.frozen && (rules.FrozenBy == "" || g.name < rules.FrozenBy) {
			rules.FrozenBy = g.name
		}
	}
	rules.Tainted, rules.Evicting = caps(rails, o, maxTainted), caps(rails, o, maxEvicting)
	rules.Deletions, rules.ScaledDown = caps(rails, o, maxDeletions), caps(rails, o, maxScaledDown)
	return rules
}

// caps are those that Guardrails set, and the built-in one when none does that isn't refused.
func caps(rails map[types.UID]rail, o Options, name string) []intstr.IntOrString {
	var all []intstr.IntOrString
	replaced := false
	for _, g := range rails {
		if value, set := g.limits[name]; set {
			all = append(all, value)
			replaced = replaced || !g.refused
		}
	}
	if !replaced {
		all = append(all, o.builtin(name))
	}
	return all
}

// rulesAt are those that the manager may have gone by at a moment: the ones in force, and those before that its view, which
// may be behind, may still have.
func (w *World) rulesAt(at time.Time, lag time.Duration) []Rules {
	first := 0
	for i, r := range w.Rules {
		if i > 0 && !r.From.After(at.Add(-lag)) {
			first = i
		}
	}
	last := len(w.Rules)
	for last > first+1 && w.Rules[last-1].From.After(at) {
		last--
	}
	return w.Rules[first:last]
}

// paused names the Guardrail that forbids an act at a moment; "" if none does.
func (w *World) paused(at time.Time, lag time.Duration) string {
	for _, r := range w.rulesAt(at, lag) {
		if r.PausedBy == "" {
			return ""
		}
	}
	return w.rulesAt(at, lag)[0].PausedBy
}

// frozen names the Guardrail that forbids any write at a moment; "" if none does.
func (w *World) frozen(at time.Time, lag time.Duration) string {
	for _, r := range w.rulesAt(at, lag) {
		if r.FrozenBy == "" {
			return ""
		}
	}
	return w.rulesAt(at, lag)[0].FrozenBy
}

// frozenFor is how long everything was frozen between two moments: no undo is due in that time.
func (w *World) frozenFor(from, to time.Time) (sum time.Duration) {
	for i, r := range w.Rules {
		begin, end := r.From, to
		if i+1 < len(w.Rules) && w.Rules[i+1].From.Before(to) {
			end = w.Rules[i+1].From
		}
		if begin.Before(from) {
			begin = from
		}
		if r.FrozenBy != "" && end.After(begin) {
			sum += end.Sub(begin)
		}
	}
	return sum
}

// allowed is the most nodes of so many that the caps which may have been in force let through; zone is the number of those
// in one zone, or all.
func (w *World) allowed(caps func(Rules) []intstr.IntOrString, zone, all int, at time.Time, lag time.Duration) int {
	most := 0
	for _, r := range w.rulesAt(at, lag) {
		least := all
		for _, limit := range caps(r) {
			least = min(least, nodesOf(limit, zone, all))
		}
		most = max(most, least)
	}
	return most
}

func nodesOf(limit intstr.IntOrString, zone, all int) int {
	if limit.Type == intstr.Int {
		return limit.IntValue()
	}
	percent, err := intstr.GetScaledValueFromIntOrPercent(&limit, 100, false)
	if err != nil || percent == 0 {
		return 0
	}
	return share(percent, zone, all)
}

// deletable is the most pods that may be deleted in a minute.
func (w *World) deletable(at time.Time, lag time.Duration) int {
	most := 0
	for _, r := range w.rulesAt(at, lag) {
		least := r.Deletions[0].IntValue()
		for _, limit := range r.Deletions {
			least = min(least, limit.IntValue())
		}
		most = max(most, least)
	}
	return most
}

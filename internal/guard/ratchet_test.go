package guard

import (
	"context"
	"slices"
	"testing"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

func TestUpdates(t *testing.T) {
	const (
		bad          = "{type: Ready, effect: NoSchedule, taintKey: example.com/ready, conditions: {Ready: {status: true}}}"
		badHeld      = "{type: Ready, effect: NoSchedule, taintKey: example.com/ready, for: 5m, conditions: {Ready: {status: true}}}"
		badOtherwise = "{type: Ready, effect: NoSchedule, taintKey: example.com/ready, conditions: {Ready: {status: true}, DiskPressure: {status: false}}}"
		badKeyToo    = "{type: Ready, effect: NoSchedule, taintKey: k8s.io/ready, conditions: {Ready: {status: true}}}"
		badObserved  = "{type: Ready, effect: NoSchedule, taintKey: example.com/ready, mode: Observe, conditions: {Ready: {status: true}}}"
		badEnforced  = "{type: Ready, effect: NoSchedule, taintKey: example.com/ready, mode: Enforce, conditions: {Ready: {status: true}}}"
		good         = "{type: Ready, effect: NoSchedule, taintKey: example.com/ready, conditions: {Ready: {status: false}}}"
		goodHeld     = "{type: Ready, effect: NoSchedule, taintKey: example.com/ready, for: 5m, conditions: {Ready: {status: false}}}"
		healthy      = "conditionset/matches-healthy-nodes"
	)
	exceeding := condition.Forecast{Nodes: 40, WouldTaint: 37, Limit: 4, UnionLimit: 40}
	for name, c := range map[string]struct {
		old, new string
		forecast condition.Forecast
		deleting bool
		denied   []string
		warned   []string
	}{
		"an unchanged spec is admitted, whatever it says":             {old: bad, new: bad},
		"an object being deleted is admitted, whatever becomes of it": {old: good, new: bad, deleting: true},
		"a change of other fields keeps an old violation as a warning": {
			old: bad, new: badHeld, warned: []string{healthy},
		},
		"a change of the field that breaks the rule is refused": {old: bad, new: badOtherwise, denied: []string{healthy}},
		"a new violation beside an old one is refused, the old one warns": {
			old: bad, new: badKeyToo, denied: []string{"conditionset/reserved-taint-key"}, warned: []string{healthy},
		},
		"a new violation is refused":                                     {old: good, new: bad, denied: []string{healthy}},
		"a repair is admitted":                                           {old: bad, new: good},
		"from Observe to Enforce every rule is judged anew":              {old: badObserved, new: badEnforced, denied: []string{healthy}},
		"leaving mode out is Enforce too":                                {old: badObserved, new: bad, denied: []string{healthy}},
		"from Enforce to Observe an old violation warns":                 {old: bad, new: badObserved, warned: []string{healthy}},
		"writing down the default mode isn't a change to Enforce":        {old: bad, new: badEnforced, warned: []string{healthy}},
		"rules over the plan judge what makes a set act harder":          {old: goodHeld, new: good, forecast: exceeding, denied: []string{"conditionset/would-exceed-limit"}},
		"rules over the plan warn of what makes it softer":               {old: good, new: goodHeld, forecast: exceeding, warned: []string{"conditionset/would-exceed-limit"}},
		"rules over the plan leave alone what doesn't change the spec":   {old: good, new: good, forecast: exceeding},
		"a limit doesn't keep anybody from turning a set to observation": {old: bad, new: badObserved, forecast: exceeding, warned: []string{healthy, "conditionset/would-exceed-limit-observing"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.forecast.Limit == 0 {
				c.forecast = condition.Forecast{Limit: 4, UnionLimit: 4}
			}
			old := conditionSet(t, c.old)
			if c.deleting {
				old["metadata"].(map[string]any)["deletionTimestamp"] = "2026-11-21T12:00:00Z"
			}
			v := newTestGuard(t, &fakeFacts{forecast: c.forecast}).Review(context.Background(), updating(t, old, conditionSet(t, c.new)))
			var warned []string
			for _, violation := range v.Violations {
				if violation.Severity == Warn {
					warned = append(warned, violation.Rule)
				}
			}
			if !slices.Equal(v.RuleIDs(), c.denied) || !slices.Equal(warned, c.warned) || v.Allowed != (len(c.denied) == 0) {
				t.Errorf("allowed %v, denied by %v, warned by %v; want denied by %v, warned by %v", v.Allowed, v.RuleIDs(), warned, c.denied, c.warned)
			}
		})
	}
}

func TestAnOldViolationSaysThatItIsOld(t *testing.T) {
	g := newTestGuard(t, nil)
	v := g.Review(context.Background(), updating(t,
		conditionSet(t, "{type: A, effect: NoSchedule, taintKey: k8s.io/a, conditions: {KernelDeadlock: {status: true}}}"),
		conditionSet(t, "{type: B, effect: NoSchedule, taintKey: k8s.io/a, conditions: {KernelDeadlock: {status: true}}}"),
	))
	want := `conditionset/reserved-taint-key: taintKey "k8s.io/a" belongs to Kubernetes, which acts on it; write a key with a domain of your own, such as example.com/B (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#conditionset-reserved-taint-key); it was so before, and this update doesn't touch it`
	if !v.Allowed || v.Warnings()[0] != want {
		t.Errorf("allowed %v\n got %s\nwant %s", v.Allowed, v.Warnings()[0], want)
	}
}

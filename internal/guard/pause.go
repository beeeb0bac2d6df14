package guard

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
)

// A pause is what one wants when rules, or their authors, are wrong; so no rule may be in its way. The same is true of one
// policy that is turned to observation.

// pausing says how much a request for a Guardrail does beside pausing.
type pausing int

const (
	notOnlyPausing pausing = iota
	// createsPause: a Guardrail that says nothing but paused: true. Built-in rules judge its name; those of Guardrails only warn.
	createsPause
	// turnsPauseOn: an update that changes nothing else. Every rule only warns; where the API server can, it doesn't even ask.
	turnsPauseOn
)

// pausingOf compares what rules see of a Guardrail; old is nil for a creation.
func pausingOf(kind string, object, old map[string]any) pausing {
	if kind != kindGuardrail || !isPaused(object) || isPaused(old) {
		return notOnlyPausing
	}
	rest, was := specWithout(object, "paused"), specWithout(old, "paused")
	switch {
	case !equality.Semantic.DeepEqual(rest, was):
		return notOnlyPausing
	case old == nil:
		return createsPause
	}
	return turnsPauseOn
}

func specOf(object map[string]any) map[string]any {
	spec, _ := object["spec"].(map[string]any)
	return spec
}

func isPaused(object map[string]any) bool {
	paused, _ := specOf(object)["paused"].(bool)
	return paused
}

func specWithout(object map[string]any, field string) map[string]any {
	spec := maps.Clone(specOf(object))
	delete(spec, field)
	return spec
}

// onlyTurnsToObservation: an update of a policy that changes nothing but its mode, from Enforce to Observe.
func onlyTurnsToObservation(object, old map[string]any) bool {
	return old != nil && observes(object) && !observes(old) && equality.Semantic.DeepEqual(specWithout(object, "mode"), specWithout(old, "mode"))
}

// mustAdmit says whether a rule may not refuse the request, because that only ends acts.
func (e *evaluation) mustAdmit(r *compiledRule) bool {
	return e.onlyObserves || e.pausing == turnsPauseOn || e.pausing == createsPause && r.guardrail != ""
}

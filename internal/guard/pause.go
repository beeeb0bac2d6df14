package guard

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
)

// A pause is what one wants when rules, or their authors, are wrong; so no rule may be in its way.

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
	rest, was := withoutPause(object), withoutPause(old)
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

func withoutPause(object map[string]any) map[string]any {
	spec := maps.Clone(specOf(object))
	delete(spec, "paused")
	return spec
}

// mustAdmit says whether a rule may not refuse the request, because that only pauses.
func (e *evaluation) mustAdmit(r *compiledRule) bool {
	return e.pausing == turnsPauseOn || e.pausing == createsPause && r.guardrail != ""
}

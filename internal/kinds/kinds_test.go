package kinds

import (
	"reflect"
	"slices"
	"testing"
)

// TestWhatTheKindsAre: from these flags follow the manager's rights and users', so that another one is a decision.
func TestWhatTheKindsAre(t *testing.T) {
	type is struct {
		plural                           string
		namespaced, rulesOver, finalizer bool
	}
	for name, want := range map[string]is{
		"ConditionSet":            {"conditionsets", false, false, true},
		"WeederConfig":            {"weederconfigs", true, false, false},
		"ProbeConfig":             {"probeconfigs", true, false, true},
		"OutlierPolicy":           {"outlierpolicies", true, false, false},
		"HealthCheckRegistration": {"healthcheckregistrations", false, false, true},
		"Guardrail":               {"guardrails", false, true, false},
		"GuardrailException":      {"guardrailexceptions", false, true, false},
	} {
		k := Named(name)
		if k == nil {
			t.Errorf("there is no %s", name)
		} else if got := (is{k.Plural(), k.Namespaced, k.RulesOver, k.Finalizer}); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestEveryEntryIsOfOneKind(t *testing.T) {
	for _, k := range All {
		items, _ := reflect.TypeOf(k.List).Elem().FieldByName("Items")
		if items.Type != reflect.SliceOf(reflect.TypeOf(k.Object).Elem()) {
			t.Errorf("%s has a list of %v", k.Name(), items.Type)
		}
		if Named(k.Name()) != k {
			t.Errorf("%s is there twice", k.Name())
		}
		if k.New() == k.New() || k.NewList() == k.NewList() {
			t.Errorf("%s: two new objects are one", k.Name())
		}
		if k.RulesOver && k.Finalizer {
			t.Errorf("%s rules over policies, and has something to undo: the manager may not write it", k.Name())
		}
		if k.Terms != nil && k.Terms.Of == nil && !k.RulesOver {
			t.Errorf("%s: nobody knows its terms", k.Name())
		}
		if slices.Contains(Policies(), k) == k.RulesOver {
			t.Errorf("%s: among those that act: %t", k.Name(), !k.RulesOver)
		}
	}
}

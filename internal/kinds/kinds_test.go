package kinds

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// TestWhatTheKindsAre: from these flags follow the manager's rights and users', so that another one is a decision. A kind that has
// none of those that give rights, as a scaffolded one, needs no row.
func TestWhatTheKindsAre(t *testing.T) {
	type is struct {
		plural                                    string
		namespaced, tenants, rulesOver, finalizer bool
	}
	decided := map[string]is{
		"ConditionSet":            {"conditionsets", false, false, false, true},
		"WeederConfig":            {"weederconfigs", true, true, false, false},
		"ProbeConfig":             {"probeconfigs", true, true, false, true},
		"OutlierPolicy":           {"outlierpolicies", true, true, false, true},
		"HealthCheckRegistration": {"healthcheckregistrations", false, false, false, true},
		"Guardrail":               {"guardrails", false, false, true, false},
		"GuardrailException":      {"guardrailexceptions", false, false, true, false},
	}
	for _, k := range All {
		got := is{k.Plural(), k.Namespaced, k.Tenants, k.RulesOver, k.Finalizer}
		want, ok := decided[k.Name()]
		delete(decided, k.Name())
		if row := fmt.Sprintf("%q: {%q, %t, %t, %t, %t},", k.Name(), got.plural, got.namespaced, got.tenants, got.rulesOver, got.finalizer); ok && got != want {
			t.Errorf("got %s want %+v", row, want)
		} else if !ok && (got.tenants || got.rulesOver || got.finalizer) {
			t.Errorf("nobody decided on the rights that follow from this row; when they are right, add it: %s", row)
		}
	}
	for name := range decided {
		t.Errorf("there is no %s", name)
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
		if k.Tenants && (!k.Namespaced || k.RulesOver) {
			t.Errorf("%s is given to admins of namespaces, and isn't theirs", k.Name())
		}
		if k.Terms != nil && k.Terms.Of == nil && !k.RulesOver {
			t.Errorf("%s: nobody knows its terms", k.Name())
		}
		if slices.Contains(Policies(), k) == k.RulesOver {
			t.Errorf("%s: among those that act: %t", k.Name(), !k.RulesOver)
		}
	}
}

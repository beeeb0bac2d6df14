package kube

import (
	"slices"
	"testing"
)

func TestWhichStoredPoliciesAGuardrailsRulesRefuse(t *testing.T) {
	r := &Rejections{}
	var told []string
	r.OnChange(func(owner string) { told = append(told, owner) })
	r.Set("ConditionSet/b", []string{"platform/team", "strict/no-eviction"})
	r.Set("ConditionSet/a", []string{"conditionset/empty-cap", "platform/team"})
	for owner, want := range map[string][]string{
		"platform": {"ConditionSet/a", "ConditionSet/b"}, "strict": {"ConditionSet/b"}, "plat": nil, "other": nil,
	} {
		if got := r.Of(owner); !slices.Equal(got, want) {
			t.Errorf("%s refuses %q, want %q", owner, got, want)
		}
	}
	if want := []string{"platform", "strict", "conditionset", "platform"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
	told = nil
	r.Set("ConditionSet/b", []string{"platform/team", "strict/no-eviction"})
	if len(told) > 0 {
		t.Errorf("told of %q though nothing changed", told)
	}
	r.Set("ConditionSet/b", []string{"platform/team"})
	r.Set("ConditionSet/a", nil)
	r.Set("ConditionSet/never", nil)
	if got := r.Of("strict"); len(got) > 0 {
		t.Errorf("strict still refuses %q", got)
	}
	if got := r.Of("platform"); !slices.Equal(got, []string{"ConditionSet/b"}) {
		t.Errorf("platform refuses %q", got)
	}
}

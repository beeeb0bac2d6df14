package guard

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
)

func storedSet(status string) *v1alpha1.ConditionSet {
	return &v1alpha1.ConditionSet{
		ObjectMeta: metav1.ObjectMeta{Name: "ready", UID: "u1", Generation: 3},
		Spec: v1alpha1.ConditionSetSpec{
			Type: "Ready", Effect: "NoSchedule", TaintKey: "example.com/ready",
			Conditions: map[string]v1alpha1.MemberCondition{"Ready": {Status: v1alpha1.RequiredStatus{JSON: status}}},
		},
	}
}

func TestAnObjectThatTheRulesAdmitBecomesValidated(t *testing.T) {
	facts := &fakeFacts{age: 7 * time.Second, forecast: condition.Forecast{Nodes: 40, WouldTaint: 37, Limit: 4}}
	g := newTestGuard(t, facts)
	set := storedSet("false")
	validated, verdict := Admit(context.Background(), g, set)
	if !verdict.Allowed || !validated.Valid() {
		t.Fatalf("refused: %s", verdict.Message())
	}
	if facts.asked != 0 {
		t.Error("the planner was asked: what the cluster is like must not undo a policy")
	}
	if validated.UID() != "u1" || validated.Generation() != 3 || validated.RuleSetHash() != g.RuleSetHash("ConditionSet") {
		t.Errorf("got %+v", validated)
	}
	set.Spec.TaintKey = "k8s.io/changed-later"
	validated.Object().Spec.TaintKey = "k8s.io/changed-later"
	if got := validated.Object().Spec.TaintKey; got != "example.com/ready" {
		t.Errorf("what was validated changed to %s", got)
	}
}

func TestAnObjectThatARuleRefusesIsNotValidated(t *testing.T) {
	validated, verdict := Admit(context.Background(), newTestGuard(t, nil), storedSet(`"True"`))
	if verdict.Allowed || validated.Valid() || !slices.Equal(verdict.RuleIDs(), []string{"conditionset/matches-healthy-nodes"}) {
		t.Errorf("allowed %v, valid %v, rules %v", verdict.Allowed, validated.Valid(), verdict.RuleIDs())
	}
}

func TestARuleThatCannotBeEvaluatedGivesNoValidated(t *testing.T) {
	set := storedSet("[]") // the schema refuses it; who could write around the schema could also write this
	validated, verdict := Admit(context.Background(), newTestGuard(t, nil), set)
	if verdict.Allowed || validated.Valid() || len(verdict.Skipped) == 0 {
		t.Errorf("allowed %v, valid %v, skipped %v", verdict.Allowed, validated.Valid(), verdict.Skipped)
	}
}

func TestAnObjectThatWasNeverStoredIsNotValidated(t *testing.T) {
	set := storedSet("false")
	set.UID = ""
	if validated, verdict := Admit(context.Background(), newTestGuard(t, nil), set); verdict.Allowed || validated.Valid() {
		t.Error("validated")
	}
}

func TestTheZeroValidatedIsInvalidAndHasNoObject(t *testing.T) {
	var v Validated[*v1alpha1.ConditionSet]
	if v.Valid() {
		t.Error("valid")
	}
	defer func() {
		if recover() == nil {
			t.Error("gave an object")
		}
	}()
	v.Object()
}

func TestEqualSpecsHaveEqualHashes(t *testing.T) {
	hash := func(s *v1alpha1.ConditionSet) string {
		h, err := SpecHash(s)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	a, b := storedSet("false"), storedSet("false")
	b.Name, b.Generation = "other", 9
	if hash(a) != hash(b) {
		t.Error("name or generation changed the hash")
	}
	if hash(a) == hash(storedSet("true")) {
		t.Error("another spec has the same hash")
	}
}

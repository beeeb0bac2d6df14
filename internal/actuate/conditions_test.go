package actuate

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// neverCurrent says that no policy is what was admitted.
type neverCurrent struct{}

func (neverCurrent) Check(context.Context, schema.GroupVersionKind, types.NamespacedName, types.UID, int64) error {
	return errors.New("it isn't")
}

// checked is a target with the condition Mine and Theirs, of which the record claims some.
func checked(record string) *unstructured.Unstructured {
	entry := func(kind string) map[string]any {
		return map[string]any{"type": kind, "status": "False", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "e.org/v1", "kind": "Thing", "metadata": map[string]any{"name": "t", "namespace": "n", "uid": "u"},
		"status": map[string]any{"conditions": []any{entry("Mine"), entry("Theirs")}},
	}}
	if record != "" {
		u.SetAnnotations(map[string]string{"autohealer.resourcestack.com/owned-conditions": record})
	}
	return u
}

// conditionsOn applies a write to a target in a cluster that has it, and gives what is then stored.
func conditionsOn(t *testing.T, target *unstructured.Unstructured, w ConditionWrite) (*unstructured.Unstructured, error) {
	t.Helper()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(target.GroupVersionKind(), &unstructured.Unstructured{})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(target).WithStatusSubresource(target).Build()
	stored := target.DeepCopy()
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "n", Name: "t"}, stored); err != nil {
		t.Fatal(err)
	}
	w.Target = stored
	_, err := (&Conditions{Client: c, Current: neverCurrent{}}).Apply(t.Context(), w)
	after := target.DeepCopy()
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "n", Name: "t"}, after); err != nil {
		t.Fatal(err)
	}
	return after, err
}

func TestWhatMayBeDoneToConditionsWithoutAnAdmission(t *testing.T) {
	decider := []*registration.Registration{{Name: "r", UID: "r", Generation: 1}}
	healing := health.Step{Condition: health.Condition{Type: "Mine", Status: health.True, Reason: "R"}, Before: health.False}
	failing := health.Step{Condition: health.Condition{Type: "Mine", Status: health.Unknown, Reason: "R"}, Before: health.False}
	for name, c := range map[string]struct {
		record   string
		step     health.Step
		deciders []*registration.Registration
		want     error // nil: it is done
	}{
		"to heal what is ours":             {"Mine", healing, decider, nil},
		"to remove what is ours":           {"Mine", health.Step{Condition: health.Condition{Type: "Mine"}, Remove: true}, nil, nil},
		"to write something else":          {"Mine", failing, decider, ErrNotValidated},
		"to heal what isn't ours":          {"", healing, decider, ErrNotValidated},
		"to remove what isn't ours":        {"Mine", health.Step{Condition: health.Condition{Type: "Theirs"}, Remove: true}, nil, ErrNotValidated},
		"to remove what nobody says of":    {"", health.Step{Condition: health.Condition{Type: "Theirs"}, Remove: true}, decider, ErrNotValidated},
		"to write what nobody decides":     {"", health.Step{Condition: health.Condition{Type: "New", Status: health.True}}, nil, ErrNotValidated},
		"to write what is not admitted":    {"", health.Step{Condition: health.Condition{Type: "New", Status: health.True}}, decider, ErrNotValidated},
		"to write over what others wrote":  {"Mine", health.Step{Condition: health.Condition{Type: "Theirs", Status: health.True}, Before: health.False}, decider, ErrNotValidated},
		"to turn false what others turned": {"", health.Step{Condition: health.Condition{Type: "Theirs", Status: health.False}, Before: health.True}, decider, ErrNotValidated},
	} {
		t.Run(name, func(t *testing.T) {
			target := checked(c.record)
			after, err := conditionsOn(t, target, ConditionWrite{Step: c.step, Deciders: c.deciders, Layout: health.Layout{Shape: health.Conditions}})
			if !errors.Is(err, c.want) {
				t.Fatalf("it gave %v instead of %v", err, c.want)
			}
			mine, theirs := health.Find(after, "Mine"), health.Find(after, "Theirs")
			switch {
			case theirs == nil || theirs.Status != health.False:
				t.Errorf("what is others' is %+v", theirs)
			case c.want != nil && (mine == nil || mine.Status != health.False || registration.Claim(after, "", false) != c.record):
				t.Errorf("it is refused, and yet Mine is %+v and the record %q", mine, registration.Owned(after))
			case c.want == nil && c.step.Remove && (mine != nil || len(registration.Owned(after)) > 0):
				t.Errorf("removed, Mine is %+v and the record %q", mine, registration.Owned(after))
			case c.want == nil && !c.step.Remove && mine.Status != health.True:
				t.Errorf("healed, Mine is %+v", mine)
			}
		})
	}
}

func TestAClaimIsDroppedOnlyWithoutItsCondition(t *testing.T) {
	_, err := (&Conditions{}).Unclaim(t.Context(), checked("Mine"), "Mine")
	if !errors.Is(err, ErrNotValidated) {
		t.Errorf("the claim of a condition that is there was dropped: %v", err)
	}
}

package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/breaker"
	"github.com/resourcestack/autohealer/internal/cli/freeze"
)

// TestADryRunChangesNothing, and says what the same without it would.
func TestADryRunChangesNothing(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"client", "server"} {
		t.Run(how, func(t *testing.T) {
			open := &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			open.Status.Breaker = &v1alpha1.Breaker{ID: "1"}
			stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(open).Build()
			dry := dryRunFlag(&cobra.Command{})
			if err := dry.Set(how); err != nil {
				t.Fatal(err)
			}
			var guardrails v1alpha1.GuardrailList
			if _, made, err := freeze.Freeze(t.Context(), dry.writes(stored), ""); err != nil || !made {
				t.Errorf("freeze: made %v, %v", made, err)
			}
			if err := stored.List(t.Context(), &guardrails); err != nil || len(guardrails.Items) > 0 {
				t.Errorf("freeze: %v, there is %v", err, guardrails.Items)
			}
			if found, err := breaker.Reset(t.Context(), dry.writes(stored), &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, "own"); err != nil || found == nil {
				t.Errorf("reset: %v, %v", found, err)
			}
			if err := stored.Get(t.Context(), client.ObjectKeyFromObject(open), open); err != nil || len(open.Annotations) > 0 {
				t.Errorf("reset: %v, it has %v", err, open.Annotations)
			}

			if _, made, err := freeze.Freeze(t.Context(), stored, "INC-4711"); err != nil || !made {
				t.Fatal(made, err)
			}
			// the fake takes a dry run of what there is for a creation; the API server doesn't (e2e/operations/freeze_test.go)
			if gr, made, err := freeze.Freeze(t.Context(), dry.writes(stored), ""); err != nil || made && how == "client" || how == "client" && gr.Annotations[v1alpha1.AnnotationFreezeReason] != "INC-4711" {
				t.Errorf("freeze of what is frozen: made %v, %v", made, err)
			}
			if was, _, err := freeze.Thaw(t.Context(), dry.writes(stored)); err != nil || was == nil {
				t.Errorf("thaw: %v, %v", was, err)
			}
			if err := stored.List(t.Context(), &guardrails); err != nil || len(guardrails.Items) != 1 {
				t.Errorf("thaw: %v, there is %v", err, guardrails.Items)
			}
		})
	}
}

// TestADryRunHasNoWriteThatChangesSomething, also of those that no verb makes.
func TestADryRunHasNoWriteThatChangesSomething(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"client", "server"} {
		set := &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(set).WithStatusSubresource(set).Build()
		c := dryRun{&choice{value: how}}.writes(stored)
		for name, write := range map[string]func(o client.Object) error{
			"create": func(client.Object) error {
				return c.Create(t.Context(), &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
			},
			"update": func(o client.Object) error { return c.Update(t.Context(), o) },
			"patch": func(o client.Object) error {
				return c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)))
			},
			"update the status": func(o client.Object) error { return c.Status().Update(t.Context(), o) },
			"patch a subresource": func(o client.Object) error {
				return c.SubResource("status").Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"status":{"observedGeneration":7}}`)))
			},
			"delete": func(o client.Object) error { return c.Delete(t.Context(), o) },
		} {
			now := &v1alpha1.ConditionSet{}
			if err := stored.Get(t.Context(), client.ObjectKeyFromObject(set), now); err != nil {
				t.Fatal(err)
			}
			before := now.ResourceVersion
			now.Labels, now.Status.ObservedGeneration = map[string]string{"a": "b"}, 7
			if err := write(now); err != nil {
				t.Errorf("%s, %s: %v", how, name, err)
			}
			var all v1alpha1.ConditionSetList
			if err := stored.List(t.Context(), &all); err != nil || len(all.Items) != 1 || all.Items[0].ResourceVersion != before {
				t.Errorf("%s, %s: %v, there is %v", how, name, err, all.Items)
			}
		}
	}
}

// TestADryRunOfAKindThatIsntThere fails as the real one does.
func TestADryRunOfAKindThatIsntThere(t *testing.T) {
	dry := dryRun{&choice{value: "client"}}
	_, _, err := freeze.Freeze(t.Context(), dry.writes(fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build()), "")
	if err == nil || apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "Guardrail") {
		t.Errorf("got %v", err)
	}
}

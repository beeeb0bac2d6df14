package guard

import (
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Widget is a kind of which the engine knows nothing.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              map[string]any `json:"spec"`
}

// DeepCopyObject is shallow, which is enough here.
func (w *Widget) DeepCopyObject() runtime.Object {
	is := *w
	return &is
}

func TestAKindNeedsOnlyATypeACRDAndACatalogue(t *testing.T) {
	scheme.AddKnownTypes(v1alpha1.GroupVersion, &Widget{})
	g, err := NewFrom(Options{}, os.DirFS("testdata/widget/catalog"), os.DirFS("testdata/widget/crds"))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range g.Rules("Widget") {
		for _, test := range rule.Tests {
			v, err := g.RunTest(t.Context(), "Widget", test)
			if err != nil {
				t.Fatal(err)
			}
			if got := outcome(v, rule.ID); got != test.Expect {
				t.Errorf("%s, %s: got %s, want %s", rule.ID, test.Name, got, test.Expect)
			}
		}
	}
	results := g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", `{rules: [{name: blue, kinds: [Widget], expression: "object.spec.color == 'blue' || variables.small"}]}`)})
	if results[0].Rules != 1 || !results[0].Verdict.Allowed {
		t.Fatalf("got %+v", results[0])
	}
	for color, allowed := range map[string]bool{"blue": true, "green": false} {
		content := object(t, "{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: Widget, metadata: {name: w, namespace: ns}, spec: {size: 50, color: "+color+"}}")
		if v := g.Review(t.Context(), creating(t, content)); v.Allowed != allowed {
			t.Errorf("%s: allowed %v: %s", color, v.Allowed, v.Message())
		}
	}
	errs := g.CheckGuardrail(gr(t, "platform", `{rules: [{name: blue, kinds: [Widget], expression: "plan.limit > 3"}]}`))
	if len(errs) != 1 || errs[0].Message != "1:1: undeclared reference to 'plan'; a rule may read authorizer, facts, limits, object, oldObject, request\n | plan.limit > 3\n | ^" {
		t.Errorf("a kind without a planner has a plan: %q", errs)
	}
}

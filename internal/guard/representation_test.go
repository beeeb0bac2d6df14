package guard

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/crds"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// wholeSpec is a spec from the kind's catalogue that has an object in the place whose field is to be changed, where any has.
func wholeSpec(t *testing.T, g *Guard, kind string, field []string) map[string]any {
	t.Helper()
	admitted, _ := specimens(t, kind)
	tests := []Test{admitted.Test}
	for _, rule := range g.Rules(kind) {
		tests = append(tests, rule.Tests...)
	}
	for _, test := range tests {
		object, _, err := test.Objects(kind)
		if err != nil {
			t.Fatal(err)
		}
		spec := object["spec"].(map[string]any)
		if place, _, err := unstructured.NestedMap(spec, field[:len(field)-1]...); err == nil && len(place) > 0 {
			return spec
		}
	}
	return made(t, admitted)["spec"].(map[string]any)
}

// saying is what one rule says of an object.
func saying(v Verdict, rule string) string {
	for _, violation := range v.Violations {
		if violation.Rule == rule {
			return "violated"
		}
	}
	for _, skip := range v.Skipped {
		if skip.Rule == rule || skip.Rule == "guard/object" {
			return "skipped"
		}
	}
	return "holds"
}

// TestAFieldIsThereAtAdmissionWhenItIsThereAtRunTime writes every value that says nothing into every field of every kind,
// and asks has() of it, where the user's JSON is judged and where the controllers' object is.
func TestAFieldIsThereAtAdmissionWhenItIsThereAtRunTime(t *testing.T) {
	definitions, err := ReadCRDs(crds.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds.Names(kinds.All) {
		t.Run(kind, func(t *testing.T) {
			g, judged := newTestGuard(t, nil), map[string]int{}
			schema := definitions[kind].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
			for _, path := range pathsOf(schema, "") {
				field := strings.Split(path, ".")
				results := g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "own", fmt.Sprintf(`{rules: [{name: r, kinds: [%s], expression: "has(object.spec.%s)"}]}`, kind, path))})
				if len(results[0].Errors) > 0 {
					t.Fatal(results[0].Errors)
				}
				for _, value := range []any{nil, false, int64(0), "", []any{}, map[string]any{}} {
					content := object(t, fmt.Sprintf("{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: %s, metadata: {name: x, namespace: ns, uid: u1, creationTimestamp: '2026-11-21T12:00:00Z'}}", kind))
					content["spec"] = wholeSpec(t, g, kind, field)
					if err := unstructured.SetNestedField(content["spec"].(map[string]any), value, field...); err != nil {
						t.Fatal(err)
					}
					text, err := json.Marshal(content)
					if err != nil {
						t.Fatal(err)
					}
					typed, err := scheme.New(v1alpha1.GroupVersion.WithKind(kind))
					if err != nil {
						t.Fatal(err)
					}
					if err := json.Unmarshal(text, typed); err != nil {
						continue // of another type than the field
					}
					_, atRunTime := Admit(t.Context(), g, typed.(client.Object))
					atAdmission := g.Review(t.Context(), creating(t, content))
					if is, was := saying(atRunTime, "own/r"), saying(atAdmission, "own/r"); is != was {
						t.Errorf("%s: %v: at admission the rule %s, at run time it %s", path, value, was, is)
					} else {
						judged[is]++
					}
				}
			}
			t.Logf("judged alike: %v", judged)
			if judged["holds"] == 0 || judged["violated"] == 0 {
				t.Error("the values don't reach both verdicts")
			}
		})
	}
}

// pathsOf are the fields of an object and of the objects in it.
func pathsOf(schema extv1.JSONSchemaProps, prefix string) []string {
	var paths []string
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		paths = append(paths, prefix+name)
		paths = append(paths, pathsOf(schema.Properties[name], prefix+name+".")...)
	}
	return paths
}

// What changes without being judged again can't be read, whatever trick is used: the verdict would depend on when it is asked.
func TestWhatIsNotJudgedAgainCanNotBeRead(t *testing.T) {
	g := newTestGuard(t, nil)
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "own", `{rules: [{name: r, kinds: [ConditionSet],
		expression: "!has(dyn(object).status) && !has(dyn(object.metadata).finalizers) && !has(dyn(object.metadata).deletionTimestamp) && !has(dyn(object.metadata).resourceVersion)"}]}`)})
	content := conditionSet(t, goodSpec)
	content["status"] = map[string]any{"observedGeneration": int64(1)}
	maps.Copy(content["metadata"].(map[string]any), map[string]any{"finalizers": []any{"a/b"}, "resourceVersion": "7"})
	cs := stored(t, goodSpec)
	cs.Status.ObservedGeneration, cs.Finalizers, cs.ResourceVersion = 1, []string{"a/b"}, "7"
	_, atRunTime := Admit(t.Context(), g, cs)
	atAdmission := g.Review(t.Context(), creating(t, content))
	if a, b := saying(atAdmission, "own/r"), saying(atRunTime, "own/r"); a != "holds" || b != "holds" {
		t.Errorf("at admission the rule %s, at run time it %s", a, b)
	}
}

func TestAnObjectOfAnotherShapeIsRefusedAtAdmissionToo(t *testing.T) {
	content := conditionSet(t, goodSpec)
	content["spec"].(map[string]any)["effect"] = int64(3)
	v := newTestGuard(t, nil).Review(t.Context(), creating(t, content))
	if v.Allowed || !slices.Equal(v.RuleIDs(), []string{"guard/object"}) || !strings.Contains(v.Message(), "spec.effect has a number where a string belongs") {
		t.Errorf("allowed %v: %s", v.Allowed, v.Message())
	}
}

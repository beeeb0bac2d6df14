package registration

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

// selecting is a check of ManagedResources, which are healthy when spec.ok is true.
func selecting(object, more string) string {
	return one("{name: a, conditionType: X, " + more + "object: {apiVersion: resources.gardener.cloud/v1alpha1, kind: ManagedResource, " + object + "}, evaluate: {cel: {healthy: object.spec.ok, message: object.metadata.name + ' is ill'}}}")
}

func TestWhereChoosesAmongWhatIsSelected(t *testing.T) {
	const (
		well   = "{metadata: {name: well}, spec: {class: seed, ok: true}}"
		ill    = "{metadata: {name: ill}, spec: {class: seed, ok: false}}"
		others = "{metadata: {name: others}, spec: {ok: false}}"
		broken = "{metadata: {name: broken}, spec: {class: 1, ok: false}}"
	)
	const ofClass = "selector: {matchLabels: {a: b}}, where: has(object.spec.class) && object.spec.class.startsWith('s')"
	for name, c := range map[string]struct {
		object, more string
		found        []string
		status       health.Status
		detail       string
	}{
		"what is chosen is judged":             {ofClass, "", []string{well, ill}, "False", "ill is ill"},
		"what isn't chosen isn't":              {ofClass, "", []string{others, well, others}, "True", ""},
		"by the target":                        {"selector: {}, where: object.spec.class == target.metadata.name + 'orker'", "", []string{"{spec: {class: worker, ok: true}}", ill}, "True", ""},
		"by who owns it":                       {"selector: {}, where: 'object.metadata.?ownerReferences.orValue([]).exists(o, o.uid == target.metadata.?uid.orValue(\"\"))'", "", []string{ill, "{metadata: {name: owned, ownerReferences: [{uid: ''}]}, spec: {ok: true}}"}, "True", ""},
		"none is left":                         {ofClass, "", []string{others}, "False", "no ManagedResource in namespace shoot--a matches a=b and object.where"},
		"none is left, which passes":           {ofClass, "onMissing: Skip, ", []string{others}, "True", ""},
		"none is left yet":                     {ofClass, "onMissing: Progressing, ", []string{others}, "Progressing", "no ManagedResource in namespace shoot--a matches a=b and object.where"},
		"none is found":                        {ofClass, "", nil, "False", "no ManagedResource in namespace shoot--a matches a=b and object.where"},
		"none is left of all":                  {"selector: {}, where: has(object.spec.class)", "", []string{others}, "False", "no ManagedResource in namespace shoot--a matches object.where"},
		"none is found, and all are wanted":    {"selector: {}", "", nil, "False", "there is no ManagedResource in namespace shoot--a"},
		"none is found with labels":            {"selector: {matchLabels: {a: b}}", "", nil, "False", "no ManagedResource in namespace shoot--a matches a=b"},
		"it can't be told of one":              {ofClass, "onMissing: Skip, ", []string{ill, broken}, "Unknown", "evaluate object.where of ManagedResource broken: the expression compares or combines values that don't fit each other, such as a string and a number"},
		"it can't be told of one that is well": {"selector: {}, where: object.spec.class == 'seed'", "", []string{well, others}, "Unknown", "evaluate object.where of ManagedResource others: there is no class where the expression reads it; let it ask by has() or .? whether there is"},
	} {
		t.Run(name, func(t *testing.T) {
			check, target := read(t, selecting(c.object, c.more)).Checks[0], object(t, worker)
			var found []*unstructured.Unstructured
			for _, text := range c.found {
				o := object(t, text)
				o.SetGroupVersionKind(check.Kind)
				found = append(found, o)
			}
			got := evaluate(t, check, target, found, rollout)
			if got.Status != c.status || got.Detail != c.detail || got.Status == health.Progressing && got.Timeout != 5*time.Minute {
				t.Errorf("it is %s for %s: %q, not %s: %q", got.Status, got.Timeout, got.Detail, c.status, c.detail)
			}
		})
	}
}

func TestWhatACheckLooksAtIsTold(t *testing.T) {
	for name, c := range map[string]struct{ object, want string }{
		"one":                  {`name: "'m'"`, "ManagedResource shoot--a/m"},
		"all":                  {"selector: {}", "every ManagedResource in namespace shoot--a"},
		"by labels":            {"selector: {matchLabels: {a: b}}", "every ManagedResource in namespace shoot--a that matches a=b"},
		"by more":              {"selector: {}, where: has(object.spec.class)", "every ManagedResource in namespace shoot--a that matches object.where"},
		"by labels and more":   {"selector: {matchLabels: {a: b}}, where: has(object.spec.class)", "every ManagedResource in namespace shoot--a that matches a=b and object.where"},
		"of another namespace": {"selector: {}, namespace: \"'garden'\"", "every ManagedResource in namespace garden"},
		"of all namespaces":    {"selector: {}, namespace: \"target.metadata.name == 'w' ? '' : 'x'\"", "every ManagedResource"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := read(t, selecting(c.object, "")).Checks[0].at(object(t, worker), &scaled{}); got != c.want {
				t.Errorf("it looks at %q, not %q", got, c.want)
			}
		})
	}
}

// What is True and has something to say is told.
func TestANoteOfOneOfSeveralIsTold(t *testing.T) {
	r := read(t, one(`{name: a, conditionType: X, object: {apiVersion: apps/v1, kind: Deployment, selector: {}}, evaluate: {builtin: {}}}`))
	target := object(t, "{metadata: {namespace: shoot--a, name: w}}")
	const status = "status: {availableReplicas: 1, conditions: [{type: Available, status: 'True'}]}"
	found := []*unstructured.Unstructured{
		object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: runs}, "+status+"}"),
		object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: waits}, spec: {paused: true}, "+status+"}"),
	}
	got := evaluate(t, r.Checks[0], target, found, rollout)
	if v := health.Aggregate([]health.Result{got}, health.History{}, time.Time{}); v.Message != "(1/1) Health checks successful: 1) a: waits: Deployment is paused: what changes in its template isn't rolled out" {
		t.Errorf("%s %q", v.Status, v.Message)
	}
}

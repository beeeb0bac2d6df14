package registration

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

func TestPrunedObjectsHaveWhatIsRead(t *testing.T) {
	deployment := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	const whole = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, uid: u, annotations: {a: b}}, spec: {replicas: 2, paused: true, template: {spec: {hostname: h, containers: [{name: c}]}}}, data: {x: y}, status: {replicas: 2, odd: 1}}"
	check := func(evaluate string) string {
		return one(`{name: a, conditionType: X, object: {apiVersion: apps/v1, kind: Deployment, name: "'d'"}, evaluate: {` + evaluate + `}}`)
	}
	const kept = "apiVersion: apps/v1, kind: Deployment, metadata: {name: d, uid: u, annotations: {a: b}}, status: {replicas: 2, odd: 1}"
	for name, c := range map[string]struct{ spec, want string }{
		"by the check that comes":  {check("builtin: {}"), "{" + kept + ", spec: {replicas: 2, paused: true}}"},
		"by an expression":         {check("cel: {healthy: object.spec.template.spec.hostname == 'h'}"), "{" + kept + ", spec: {template: {spec: {hostname: h}}}}"},
		"of a list":                {check("cel: {healthy: 'object.spec.template.spec.containers.all(c, c.name == target.metadata.name)'}"), "{" + kept + ", spec: {template: {spec: {containers: [{name: c}]}}}}"},
		"that may not be there":    {check("cel: {healthy: 'has(object.spec.paused) && object.?spec.none.orValue(true)'}"), "{" + kept + ", spec: {paused: true}}"},
		"of a name that isn't set": {check("cel: {healthy: 'object.spec[target.metadata.name] == 1'}"), "{" + kept + ", spec: {replicas: 2, paused: true, template: {spec: {hostname: h, containers: [{name: c}]}}}}"},
		"as a whole":               {check("cel: {healthy: size(object) > 1}"), whole},
		"with a dot in its name":   {check(`cel: {healthy: "object.data['x'] == 'y' && object.spec.template.spec['host.name'] == 'h'"}`), "{" + kept + ", spec: {template: {spec: {hostname: h, containers: [{name: c}]}}}, data: {x: y}}"},
		"by what chooses":          {one(`{name: a, conditionType: X, object: {apiVersion: apps/v1, kind: Deployment, selector: {}, where: has(object.spec.paused) && object.data.x == 'y'}, evaluate: {builtin: {}}}`), "{" + kept + ", spec: {replicas: 2, paused: true}, data: {x: y}}"},
		"of metadata alone":        {check("cel: {healthy: object.metadata.name == 'd'}"), "{" + kept + "}"},
	} {
		t.Run(name, func(t *testing.T) {
			fields := Fields{}
			fields.Add(read(t, c.spec))
			got := object(t, whole)
			Prune(got, fields[deployment])
			if want := object(t, c.want); !equality.Semantic.DeepEqual(got.Object, want.Object) {
				t.Errorf("left is %v, not %v", got.Object, want.Object)
			}
		})
	}
}

func TestMoreThanOneRegistrationReads(t *testing.T) {
	first, second := Fields{}, Fields{}
	first.Add(read(t, one(`{name: a, conditionType: X, object: {apiVersion: v1, kind: ConfigMap, name: "'c'"}, evaluate: {cel: {healthy: object.data.a == ''}}}`)))
	second.Add(read(t, one(`{name: a, conditionType: X, object: {apiVersion: v1, kind: ConfigMap, name: "'c'"}, evaluate: {cel: {healthy: object.data.b == ''}}}`)))
	both := first.Union(second)
	if lacks := both.Missing(first); len(lacks) > 0 {
		t.Errorf("of the first it lacks %v", lacks)
	}
	if lacks := both.Missing(second); len(lacks) > 0 {
		t.Errorf("of the second it lacks %v", lacks)
	}
	if lacks := first.Missing(second); len(lacks) != 1 {
		t.Errorf("the first lacks %v, though sets of fields never change", lacks)
	}
}

// fieldNames of random objects. Some can't be written with a dot.
var fieldNames = []string{"a", "b", "c.d", "e/f", "0"}

func values(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(rapid.Just[any](int64(1)), rapid.Just[any]("x"), rapid.Just[any](true))
	if depth == 0 {
		return leaf
	}
	below := values(depth - 1)
	return rapid.OneOf(leaf, rapid.Map(rapid.MapOfN(rapid.SampledFrom(fieldNames), below, 0, 4), func(m map[string]any) any { return m }),
		rapid.Map(rapid.SliceOfN(below, 0, 2), func(s []any) any { return s }))
}

// route is how an expression reaches something in an object, which has fields as its steps.
type route struct {
	text  string
	steps []string
}

// routes are random. Half of them have a value whatever there is.
func routes(t *rapid.T) route {
	part := rapid.SampledFrom([]string{"spec", "status", "data"}).Draw(t, "part")
	depth, sure := rapid.IntRange(0, 3).Draw(t, "depth"), rapid.Bool().Draw(t, "sure")
	w := route{rapid.SampledFrom([]string{"object." + part, "object." + part, "object['" + part + "']", "object", "target"}).Draw(t, "from"), []string{part}}
	if sure {
		w.text = "object.?" + part
	}
	for range depth {
		name := rapid.SampledFrom(fieldNames).Draw(t, "name")
		dot := !strings.ContainsAny(name, "./0") && rapid.Bool().Draw(t, "dot")
		w.steps = append(w.steps, name)
		switch {
		case sure && dot:
			w.text += ".?" + name
		case sure:
			w.text += "[?'" + name + "']"
		case dot:
			w.text += "." + name
		default:
			w.text += "[" + rapid.SampledFrom([]string{"'" + name + "'", "'" + name + "'", "0", "target.metadata.name"}).Draw(t, "index") + "]"
		}
	}
	if sure {
		w.text += ".orValue(0)"
	}
	return w
}

// plant puts something where a route leads, unless something else is there.
func (w route) plant(t *rapid.T, object map[string]any) {
	if rapid.IntRange(0, 3).Draw(t, "plant") > 0 {
		_ = unstructured.SetNestedField(object, values(1).Draw(t, "planted"), w.steps...)
	}
}

func TestExpressionsSayOfWhatIsKeptWhatTheySayOfTheWhole(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gadget"}
	judged := 0
	rapid.Check(t, func(rt *rapid.T) {
		form := rapid.SampledFrom([]string{"P == Q", "has(P.a) && P.a != Q", "size(P) > 0", "P.exists(k, k == Q)", "'a' in P", "(Q == 1 ? P : object) == Q", "cel.bind(v, P, v.a == Q)", "P.all(k, P[k] == Q)"}).Draw(rt, "form")
		p, q := routes(rt), routes(rt)
		expression := strings.NewReplacer("P", p.text, "Q", q.text).Replace(form)
		check := rapid.SampledFrom([]string{`name: "'g'"}, evaluate: {cel: {healthy: "E"}}`, `selector: {}, where: "E"}, evaluate: {cel: {healthy: object.metadata.name == 'g'}}`}).Draw(rt, "check")
		r, problems := Read(registrationOf(t, one(`{name: a, conditionType: X, object: {apiVersion: example.org/v1, kind: Gadget, `+strings.ReplaceAll(check, "E", expression)+`}`)))
		if len(problems) > 0 {
			rt.Skip(problems)
		}
		whole := map[string]any{"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": map[string]any{"name": "g"}}
		for _, part := range []string{"spec", "status", "data"} {
			if rapid.Bool().Draw(rt, part+" is there") {
				whole[part] = values(3).Draw(rt, part)
			}
		}
		p.plant(rt, whole)
		q.plant(rt, whole)
		fields := Fields{}
		fields.Add(r)
		target := object(t, worker)
		target.SetName(rapid.SampledFrom(fieldNames).Draw(rt, "target"))
		keptOf := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(whole)}
		Prune(keptOf, fields[kind])
		want := evaluate(rt, r.Checks[0], target, []*unstructured.Unstructured{{Object: whole}}, rollout)
		got := evaluate(rt, r.Checks[0], target, []*unstructured.Unstructured{keptOf}, rollout)
		if want.Status != health.Unknown {
			judged++
		}
		if got.Status != want.Status {
			rt.Fatalf("%s: %s (%s) of the whole %v, %s (%s) of %v, since %v is read", expression, want.Status, want.Detail, whole, got.Status, got.Detail, keptOf.Object, fields[kind])
		}
	})
	t.Logf("%d expressions had a value", judged)
}

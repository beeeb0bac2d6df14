package registration

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

func registrationOf(t *testing.T, spec string) *v1alpha1.HealthCheckRegistration {
	t.Helper()
	hcr := &v1alpha1.HealthCheckRegistration{}
	if err := yaml.UnmarshalStrict([]byte(spec), &hcr.Spec); err != nil {
		t.Fatal(err)
	}
	return hcr
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &u.Object); err != nil { // whole numbers are int64, as from the API server
		t.Fatal(err)
	}
	return u
}

func read(t *testing.T, spec string) *Registration {
	t.Helper()
	r, problems := Read(registrationOf(t, spec))
	if len(problems) > 0 {
		t.Fatalf("problems: %q", problems)
	}
	return r
}

const worker = `{apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, metadata: {name: w, namespace: shoot--a, labels: {a: b}}, spec: {type: aws, pools: [{minimum: 1}, {minimum: 2}]}}`

func one(check string) string {
	return "target: {apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, type: aws}\nchecks: [" + check + "]"
}

func TestDefaults(t *testing.T) {
	r := read(t, one("{name: a, conditionType: X, object: {apiVersion: apps/v1, kind: Deployment, name: \"'d'\"}, evaluate: {builtin: {}}}"))
	if r.SyncPeriod != 30*time.Second || r.CheckTimeout != 10*time.Second || r.Checks[0].Timeout != 5*time.Minute || r.Checks[0].OnMissing != health.MissingFails {
		t.Errorf("defaults are %s, %s, %s, %s", r.SyncPeriod, r.CheckTimeout, r.Checks[0].Timeout, r.Checks[0].OnMissing)
	}
	short := read(t, "syncPeriod: 6s\n"+one("{name: a, conditionType: X, object: {apiVersion: apps/v1, kind: Deployment, name: \"'d'\"}, evaluate: {builtin: {}}}"))
	if short.CheckTimeout != 3*time.Second {
		t.Errorf("the check's timeout is %s, not half of a period of 6s", short.CheckTimeout)
	}
}

func TestProblems(t *testing.T) {
	const deployment = `{apiVersion: apps/v1, kind: Deployment, name: "'d'"}`
	for name, c := range map[string]struct{ spec, want string }{
		"syntax":             {one(`{name: a, conditionType: X, object: {apiVersion: apps/v1, kind: Deployment, name: "'d"}, evaluate: {builtin: {}}}`), "check a: object.name: Syntax error"},
		"not a string":       {one(`{name: a, conditionType: X, object: {apiVersion: apps/v1, kind: Deployment, name: "1"}, evaluate: {builtin: {}}}`), "check a: object.name: it gives int, not string"},
		"not a bool":         {one(`{name: a, conditionType: X, when: "size(target.spec.pools)", object: ` + deployment + `, evaluate: {builtin: {}}}`), "check a: when: it gives int, not bool"},
		"constant":           {one(`{name: a, conditionType: X, when: "1 > 0", object: ` + deployment + `, evaluate: {builtin: {}}}`), "check a: when: it is the same for every object"},
		"own conditions":     {one(`{name: a, conditionType: X, when: "target.status.conditions.exists(c, c.type == 'X')", object: ` + deployment + `, evaluate: {builtin: {}}}`), "reads target.status.conditions"},
		"by another way":     {one(`{name: a, conditionType: X, when: "size(target['status'].?conditions.orValue([])) > 0", object: ` + deployment + `, evaluate: {builtin: {}}}`), "reads target.status.conditions"},
		"out of the status":  {one(`{name: a, conditionType: X, when: "target.status.exists(k, k == 'conditions')", object: ` + deployment + `, evaluate: {builtin: {}}}`), "reads target.status.conditions"},
		"in disguise":        {one(`{name: a, conditionType: X, when: "[target].exists(t, t.status.conditions.size() > 0)", object: ` + deployment + `, evaluate: {builtin: {}}}`), "reads target.status.conditions"},
		"by a made-up name":  {one(`{name: a, conditionType: X, when: "target.status['cond' + 'itions'].size() > 0", object: ` + deployment + `, evaluate: {builtin: {}}}`), "reads target.status.conditions"},
		"costly":             {one(`{name: a, conditionType: X, when: "target.spec.a.all(x, target.spec.b.all(y, target.spec.c.all(z, target.spec.d.all(w, x + y == z + w))))", object: ` + deployment + `, evaluate: {builtin: {}}}`), "with lists of 30 items, and 1000000 is the most"},
		"object isn't known": {one(`{name: a, conditionType: X, when: "object.spec.x", object: ` + deployment + `, evaluate: {builtin: {}}}`), "undeclared reference to 'object'; it may read target"},
		"it ends too early":  {one(`{name: a, conditionType: X, when: "target.spec.x ==", object: ` + deployment + `, evaluate: {builtin: {}}}`), "when: Syntax error: it ends too early"},
		"no criteria":        {one(`{name: a, conditionType: X, object: {apiVersion: v1, kind: ConfigMap, name: "'d'"}, evaluate: {builtin: {}}}`), "check a: there is no built-in check for ConfigMap; write status or cel"},
		"regular expression": {one(`{name: a, conditionType: X, object: ` + deployment + `, evaluate: {builtin: {}}, errorCodes: [{match: "(", code: ERR}]}`), "check a: errorCodes: error parsing regexp"},
		"apiVersion":         {"target: {apiVersion: a/b/c, kind: Worker}\nchecks: [{name: a, conditionType: X, object: " + deployment + ", evaluate: {builtin: {}}}]", "target.apiVersion: "},
		"where, syntax":      {selecting("selector: {}, where: 'object.spec.class =='", ""), "check a: object.where: Syntax error"},
		"where, not a bool":  {selecting("selector: {}, where: 'object.spec.class + string(1)'", ""), "check a: object.where: it gives string, not bool"},
		"where, constant":    {selecting("selector: {}, where: '1 > 0'", ""), "check a: object.where: it is the same for every object"},
		"where, conditions":  {selecting("selector: {}, where: target.status.conditions.size() > 0 && has(object.spec.class)", ""), "check a: object.where: it reads target.status.conditions"},
		"where, costly":      {selecting("selector: {}, where: 'object.spec.a.all(x, object.spec.b.all(y, object.spec.c.all(z, object.spec.d.all(w, x + y == z + w))))'", ""), "check a: object.where: it may cost"},
		"suspendWhen":        {"suspendWhen: target.spec\n" + one(`{name: a, conditionType: X, object: `+deployment+`, evaluate: {cel: {healthy: "object.x +"}}}`), "check a: cel.healthy: Syntax error"},
	} {
		t.Run(name, func(t *testing.T) {
			problems := TermsOf(registrationOf(t, c.spec), nil, true).Problems
			if len(problems) != 1 || !strings.Contains(problems[0], c.want) {
				t.Errorf("problems are %q, not one with %q", problems, c.want)
			}
		})
	}
}

// suspendedWhen is a registration with this expression.
func suspendedWhen(t *testing.T, when string) *v1alpha1.HealthCheckRegistration {
	return registrationOf(t, "suspendWhen: \""+when+"\"\n"+one("{name: a, conditionType: X, object: {apiVersion: apps/v1, kind: Deployment, name: \"'d'\"}, evaluate: {builtin: {}}}"))
}

func TestANewExpressionMay(t *testing.T) {
	for name, when := range map[string]string{
		"ask for a status":        "has(target.status) && has(target.status.phase)",
		"ask for it by an option": "target.?status.?phase.orValue('') == 'Up'",
		"ask for it by a name":    "has(target.status) && target.status['phase'] == 'Up'",
		"loop in a loop":          "target.spec.a.all(x, target.spec.b.exists(y, x.name == y.name && y.zone.startsWith(x.zone)))",
		"loop in two loops":       "target.spec.pools.all(p, p.zones.all(z, target.spec.nodes.filter(n, n.pool == p.name && n.zone == z && n.ready).size() >= p.minimum))",
		"loop over expressions":   "target.spec.pools.all(p, target.spec.nodes.exists(n, n.name.matches('^' + p.name + '-.*$')))",
	} {
		t.Run(name, func(t *testing.T) {
			if problems := TermsOf(suspendedWhen(t, when), nil, true).Problems; len(problems) != 0 {
				t.Errorf("problems are %q", problems)
			}
		})
	}
}

func TestOnlyANewExpressionIsRefused(t *testing.T) {
	for name, when := range map[string]string{
		"that may cost much":         "target.spec.a.all(x, target.spec.b.all(y, target.spec.c.all(z, target.spec.d.all(w, x + y == z + w))))",
		"that reads all of a status": "has(target.status) && target.status.size() > 0",
		"over the target in a list":  "[target].exists(t, t.spec.paused)",
	} {
		t.Run(name, func(t *testing.T) {
			stored, changed := suspendedWhen(t, when), suspendedWhen(t, when)
			if problems := TermsOf(stored, nil, false).Problems; len(problems) != 0 {
				t.Errorf("where it is stored it can't be read: %q", problems)
			}
			changed.Spec.SyncPeriod, changed.Spec.Mode = "1m", v1alpha1.Observe
			if problems := TermsOf(changed, stored, true).Problems; len(problems) != 0 {
				t.Errorf("an update that leaves it alone is refused: %q", problems)
			}
			for what, problems := range map[string][]string{
				"a creation":      TermsOf(stored, nil, true).Problems,
				"an update to it": TermsOf(stored, suspendedWhen(t, "target.spec.paused"), true).Problems,
				"an update of it": TermsOf(suspendedWhen(t, when+" && target.spec.paused"), stored, true).Problems,
			} {
				if len(problems) != 1 {
					t.Errorf("%s isn't refused: %q", what, problems)
				}
			}
		})
	}
}

func TestSelects(t *testing.T) {
	target := object(t, worker)
	for name, c := range map[string]struct {
		of   string
		want bool
	}{
		"its type":         {"type: aws", true},
		"another type":     {"type: azure", false},
		"any type":         {"", true},
		"another path":     {"type: shoot--a, typePath: metadata.namespace", true},
		"labels":           {"selector: {matchLabels: {a: b}}", true},
		"other labels":     {"selector: {matchLabels: {a: c}}", false},
		"namespace":        {"namespaceSelector: {matchLabels: {in: m}}", true},
		"another of these": {"namespaceSelector: {matchLabels: {in: x}}", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := read(t, "target: {apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, "+c.of+"}\nchecks: [{name: a, conditionType: X, object: {apiVersion: v1, kind: Pod, name: \"'p'\"}, evaluate: {builtin: {}}}]")
			if got := r.Selects(target, labels.Set{"in": "m"}); got != c.want {
				t.Errorf("selects is %t", got)
			}
		})
	}
}

func TestRef(t *testing.T) {
	target := object(t, worker)
	for name, c := range map[string]struct{ object, want string }{
		"beside the target": {`{apiVersion: apps/v1, kind: Deployment, name: "'d-' + target.metadata.name"}`, "shoot--a/d-w"},
		"elsewhere":         {`{apiVersion: apps/v1, kind: Deployment, name: "'d'", namespace: "'garden'"}`, "garden/d"},
	} {
		t.Run(name, func(t *testing.T) {
			r := read(t, one("{name: a, conditionType: X, object: "+c.object+", evaluate: {builtin: {}}}"))
			ref, err := r.Checks[0].Ref(target)
			if err != nil || ref.Key().String() != c.want {
				t.Errorf("the object is %s, %v, not %s", ref.Key(), err, c.want)
			}
		})
	}
	r := read(t, one("{name: a, conditionType: X, object: {apiVersion: apps/v1, kind: Deployment, name: target.spec.nothing}, evaluate: {builtin: {}}}"))
	if _, err := r.Checks[0].Ref(target); err == nil {
		t.Error("a name that the target lacks is no error")
	}
}

func TestJudge(t *testing.T) {
	target := object(t, worker)
	const cel = `{name: a, conditionType: X, object: {apiVersion: e.org/v1, kind: Thing, name: "'t'"}, errorCodes: [{match: broke, code: ERR_BROKEN}], evaluate: {cel: {healthy: object.status.phase == 'Up', progressing: object.status.phase == 'Starting', failed: object.status.phase == 'Broken', message: "'it broke for ' + target.metadata.name"}}}`
	r := read(t, one(cel))
	thing := func(phase string) *unstructured.Unstructured {
		return object(t, "{apiVersion: e.org/v1, kind: Thing, metadata: {name: t, namespace: shoot--a}, status: {phase: "+phase+"}}")
	}
	for phase, want := range map[string]health.Status{"Up": health.True, "Starting": health.Progressing, "Broken": health.False, "Other": health.False} {
		got := evaluate(t, r.Checks[0], target, []*unstructured.Unstructured{thing(phase)}, rollout)
		if got.Status != want {
			t.Errorf("%s is %s, not %s", phase, got.Status, want)
		}
		if want == health.False && (got.Detail != "it broke for w" || len(got.Codes) != 1 || got.Codes[0] != "ERR_BROKEN") {
			t.Errorf("%s is told as %q with %q", phase, got.Detail, got.Codes)
		}
	}
	without := object(t, "{apiVersion: e.org/v1, kind: Thing, metadata: {name: t}}")
	if got := evaluate(t, r.Checks[0], target, []*unstructured.Unstructured{without}, rollout); got.Status != health.Unknown {
		t.Errorf("an expression that fails gives %s", got.Status)
	}
	if got := evaluate(t, r.Checks[0], target, []*unstructured.Unstructured{thing("Up"), thing("Starting"), thing("Broken"), thing("Up")}, rollout); got.Status != health.False {
		t.Errorf("the worst of several is %s", got.Status)
	}
	if got := evaluate(t, r.Checks[0], target, nil, rollout); got.Status != health.False || got.Detail != "Thing shoot--a/t doesn't exist" {
		t.Errorf("what is missing is %s: %s", got.Status, got.Detail)
	}
}

func TestWhen(t *testing.T) {
	r := read(t, "shootKubeconfig: {secretName: s}\n"+one(`{name: a, conditionType: X, when: size(target.spec.pools) > 0, evaluate: {nodes: {min: 1}}}`))
	c := r.Checks[0]
	if asks, err := c.Applies(object(t, worker)); !asks || err != nil {
		t.Errorf("a Worker with pools is asked: %t, %v", asks, err)
	}
	if asks, err := c.Applies(object(t, "{spec: {pools: []}}")); asks || err != nil {
		t.Errorf("a workerless one is asked: %t, %v", asks, err)
	}
	if _, err := c.Applies(object(t, "{spec: {}}")); err == nil {
		t.Error("without pools there is no error")
	}
}

func TestSuspended(t *testing.T) {
	r := read(t, "suspendWhen: target.spec.hibernated\n"+one("{name: a, conditionType: X, object: {apiVersion: v1, kind: Pod, name: \"'p'\"}, evaluate: {builtin: {}}}"))
	for text, want := range map[string]bool{"{spec: {hibernated: true}}": true, "{spec: {hibernated: false}}": false} {
		if got, err := r.Suspended(object(t, text)); got != want || err != nil {
			t.Errorf("%s is suspended: %t, %v", text, got, err)
		}
	}
	if got, err := r.Suspended(object(t, "{spec: {}}")); !got || err == nil {
		t.Errorf("one that doesn't tell is suspended: %t, %v", got, err)
	}
}

func TestWhatIsHibernatedIsSuspendedByAnAnnotation(t *testing.T) {
	r := read(t, "suspendWhen: target.metadata.?annotations[?'example.com/hibernated'].hasValue()\n"+one("{name: a, conditionType: X, object: {apiVersion: v1, kind: Pod, name: \"'p'\"}, evaluate: {builtin: {}}}"))
	for text, want := range map[string]bool{
		"{metadata: {name: w}}":                                                false,
		"{metadata: {name: w, annotations: {a: b}}}":                           false,
		"{metadata: {name: w, annotations: {example.com/hibernated: 'true'}}}": true,
	} {
		if got, err := r.Suspended(object(t, text)); got != want || err != nil {
			t.Errorf("%s is suspended: %t, %v", text, got, err)
		}
	}
}

func TestTargetsAreCountedByTheirNamespaces(t *testing.T) {
	r := read(t, "target: {apiVersion: e.org/v1, kind: Thing, type: a, namespaceSelector: {matchLabels: {env: test}}}\n"+
		"checks: [{name: a, conditionType: X, object: {apiVersion: v1, kind: ConfigMap, name: \"'c'\"}, evaluate: {status: {}}}]")
	var objects []*unstructured.Unstructured
	for range 97 {
		objects = append(objects, object(t, "{metadata: {namespace: prod}, spec: {type: a}}"))
	}
	for range 3 {
		objects = append(objects, object(t, "{metadata: {namespace: test}, spec: {type: a}}"), object(t, "{metadata: {namespace: test}, spec: {type: b}}"),
			object(t, "{metadata: {namespace: test, deletionTimestamp: '2026-11-22T05:00:00Z'}, spec: {type: a}}"))
	}
	labelsOf := func(namespace string) labels.Set { return labels.Set{"env": namespace} }
	if n := len(r.SelectTargets(objects, labelsOf)); n != 3 {
		t.Errorf("%d targets are counted, and 3 are selected", n)
	}
	all := read(t, one("{name: a, conditionType: X, object: {apiVersion: v1, kind: ConfigMap, name: \"'c'\"}, evaluate: {status: {}}}"))
	asked := func(string) labels.Set {
		t.Error("the labels of a namespace are asked for that nothing selects by")
		return nil
	}
	if n := len(all.SelectTargets([]*unstructured.Unstructured{object(t, "{metadata: {namespace: n}, spec: {type: aws}}")}, asked)); n != 1 {
		t.Errorf("%d targets are counted, and 1 is selected", n)
	}
}

// oddVersions are read by the API machinery, and would pass for another group than they are of.
var oddVersions = []string{"/v1", "//v1", "v1/", "/", "apps/", "Apps/v1", "apps/V1", "apps/v1 ", " v1", "apps /v1", "a..b/v1", "apps/v1/x", "apps/1", "v1\n", "apps-/v1", ""}

func TestOddVersionsAreProblems(t *testing.T) {
	for _, odd := range oddVersions {
		for _, spec := range []v1alpha1.HealthCheckRegistrationSpec{
			{Target: v1alpha1.HealthCheckTarget{APIVersion: odd, Kind: "Node"}},
			{Target: v1alpha1.HealthCheckTarget{APIVersion: "e.org/v1", Kind: "Thing"}, Checks: []v1alpha1.HealthCheck{{
				Name: "c", Object: &v1alpha1.HealthCheckObject{APIVersion: odd, Kind: "Secret", Name: "'s'"}, Evaluate: v1alpha1.HealthCheckEvaluator{Status: &v1alpha1.StatusCheck{}},
			}}},
		} {
			if _, problems := Read(&v1alpha1.HealthCheckRegistration{Spec: spec}); len(problems) == 0 {
				t.Errorf("%q is read: %+v", odd, spec)
			}
		}
	}
}

func FuzzVersions(f *testing.F) {
	for _, seed := range append(oddVersions, "v1", "apps/v1", "extensions.gardener.cloud/v1alpha1") {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, apiVersion string) {
		r := reader{}
		kind := r.kind("target", apiVersion, "Secret")
		if len(r.problems) > 0 {
			return
		}
		if back := kind.GroupVersion().String(); back != apiVersion {
			t.Errorf("%q is read as %q", apiVersion, back)
		}
		if kind.Version == "" || strings.ContainsAny(apiVersion, " \t\n") || strings.HasPrefix(apiVersion, "/") {
			t.Errorf("%q is read as %+v", apiVersion, kind)
		}
	})
}

// evaluate makes a check of these objects.
func evaluate(t require, check *Check, target *unstructured.Unstructured, found []*unstructured.Unstructured, now time.Time) health.Result {
	result, err := check.Result(target, &scaled{deployments: found}, now)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

type require interface{ Fatal(args ...any) }

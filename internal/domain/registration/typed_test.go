package registration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/runtime/schema"
	decl "k8s.io/apiserver/pkg/cel"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"
)

// typeOfText makes a type of a schema in YAML.
func typeOfText(t *testing.T, kind schema.GroupVersionKind, text string) *decl.DeclType {
	t.Helper()
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s := &spec.Schema{}
	if err := json.Unmarshal(content, s); err != nil {
		t.Fatal(err)
	}
	return TypeOf(kind, s)
}

var (
	workers     = schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Worker"}
	deployments = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
)

const (
	workerSchema = `
type: object
properties:
  metadata: {type: object}
  spec:
    type: object
    properties:
      type: {type: string}
      weight: {type: number}
      providerConfig: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {zone: {type: string}}}
      template: {type: object, x-kubernetes-embedded-resource: true, properties: {kind: {type: string}}}
      raw: {type: object}
      pools: {type: array, items: {type: object, properties: {name: {type: string}, minimum: {type: integer}, dash-ed: {type: string}}}}`
	deploymentSchema = `
type: object
properties:
  spec:
    type: object
    properties:
      replicas: {type: integer, format: int32}
      paused: {type: boolean}
      maxSurge: {type: string, format: int-or-string}
      maxUnavailable: {x-kubernetes-int-or-string: true}
      limits: {type: object, additionalProperties: {oneOf: [{type: string}, {type: number}]}}
      selector: {type: object, additionalProperties: {type: string}}
  status:
    type: object
    properties:
      readyReplicas: {type: integer}
      phase: {type: string, nullable: true}
      at: {type: string, format: date-time}
      data: {type: string, format: byte}
      conditions: {type: array, items: {type: object, properties: {type: {type: string}, status: {type: string}}}}`
)

// checking is a check of a Deployment; where says where the expression stands.
func checking(where, expression string) string {
	text, _ := json.Marshal(expression)
	e := string(text)
	of := map[string]string{
		"healthy":     "object: {apiVersion: apps/v1, kind: Deployment, name: \"'d'\"}, evaluate: {cel: {healthy: " + e + "}}",
		"failed":      "object: {apiVersion: apps/v1, kind: Deployment, name: \"'d'\"}, evaluate: {cel: {healthy: object.a == 1, failed: " + e + "}}",
		"progressing": "object: {apiVersion: apps/v1, kind: Deployment, name: \"'d'\"}, evaluate: {cel: {healthy: object.a == 1, progressing: " + e + "}}",
		"message":     "object: {apiVersion: apps/v1, kind: Deployment, name: \"'d'\"}, evaluate: {cel: {healthy: object.a == 1, message: " + e + "}}",
		"when":        "when: " + e + ", object: {apiVersion: apps/v1, kind: Deployment, name: \"'d'\"}, evaluate: {builtin: {}}",
		"name":        "object: {apiVersion: apps/v1, kind: Deployment, name: " + e + "}, evaluate: {builtin: {}}",
		"namespace":   "object: {apiVersion: apps/v1, kind: Deployment, name: \"'d'\", namespace: " + e + "}, evaluate: {builtin: {}}",
		"where":       "object: {apiVersion: apps/v1, kind: Deployment, selector: {}, where: " + e + "}, evaluate: {builtin: {}}",
		"shoot":       "cluster: Shoot, object: {apiVersion: apps/v1, kind: Deployment, name: \"'d'\"}, evaluate: {cel: {healthy: " + e + "}}",
		"min":         "evaluate: {nodes: {min: " + e + "}}",
	}[where]
	return one("{name: c, conditionType: X, " + of + "}")
}

func TestTypesTellWhatCanOnlyFail(t *testing.T) {
	known := map[schema.GroupVersionKind]*decl.DeclType{workers: typeOfText(t, workers, workerSchema), deployments: typeOfText(t, deployments, deploymentSchema)}
	for _, c := range []struct {
		where, expression string
		failure           string
		undefined         []string
	}{
		{"healthy", "object.status.readyReplicas == object.spec.replicas", "", nil},
		{"healthy", "object.spec.replicas == '3'", "== can't be applied to (int, string)", nil},
		{"healthy", "object.spec.replicas == 3.0 && object.spec.replicas > 2.5", "", nil},
		{"healthy", "object.spec.replicas * 0.5 > 1.0", "* can't be applied to (int, double)", nil},
		{"healthy", "object.status.phase + 1 == 2", "+ can't be applied to (string, int)", nil},
		{"healthy", "object.status.phase", "it gives string, not bool", nil},
		{"healthy", "object.spec.paused == true || object.spec.paused == 'true'", "", nil}, // as in another version
		{"healthy", "object.status.phase == null || object.spec.paused", "", nil},
		{"healthy", "object.status.phase && object.spec.paused", "a string is where a bool must be", nil},
		{"healthy", "!object.status.conditions", "! can't be applied to", nil},
		{"healthy", "object.status.conditions > 0", "> can't be applied to", nil},
		{"healthy", "object.status.conditions == 'True'", "== can't be applied to", nil},
		{"healthy", "object.status.conditions + 'True' == 'x'", "+ can't be applied to", nil},
		{"healthy", "object.status.phase.text == 'a'", "a string has no fields", nil},
		{"healthy", "object.status.at < timestamp('2026-01-01T00:00:00Z')", "< can't be applied to (string, timestamp)", nil},
		{"healthy", "timestamp(object.status.at) < timestamp('2026-01-01T00:00:00Z') && object.status.at.startsWith('2')", "", nil},
		{"healthy", "object.status.data.startsWith('e')", "", nil},
		{"healthy", "object.status.phase.exists(c, c == 'a')", "a string has no entries to go over", nil},
		{"healthy", "'a' in object.status.phase", "in can't be applied to (string, string)", nil},
		{"healthy", "size(object.spec.replicas) > 0", "size can't be applied to (int)", nil},
		{"healthy", "size(object.spec) > 0 && 'paused' in object.spec && object.spec['paused'] && object.spec.all(k, k != 'x')", "", nil},
		{"healthy", "object.status == object.spec || object.status.conditions + [1] != []", "", nil},
		{"healthy", "[object.status.phase, object.spec.replicas].exists(x, x == 3)", "", nil},
		{"healthy", "string(object.spec.paused ? object.spec.replicas : 'none') == '3'", "", nil},
		{"healthy", "string(object.?status.readyReplicas.orValue('none')) == '3'", "", nil},
		{"healthy", "object.spec.maxSurge == '25%' || object.spec.maxSurge == 1 || object.spec.maxUnavailable + 1 > 2", "", nil},
		{"healthy", "quantity(object.spec.limits.cpu).isGreaterThan(quantity('1'))", "", nil},
		{"healthy", "object.status.conditions.exists(c, c.type == 'Available' && c.status)", "a string is where a bool must be", nil},
		{"healthy", "object.status.conditions.exists(c, c.typ == 'Available')", "", []string{"apps/v1 Deployment.status.conditions[] has no field typ"}},
		{"healthy", "has(object.status.ready) && object.status.ready > 3 || object.status.?ready.orValue(1) == 3", "", []string{"apps/v1 Deployment.status has no field ready"}},
		{"healthy", "object.?status.?other.orValue('') == '' && object.status.phase > 3", "> can't be applied to (string, int)", []string{"apps/v1 Deployment.status has no field other"}},
		{"healthy", "object.data.x == 'a'", "", []string{"apps/v1 Deployment has no field data"}},
		{"healthy", "object.metadata.labels['x'] == 'a' && object.metadata.labels.y == 'a' && object.spec.selector.z == ''", "", nil},
		{"healthy", "object.metadata.annotation.x == 'a'", "", []string{"ObjectMeta has no field annotation"}},
		{"healthy", "object.metadata.name != target.metadata.name && object.kind != target.kind", "", nil},
		{"healthy", "object.status.phase == target.spec.type && target.spec.weight > 1.5 && target.spec.weight == 2", "", nil},
		{"healthy", "object.status.readyReplicas == target.spec.type", "== can't be applied to (int, string)", nil},
		{"healthy", "target.spec.providerConfig.a.b + 1 == 2 && target.spec.providerConfig.zone == 1 && target.spec.template.spec.x == 1 && target.spec.raw.y", "", nil},
		{"healthy", "target.spec.pools[0]['dash-ed'] == 'a'", "", nil},
		{"shoot", "object.status.anything + 1 == object.status.phase", "", nil},
		{"shoot", "object.status.x == target.spec.types", "", []string{"extensions.gardener.cloud/v1alpha1 Worker.spec has no field types"}},
		{"failed", "object.status.readyReplicas < 'a'", "< can't be applied to (int, string)", nil},
		{"progressing", "object.spec.replicas", "it gives int, not bool", nil},
		{"message", "object.spec.replicas", "it gives int, not string", nil},
		{"message", "'ready: ' + object.status.readyReplicas", "+ can't be applied to (string, int)", nil},
		{"message", "object.spec.maxSurge", "", nil},
		{"when", "size(target.spec.pools) > 0", "", nil},
		{"when", "target.spec.pools > 0", "> can't be applied to", nil},
		{"when", "target.spec.pools.all(p, p.minimum)", "a int is where a bool must be", nil},
		{"name", "target.spec.pools", "it gives list(extensions.gardener.cloud/v1alpha1 Worker.spec.pools[]), not string", nil},
		{"name", "target.spec.type + '-' + target.spec.pools[0].minimum", "+ can't be applied to (string, int)", nil},
		{"namespace", "target.metadata.namespaces", "", []string{"ObjectMeta has no field namespaces"}},
		{"where", "object.metadata.?ownerReferences.orValue([]).exists(o, o.uid == target.metadata.uid)", "", nil},
		{"where", "object.spec.replicas.contains('x')", "contains can't be applied to int.(string)", nil},
		{"min", "target.spec.pools.map(p, p.minimum).sum()", "", nil},
		{"min", "target.spec.pools.map(p, p.name)[0]", "it gives string, not int", nil},
		{"min", "target.spec.weight", "", nil},
	} {
		t.Run(c.where+" "+c.expression, func(t *testing.T) {
			r := read(t, checking(c.where, c.expression))
			failures, undefined, err := r.TypeErrors(known)
			if err != nil {
				t.Fatal(err)
			}
			for i := range undefined {
				undefined[i] = undefined[i][strings.LastIndex(undefined[i], ": ")+2:]
			}
			undefined = slices.DeleteFunc(undefined, func(u string) bool { return u == "apps/v1 Deployment has no field a" })
			if got := strings.Join(failures, "; "); (c.failure == "") != (got == "") || !strings.Contains(got, c.failure) || !slices.Equal(undefined, c.undefined) {
				t.Errorf("it fails by %q, with %q undefined; want %q and %q", got, undefined, c.failure, c.undefined)
			}
			if of := r.expressions; len(c.undefined) == 0 && c.where != "shoot" {
				i := slices.IndexFunc(of, func(e *Expression) bool { return e.text == c.expression })
				if can := canHold(t, of[i]); can == (len(failures) > 0) {
					t.Errorf("types say %q, and when it runs it can hold: %v", failures, can)
				}
			}
		})
	}
}

// canHold evaluates an expression on objects that are as their schemas say, and of which it holds if it can.
func canHold(t *testing.T, e *Expression) bool {
	t.Helper()
	value, err := e.eval(object(t, `
kind: Worker
metadata: {name: w, namespace: a, uid: u, labels: {x: a}}
spec:
  type: a
  weight: 2
  providerConfig: {zone: 1, a: {b: 1}}
  template: {spec: {x: 1}}
  raw: {"y": true}
  pools: [{name: p, minimum: 1, dash-ed: a}]`), object(t, `
kind: Deployment
metadata: {name: d, ownerReferences: [{uid: u}], labels: {x: a, "y": a}}
spec: {replicas: 3, paused: true, maxSurge: 25%, maxUnavailable: 1, limits: {cpu: "2"}, selector: {z: ""}}
status: {readyReplicas: 3, phase: a, at: "2025-12-31T00:00:00Z", data: eA==, conditions: [{type: Available, status: "True"}]}`))
	return err == nil && value != false && types.DefaultTypeAdapter.NativeToValue(value).Type() == e.result
}

func TestWhatFailsForObjectsOfAnyKindIsRefusedWhenItIsNew(t *testing.T) {
	for expression, want := range map[string]string{
		"object.metadata.name":              "it gives string, not bool",
		"object.metadata.generation == 'a'": "== can't be applied to (int, string); convert one of them, as by string() or int(), or write another",
		"object.metadata.creationTimestamp < timestamp('2026-01-01T00:00:00Z')":        "< can't be applied to (string, timestamp); convert one of them, as by string() or int(), or write another",
		"target.metadata.labels['a'] && object.spec.ok":                                "a string is where a bool must be",
		"object.metadata.nothing == 1 || object.spec.x + 1 == 2 || object.data.a == 1": "",
	} {
		hcr := registrationOf(t, checking("healthy", expression))
		if want != "" {
			want = "check c: cel.healthy: " + want
		}
		if got := strings.Join(TermsOf(hcr, nil, true).Problems, "; "); got != want {
			t.Errorf("%s: %q, not %q", expression, got, want)
		}
		if got := append(TermsOf(hcr, nil, false).Problems, TermsOf(hcr, hcr, true).Problems...); len(got) > 0 {
			t.Errorf("%s is stored, and stays readable: %q", expression, got)
		}
		if again, _, err := read(t, checking("healthy", expression)).TypeErrors(nil); err != nil || len(again) > 0 {
			t.Errorf("%s: it is said twice: %q, %v", expression, again, err)
		}
	}
}

func TestOnlyKindsOfWhichMoreIsReadNeedTypes(t *testing.T) {
	for _, c := range []struct {
		where, expression string
		want              []schema.GroupVersionKind
	}{
		{"name", "target.metadata.name + '-web'", nil},
		{"name", "target.spec.name", []schema.GroupVersionKind{workers}},
		{"where", "object.metadata.labels.a == target.spec.type", []schema.GroupVersionKind{workers}},
		{"where", "object.spec.paused", []schema.GroupVersionKind{deployments}},
		{"where", "'spec' in object", []schema.GroupVersionKind{deployments}},
		{"shoot", "object.spec.paused && object.spec.x == target.spec.type", []schema.GroupVersionKind{workers}},
		{"min", "size(target.spec.pools)", []schema.GroupVersionKind{workers}},
	} {
		if got := read(t, checking(c.where, c.expression)).TypedKinds(); !slices.Equal(got, c.want) {
			t.Errorf("%s %s: %v, not %v", c.where, c.expression, got, c.want)
		}
	}
}

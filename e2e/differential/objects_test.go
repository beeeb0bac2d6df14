package differential

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
)

func pick[T any](random *rand.Rand, choices ...T) T { return choices[random.IntN(len(choices))] }

// some are up to n values.
func some(random *rand.Rand, n int, value func() any) []any {
	values := make([]any, random.IntN(n+1))
	for i := range values {
		values[i] = value()
	}
	return values
}

// fields make random values of a spec's fields.
type fields map[string]func(*rand.Rand) any

// subject is a kind with random objects of it, valid ones mostly.
type subject struct {
	kind, plural string
	namespaced   bool
	fields       fields
	required     []string
	// names of some objects; the others have a number.
	names []string
	// repair is the kind's own part of mend.
	repair func(spec map[string]any)
	// tame leaves out of what is stored what would change the verdicts over all other objects.
	tame func(spec map[string]any)
	// bad breaks a portable rule.
	bad string
	// unfit breaks the schema, and tells that the schema repeats rules: they are compared with its values left out too, and
	// without asking for the optional fields.
	unfit    string
	optional []string
}

// object makes one under a name of its own.
func (s *subject) object(name string) *unstructured.Unstructured {
	spec := map[string]any{}
	for _, field := range slices.Sorted(maps.Keys(s.fields)) {
		if slices.Contains(s.required, field) || random.IntN(3) == 0 {
			spec[field] = s.fields[field](random)
		}
	}
	s.mend(spec)
	if len(s.names) > 0 && random.IntN(4) == 0 {
		name = pick(random, s.names...)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autohealer.resourcestack.com/v1alpha1", "kind": s.kind,
		"metadata": map[string]any{"name": name}, "spec": spec,
	}}
	if s.namespaced {
		object.SetNamespace(pick(random, "default", "default", "autohealer-system"))
	}
	annotate(object)
	return object
}

// mend puts right what the schema would refuse most often. An empty list says nothing, and has no owner: an apply without
// it would leave it there, and not be the update that it is compared with.
func (s *subject) mend(spec map[string]any) {
	maps.DeleteFunc(spec, func(field string, value any) bool {
		list, isList := value.([]any)
		return isList && len(list) == 0 && !slices.Contains(s.required, field)
	})
	if s.repair != nil {
		s.repair(spec)
	}
}

// annotate names rules that an exception might lift, so that the policy leaves them to the webhook.
func annotate(object *unstructured.Unstructured) {
	if random.IntN(3) == 0 {
		object.SetAnnotations(pick(random, nil, map[string]string{"a": "b"}, map[string]string{exceptedRules: "a/b, conditionset/matches-healthy-nodes"},
			map[string]string{exceptedRules: "conditionset/reserved-taint-key,conditionset/empty-cap,weederconfig/negative-pod-selector"}))
	}
}

// mutate changes up to two fields of a stored object.
func (s *subject) mutate(old *unstructured.Unstructured) *unstructured.Unstructured {
	object := old.DeepCopy()
	spec := object.Object["spec"].(map[string]any)
	for range random.IntN(3) {
		field := pick(random, slices.Sorted(maps.Keys(s.fields))...)
		if !slices.Contains(s.required, field) && random.IntN(3) == 0 {
			delete(spec, field)
			continue
		}
		spec[field] = s.fields[field](random)
	}
	s.mend(spec)
	s.keepText(old.Object["spec"].(map[string]any), spec)
	annotate(object)
	return object
}

// keepText gives fields that say what they said before the text that they had: the webhook takes `namespace: ""` and no namespace for
// the same, and the API server's policies, which see text only, for a change.
func (s *subject) keepText(before, spec map[string]any) {
	said, says := s.meaning(before), s.meaning(spec)
	for field := range s.fields {
		if said == nil || says == nil || !equality.Semantic.DeepEqual(said[field], says[field]) {
			continue
		}
		if text, written := before[field]; written {
			spec[field] = text
		} else {
			delete(spec, field)
		}
	}
}

// meaning is a spec as its Go type writes it; nil where it can't be read as that.
func (s *subject) meaning(spec map[string]any) map[string]any {
	object, err := harness.Scheme().New(v1alpha1.GroupVersion.WithKind(s.kind))
	if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"spec": spec}, object) != nil {
		return nil
	}
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil
	}
	meaning, _, _ := unstructured.NestedMap(written, "spec")
	return meaning
}

const exceptedRules = "autohealer.resourcestack.com/excepted-rules"

// subjects are all kinds, Guardrails last: those with random objects of their own, and others with what their catalogues' cases have.
var subjects = func() (all []*subject) {
	for _, k := range kinds.All {
		s := randomized[k.Name()]
		if s == nil {
			s = fromCatalogue(k)
		}
		s.kind, s.plural, s.namespaced = k.Name(), k.Plural(), k.Namespaced
		all = append(all, s)
	}
	i := slices.IndexFunc(all, func(s *subject) bool { return s.kind == "Guardrail" })
	return append(slices.Delete(slices.Clone(all), i, i+1), all[i])
}()

// fromCatalogue mixes the fields of the cases.
func fromCatalogue(k *kinds.Kind) *subject {
	rules, err := guard.New(guard.Options{})
	if err != nil {
		panic(err)
	}
	_, refused, err := guard.Specimens(k.Name())
	if err != nil {
		panic(err)
	}
	bad, err := refused.Made(time.Now())
	if err != nil {
		panic(err)
	}
	bad.Object["metadata"] = map[string]any{"name": "bad"}
	if k.Namespaced {
		bad.SetNamespace("default")
	}
	text, err := bad.MarshalJSON()
	if err != nil {
		panic(err)
	}
	s, cases, seen := &subject{fields: fields{}, bad: string(text)}, 0, map[string][]any{}
	for _, rule := range rules.Rules(k.Name()) {
		for _, test := range rule.Tests {
			object, _, err := test.Objects(k.Name())
			if err != nil {
				panic(err)
			}
			cases++
			for field, value := range object["spec"].(map[string]any) {
				seen[field] = append(seen[field], value)
			}
		}
	}
	for field, values := range seen {
		s.fields[field] = func(r *rand.Rand) any { return runtime.DeepCopyJSONValue(pick(r, values...)) }
		if len(values) == cases { // the schema wants it, or no case does without
			s.required = append(s.required, field)
		}
	}
	return s
}

var randomized = map[string]*subject{
	"ConditionSet": {fields: conditionSetFields, required: []string{"type", "effect", "taintKey", "conditions"},
		repair: func(spec map[string]any) {
			if spec["effect"] != "NoExecute" { // the schema wants evictAfter only there
				delete(spec, "evictAfter")
			}
		},
		bad: "{kind: ConditionSet, metadata: {name: bad}, spec: {type: Bad, effect: NoSchedule, taintKey: karpenter.sh/bad, conditions: {KernelDeadlock: {status: true}}}}"},
	"GuardrailException": {fields: exceptionFields, required: []string{"ruleIDs", "targetRef", "specHash", "reason", "expiresAt"},
		bad: "{kind: GuardrailException, metadata: {name: bad}, spec: {ruleIDs: [a/b], targetRef: {kind: Node, name: a}, specHash: \"" + someHash + "\", reason: it is a test, expiresAt: \"2026-01-01T00:00:00Z\"}}"},
	"ProbeConfig": {fields: probeFields, optional: []string{"scaleUp", "scaleDown"},
		required: []string{"internalKubeConfigSecretName", "externalKubeConfigSecretName", "dependentResourceInfos"},
		bad: "{kind: ProbeConfig, metadata: {name: bad, namespace: default}, spec: {internalKubeConfigSecretName: in, externalKubeConfigSecretName: out, " +
			"dependentResourceInfos: [{ref: {apiVersion: apps/v1, kind: StatefulSet, name: etcd}, scaleUp: {level: 0}, scaleDown: {level: 0}}]}}",
		unfit: "{kind: ProbeConfig, metadata: {name: unfit, namespace: default}, spec: {internalKubeConfigSecretName: same, externalKubeConfigSecretName: same, " +
			"dependentResourceInfos: [{ref: {apiVersion: apps/v1, kind: Deployment, name: kcm}, scaleUp: {level: 0}, scaleDown: {level: 0}}]}}"},
	"WeederConfig": {fields: weederFields, required: []string{"servicesAndDependantSelectors"},
		bad:   "{kind: WeederConfig, metadata: {name: bad, namespace: default}, spec: {servicesAndDependantSelectors: {etcd: {podSelectors: [{matchExpressions: [{key: a, operator: DoesNotExist}]}]}}}}",
		unfit: "{kind: WeederConfig, metadata: {name: unfit, namespace: default}, spec: {servicesAndDependantSelectors: {}}}"},
	"HealthCheckRegistration": {fields: registrationFields, required: []string{"target", "checks"},
		bad: "{kind: HealthCheckRegistration, metadata: {name: bad}, spec: {target: {apiVersion: example.com/v1, kind: Nothing, type: a}, checks: [{name: a, conditionType: Ready, " +
			"object: {apiVersion: v1, kind: Pod, name: \"'p'\"}, evaluate: {builtin: {}}}]}}",
		unfit: "{kind: HealthCheckRegistration, metadata: {name: unfit}, spec: {target: {apiVersion: example.com/v1, kind: Nothing}, checks: []}}"},
	"OutlierPolicy": {fields: outlierFields, names: []string{"default"},
		optional: []string{"splitExternalLocalOriginErrors", "alwaysEjectOneHost"},
		repair: func(spec map[string]any) {
			if spec["outlierDetection"] == nil && spec["disabled"] != true { // the schema wants one of them
				spec["disabled"] = true
			}
			if detection, ok := spec["outlierDetection"].(map[string]any); ok { // as the API server has it: the engine is asked without one
				for field, value := range map[string]bool{"splitExternalLocalOriginErrors": false, "alwaysEjectOneHost": true} {
					if detection[field] == nil {
						detection[field] = value
					}
				}
			}
		},
		bad:   "{kind: OutlierPolicy, metadata: {name: bad, namespace: default}, spec: {outlierDetection: {}}}",
		unfit: "{kind: OutlierPolicy, metadata: {name: unfit, namespace: default}, spec: {outlierDetection: {maxEjectionPercent: 101}, targetRefs: [{group: '', kind: Service, name: a}]}}"},
	"Guardrail": {fields: guardrailFields, names: []string{"probeconfig", "weederconfig", "guard", "guard.x", "a.conditionset"},
		tame: func(spec map[string]any) {
			spec["conditionTypes"] = []any{map[string]any{"type": "GPUHealthy", "healthyStatus": "True"}} // no set asks for it
			delete(spec, "frozen")                                                                        // the world is paused already
		},
		bad: "{kind: Guardrail, metadata: {name: probeconfig}, spec: {}}"},
}

// someHash is no object's.
var someHash = strings.Repeat("0123456789abcdef", 4)

var conditionSetFields = fields{
	"type":   func(r *rand.Rand) any { return pick(r, "A", "KernelDeadlock", "Some-Type.x") },
	"effect": func(r *rand.Rand) any { return pick(r, "NoExecute", "NoExecute", "NoSchedule", "PreferNoSchedule") },
	"taintKey": func(r *rand.Rand) any {
		return pick(r, "example.com/a", "example.com/b", "plain", "node.kubernetes.io/not-ready", "kubernetes.io/x", "k8s.io/x", "a.k8s.io/x",
			"xk8s.io/x", "karpenter.sh/disrupted", "node.cloudprovider.kubernetes.io/shutdown", "ToBeDeletedByClusterAutoscaler",
			"DeletionCandidateOfClusterAutoscaler", "example.com/ToBeDeletedByClusterAutoscaler", "a/b/c", "/x", "x/", "A.B/c", "with space",
			"line\nbreak", "quote'\"\\", "ümlaut", strings.Repeat("x", 64), strings.Repeat("x", 63))
	},
	"for":          func(r *rand.Rand) any { return pick(r, "0s", "1m", "90s", "1h30m") },
	"evictAfter":   func(r *rand.Rand) any { return pick(r, "0s", "10m") },
	"recoverAfter": func(r *rand.Rand) any { return pick(r, "0s", "5m") },
	"mode":         func(r *rand.Rand) any { return pick(r, "Enforce", "Observe") },
	"nodeSelector": func(r *rand.Rand) any {
		return pick(r, map[string]any{}, map[string]any{"matchLabels": map[string]any{}}, map[string]any{"matchExpressions": []any{}}, map[string]any{"matchLabels": map[string]any{"a": ""}},
			map[string]any{"matchLabels": map[string]any{"topology.kubernetes.io/zone": "zone-1"}})
	},
	"includeControlPlane": func(r *rand.Rand) any { return pick(r, true, false) },
	"staleAfter":          func(r *rand.Rand) any { return pick(r, "0s", "20m", "1h") },
	"maxNodes": func(r *rand.Rand) any {
		return pick[any](r, int64(0), int64(1), int64(500), "0%", "00%", "1%", "51%", "100%")
	},
	"conditions": func(r *rand.Rand) any {
		conditions := map[string]any{}
		for range 1 + r.IntN(3) {
			kind := pick(r, "Ready", "Ready", "OutOfDisk", "DiskPressure", "KernelDeadlock", "KubeletUnhealthy", "FrequentKubeletRestart", "Other", "odd'\"\n", "x.y/Z")
			conditions[kind] = map[string]any{"status": pick[any](r, true, false, "True", "False", "Unknown", "true", "false", "unknown")}
		}
		return conditions
	},
}

var registrationFields = fields{
	"target": func(r *rand.Rand) any {
		target := map[string]any{
			"apiVersion": pick(r, "example.com/v1", "example.com/v1", "v1", "rbac.authorization.k8s.io/v1", "autohealer.resourcestack.com/v1alpha1"),
			"kind":       pick(r, "Nothing", "Node"), "type": pick(r, "a", "b"),
		}
		if r.IntN(8) == 0 {
			delete(target, "type")
		}
		return target
	},
	"syncPeriod":           func(r *rand.Rand) any { return pick(r, "4s", "5s", "30s", "1h", "61m") },
	"checkTimeout":         func(r *rand.Rand) any { return pick(r, "0s", "1s", "5s", "2h") },
	"mode":                 func(r *rand.Rand) any { return pick(r, "Enforce", "Observe") },
	"output":               func(r *rand.Rand) any { return pick(r, "Auto", "Gardener", "Conditions", "RegistrationOnly") },
	"suspendWhen":          func(r *rand.Rand) any { return pick(r, "target.spec.hibernated", "target.spec.", "true") },
	"removeConditionTypes": func(r *rand.Rand) any { return pick(r, []any{}, []any{"Old"}, []any{"Old", "Ready"}) },
	"shootKubeconfig":      func(*rand.Rand) any { return map[string]any{"secretName": "gardener"} },
	"checks": func(r *rand.Rand) any {
		checks := []any{}
		for i := range 1 + r.IntN(3) {
			check := map[string]any{
				"name": fmt.Sprintf("c%d", i), "conditionType": pick(r, "X", "Healthy", "Ready", "Stalled", "a b", "-x"),
				"onMissing": pick(r, "False", "Skip"), "progressingTimeout": pick(r, "1s", "10m", "25h"),
				"object":   map[string]any{"apiVersion": "v1", "kind": pick(r, "Pod", "Pod", "Secret"), "name": pick(r, "'p'", "'p", "target.metadata.name")},
				"evaluate": map[string]any{pick(r, "builtin", "status"): map[string]any{}},
			}
			switch r.IntN(12) {
			case 0:
				check["evaluate"] = pick(r, map[string]any{}, map[string]any{"builtin": map[string]any{}, "status": map[string]any{}})
			case 1:
				check["evaluate"] = map[string]any{"nodes": pick(r, map[string]any{"min": int64(1)}, map[string]any{"desired": "object.spec.replicas"}, map[string]any{"desired": "object.spec."})}
				if r.IntN(4) > 0 {
					delete(check, "object")
				}
			case 2:
				check["cluster"] = "Shoot"
			case 3:
				delete(check, "object")
			case 4, 5:
				looks := check["object"].(map[string]any)
				looks["where"] = pick(r, "has(object.spec.hostNetwork)", "object.metadata.name != target.metadata.name", "has(object.spec", "1 > 0", "target.status.conditions.size() > 0")
				if r.IntN(4) > 0 { // else the schema refuses it
					delete(looks, "name")
					looks["selector"] = pick(r, map[string]any{}, map[string]any{"matchLabels": map[string]any{"a": "b"}})
				}
			}
			checks = append(checks, check)
		}
		return checks
	},
}

var outlierFields = fields{
	"targetRefs": func(r *rand.Rand) any {
		return some(r, 2, func() any {
			return pick[any](r, map[string]any{"group": "", "kind": "Service", "name": fmt.Sprintf("s%d", r.IntN(1000))},
				map[string]any{"group": "", "kind": "Service", "name": "kubernetes", "sectionName": "https"},
				map[string]any{"group": "projectcontour.io", "kind": "HTTPProxy", "name": "a", "backend": map[string]any{"name": "b", "port": int64(80)}})
		})
	},
	"disabled":       func(r *rand.Rand) any { return pick(r, true, false) },
	"mode":           func(r *rand.Rand) any { return pick(r, "Enforce", "Observe") },
	"panicThreshold": func(r *rand.Rand) any { return pick(r, int64(0), int64(50), int64(100), int64(101)) },
	"connectTimeout": func(r *rand.Rand) any { return pick(r, "0s", "0.1ms", "49ms", "250ms", "6s", "s") },
	"outlierDetection": func(r *rand.Rand) any {
		d := map[string]any{}
		for field, values := range map[string][]any{
			"consecutiveServerErrors": {int64(0), int64(1), int64(2), int64(5)}, "consecutiveLocalOriginFailure": {int64(0), int64(1), int64(5)},
			"splitExternalLocalOriginErrors": {true, false}, "alwaysEjectOneHost": {true, false}, "maxEjectionPercent": {int64(0), int64(49), int64(50), int64(100), int64(101)},
			"interval": {"0s", "500ms", "10s", "1m", ".5s", "s"}, "baseEjectionTime": {"0s", "30s", "2h", "25h"}, "maxEjectionTime": {"0s", "29s", "300s", "30h"},
			"maxEjectionTimeJitter": {"0s", "31s", "301s"},
		} {
			if r.IntN(3) == 0 {
				d[field] = pick(r, values...)
			}
		}
		return d
	},
}

var guardrailFields = fields{
	"paused": func(r *rand.Rand) any { return pick(r, true, false) },
	"frozen": func(r *rand.Rand) any { return pick(r, true, false) },
	"limits": func(r *rand.Rand) any {
		return pick(r, map[string]any{}, map[string]any{"maxTaintedNodes": "80%"}, map[string]any{"maxEvictingNodes": int64(0), "maxPodDeletionsPerMinute": int64(0)})
	},
	"conditionTypes": func(r *rand.Rand) any {
		types := []any{}
		for _, t := range []string{"Ready", "KernelDeadlock", "GPUHealthy", "odd'\"", "ümlaut"} {
			if r.IntN(4) == 0 {
				types = append(types, map[string]any{"type": t, "healthyStatus": pick(r, "True", "False")})
			}
		}
		return types
	},
	"rules": func(r *rand.Rand) any {
		n := 0
		return some(r, 3, func() any {
			n++
			kinds := []any{pick(r, "ConditionSet", "ConditionSet", "Guardrail", "Node", "conditionset", "quote'\"\\")}
			if r.IntN(3) == 0 {
				kinds = append(kinds, pick(r, "GuardrailException", "Unicorn"))
			}
			digit := fmt.Sprintf("!object.metadata.name.endsWith('%d')", r.IntN(10))
			rule := pick(r, []string{"r", digit}, []string{"r", "has(object.metadata.labels)"}, []string{"r", "object.spec.efect == 'x'"}, []string{"r", "request.operation == 'CREATE' || " + digit},
				[]string{asksWho, "request.userInfo.username == 'nobody' || " + digit}, []string{asksRights, digit + " || authorizer.serviceAccount('default', 'nobody').group('').resource('pods').namespace('default').check('delete').allowed()"})
			if rule[0] != "r" && kinds[0] == "Guardrail" { // else it isn't known whose limits hold, and by facts in a file the stricter do
				kinds[0] = "ConditionSet"
			}
			return map[string]any{"name": fmt.Sprintf("%s%d", rule[0], n), "kinds": kinds, "severity": pick(r, "Warn", "Warn", "Deny"), "expression": rule[1]}
		})
	},
}

// Rules with these names ask who asks, and what an account may do, of which facts in a file know nothing.
const asksWho, asksRights = "asks-who-", "asks-rights-"

var exceptionFields = fields{
	"ruleIDs": func(r *rand.Rand) any {
		return []any{pick(r, "conditionset/matches-healthy-nodes", "conditionset/reserved-taint-key", "weederconfig/negative-pod-selector", "a/b")}
	},
	"specHash": func(*rand.Rand) any { return someHash },
	"reason":   func(r *rand.Rand) any { return pick(r, "the rack is being moved", "it's \"so\", OPS-1") },
	"targetRef": func(r *rand.Rand) any {
		ref := map[string]any{"kind": pick(r, "ConditionSet", "ConditionSet", "WeederConfig", "Node", "quote'\"\\"), "name": "a"}
		if r.IntN(3) == 0 {
			ref["namespace"] = pick(r, "", "default", "default")
		}
		return ref
	},
	"expiresAt": func(r *rand.Rand) any {
		ends := time.Now().Add(pick(r, -time.Hour, time.Hour, 24*time.Hour, 167*time.Hour, 169*time.Hour, 9000*time.Hour))
		return pick(r, ends.UTC(), ends.In(time.FixedZone("", 7200))).Format(pick(r, time.RFC3339, "2006-01-02T15:04:05.000Z07:00"))
	},
}

var probeFields = fields{
	"internalKubeConfigSecretName":        func(r *rand.Rand) any { return pick(r, "in", "in", "same") },
	"externalKubeConfigSecretName":        func(r *rand.Rand) any { return pick(r, "out", "out", "same") },
	"probeInterval":                       func(r *rand.Rand) any { return pick(r, "500ms", "1s", "10s", "20s", "1h") },
	"probeTimeout":                        func(r *rand.Rand) any { return pick(r, "1ms", "1s", "10s", "20s", "1m") },
	"internalProbeFailureBackoffDuration": func(r *rand.Rand) any { return pick(r, "0s", "30s", "1h") },
	"successThreshold":                    func(r *rand.Rand) any { return pick(r, int64(0), int64(1), int64(100)) },
	"failureThreshold":                    func(r *rand.Rand) any { return pick(r, int64(0), int64(1), int64(3)) },
	"backoffJitterFactor":                 func(r *rand.Rand) any { return pick[any](r, -0.5, int64(0), 0.2, int64(1), 1.5, int64(2)) },
	"mode":                                func(r *rand.Rand) any { return pick(r, "Enforce", "Observe") },
	"nodeLeases": func(r *rand.Rand) any {
		leases := map[string]any{}
		if r.IntN(2) == 0 {
			leases["failureFraction"] = pick[any](r, int64(0), 0.3, 0.6, int64(1), 60.5, int64(60))
		}
		if r.IntN(2) == 0 {
			leases["monitorGraceDuration"] = pick(r, "20s", "26s", "27s", "40s", "1h")
		}
		if r.IntN(3) == 0 {
			leases["maxProtectionDuration"] = pick(r, "80s", "1h", "24h")
		}
		return leases
	},
	"dependentResourceInfos": func(r *rand.Rand) any {
		return some(r, 3, func() any {
			d := map[string]any{"ref": map[string]any{
				"apiVersion": pick(r, "apps/v1", "apps/v1", "apps/v1beta1", "v1"), "kind": pick(r, "Deployment", "Deployment", "StatefulSet"),
				"name": pick(r, "kcm", "mcm", "kube-apiserver", "etcd-main", "autohealer", "quote'\"\\"),
			}}
			for _, way := range []string{"scaleUp", "scaleDown"} {
				if r.IntN(8) > 0 {
					d[way] = map[string]any{"level": pick(r, int64(-1), int64(0), int64(0), int64(1))}
				}
			}
			return d
		})
	},
}

var weederFields = fields{
	"servicesAndDependantSelectors": func(r *rand.Rand) any {
		services := map[string]any{}
		for range r.IntN(3) {
			services[pick(r, "etcd", "etcd", "a", "kube-apiserver", "Upper", "under_score", strings.Repeat("x", 63), "quote'\"\\", "a.b")] = map[string]any{"podSelectors": some(r, 2, func() any {
				return pick(r, map[string]any{}, map[string]any{"matchLabels": map[string]any{}}, map[string]any{"matchLabels": map[string]any{"app": "a"}},
					map[string]any{"matchExpressions": []any{map[string]any{"key": "role", "operator": pick(r, "NotIn", "In"), "values": []any{pick(r, "a", "b", "c d")}}}},
					map[string]any{"matchExpressions": []any{map[string]any{"key": "role", "operator": pick(r, "DoesNotExist", "Exists")}}})
			})}
		}
		return services
	},
	"watchDuration":        func(r *rand.Rand) any { return pick(r, "0s", "1s", "30s", "2m", "30m", "31m", "1h") },
	"cooldown":             func(r *rand.Rand) any { return pick(r, "0s", "500ms", "1s", "10m", "11m") },
	"maxDeletionsPerWatch": func(r *rand.Rand) any { return pick(r, int64(0), int64(1), int64(10000), int64(10001)) },
	"maxRepeatsPerOwner":   func(r *rand.Rand) any { return pick(r, int64(0), int64(20), int64(21)) },
	"mode":                 func(r *rand.Rand) any { return pick(r, "Enforce", "Observe") },
	"deletion":             func(r *rand.Rand) any { return pick(r, "Delete", "Evict") },
	"serviceAccountName":   func(r *rand.Rand) any { return pick(r, "default", "nobody") },
	"namespaceSelector":    func(*rand.Rand) any { return map[string]any{"matchLabels": map[string]any{"a": "b"}} },
}

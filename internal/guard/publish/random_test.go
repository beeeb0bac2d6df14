package publish_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	// name makes a name; default: the object's number.
	name func(random *rand.Rand, number int) string
	// repair puts right what the schema would refuse most often.
	repair func(spec map[string]any)
	// relaxed: the schema repeats the rules, and is left out of the comparison.
	relaxed bool
	// optional are fields that the relaxed schema doesn't ask for.
	optional []string
	// rules that deny and are in the policy; random objects break each.
	rules int
}

func (s *subject) object(random *rand.Rand, prefix string, number int) *unstructured.Unstructured {
	spec := map[string]any{}
	for _, field := range slices.Sorted(maps.Keys(s.fields)) {
		if slices.Contains(s.required, field) || random.IntN(3) == 0 {
			spec[field] = s.fields[field](random)
		}
	}
	if s.repair != nil {
		s.repair(spec)
	}
	name := fmt.Sprintf("%s-%d", prefix, number)
	if s.name != nil {
		name = s.name(random, number)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autohealer.resourcestack.com/v1alpha1", "kind": s.kind,
		"metadata": map[string]any{"name": name}, "spec": spec,
	}}
	if s.namespaced {
		object.SetNamespace("default")
	}
	if random.IntN(3) == 0 {
		object.SetAnnotations(pick(random, map[string]string{"a": "b"}, map[string]string{exceptedRules: "a/b, conditionset/matches-healthy-nodes"},
			map[string]string{exceptedRules: "conditionset/reserved-taint-key,conditionset/empty-cap,weederconfig/negative-pod-selector"}))
	}
	return object
}

// mutate changes up to two fields of a stored object.
func (s *subject) mutate(random *rand.Rand, old *unstructured.Unstructured) *unstructured.Unstructured {
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
	return object
}

const exceptedRules = "autohealer.resourcestack.com/excepted-rules"

var subjects = []*subject{
	{kind: "ConditionSet", plural: "conditionsets", rules: 6, fields: conditionSetFields, required: []string{"type", "effect", "taintKey", "conditions"},
		repair: func(spec map[string]any) {
			if spec["effect"] != "NoExecute" { // the schema wants evictAfter only there
				delete(spec, "evictAfter")
			}
		}},
	{kind: "Guardrail", plural: "guardrails", rules: 3, fields: guardrailFields,
		name: func(random *rand.Rand, number int) string {
			return pick(random, fmt.Sprintf("rail-%d", number), fmt.Sprintf("rail-%d", number), "conditionset", "guard", "probeconfig", "guard.x", "a.conditionset")
		}},
	{kind: "GuardrailException", plural: "guardrailexceptions", rules: 4, fields: exceptionFields,
		required: []string{"ruleIDs", "targetRef", "specHash", "reason", "expiresAt"}},
	{kind: "ProbeConfig", plural: "probeconfigs", namespaced: true, relaxed: true, optional: []string{"scaleUp", "scaleDown"}, rules: 13, fields: probeFields,
		required: []string{"internalKubeConfigSecretName", "externalKubeConfigSecretName", "dependentResourceInfos"}},
	{kind: "WeederConfig", plural: "weederconfigs", namespaced: true, relaxed: true, rules: 8, fields: weederFields, required: []string{"servicesAndDependantSelectors"}},
}

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
		return pick(r, map[string]any{}, map[string]any{"matchLabels": map[string]any{}}, map[string]any{"matchExpressions": []any{}}, map[string]any{"matchLabels": map[string]any{"a": ""}})
	},
	"includeControlPlane": func(r *rand.Rand) any { return pick(r, true, false) },
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

var guardrailFields = fields{
	"paused": func(r *rand.Rand) any { return pick(r, true, false) },
	"limits": func(r *rand.Rand) any {
		return pick(r, map[string]any{}, map[string]any{"maxTaintedNodes": "80%"}, map[string]any{"maxEvictingNodes": int64(0), "maxPodDeletionsPerMinute": int64(0)})
	},
	"conditionTypes": func(r *rand.Rand) any {
		var types []any
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
			return map[string]any{"name": fmt.Sprintf("r%d", n), "kinds": kinds, "expression": "has(object.metadata.labels)"}
		})
	},
}

var exceptionFields = fields{
	"ruleIDs": func(r *rand.Rand) any { return []any{pick(r, "conditionset/matches-healthy-nodes", "a/b")} },
	"specHash": func(r *rand.Rand) any {
		return pick(r, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "0000000000000000000000000000000000000000000000000000000000000000")
	},
	"reason": func(r *rand.Rand) any { return pick(r, "the rack is being moved", "it's \"so\", OPS-1") },
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
			services[pick(r, "etcd", "kube-apiserver", "Upper", "under_score", strings.Repeat("x", 63), "quote'\"\\", "a.b")] = map[string]any{"podSelectors": some(r, 2, func() any {
				return pick(r, map[string]any{}, map[string]any{"matchLabels": map[string]any{}}, map[string]any{"matchLabels": map[string]any{"app": "a"}},
					map[string]any{"matchExpressions": []any{map[string]any{"key": "role", "operator": pick(r, "NotIn", "In"), "values": []any{"main"}}}},
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
}

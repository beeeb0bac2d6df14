package publish_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func pick[T any](random *rand.Rand, choices ...T) T { return choices[random.IntN(len(choices))] }

var fields = map[string]func(*rand.Rand) any{
	"type":   func(r *rand.Rand) any { return pick(r, "A", "KernelDeadlock", "Some-Type.x") },
	"effect": func(r *rand.Rand) any { return pick(r, "NoExecute", "NoExecute", "NoSchedule", "PreferNoSchedule") },
	"taintKey": func(r *rand.Rand) any {
		return pick(r, "example.com/a", "example.com/b", "plain", "node.kubernetes.io/not-ready", "kubernetes.io/x", "k8s.io/x", "a.k8s.io/x",
			"xk8s.io/x", "karpenter.sh/disrupted", "node.cloudprovider.kubernetes.io/shutdown", "ToBeDeletedByClusterAutoscaler",
			"DeletionCandidateOfClusterAutoscaler", "example.com/ToBeDeletedByClusterAutoscaler", "a/b/c", "/x", "x/", "A.B/c", "with space",
			"line\nbreak", "quote'\"\\", "ümlaut", strings.Repeat("x", 64), strings.Repeat("x", 63))
	},
	"for":                 func(r *rand.Rand) any { return pick(r, "0s", "1m", "90s", "1h30m") },
	"evictAfter":          func(r *rand.Rand) any { return pick(r, "0s", "10m") },
	"recoverAfter":        func(r *rand.Rand) any { return pick(r, "0s", "5m") },
	"mode":                func(r *rand.Rand) any { return pick(r, "Enforce", "Observe") },
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

var required = []string{"type", "effect", "taintKey", "conditions"}

func randomSet(random *rand.Rand, name string) *unstructured.Unstructured {
	spec := map[string]any{}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains(required, field) || random.IntN(3) == 0 {
			spec[field] = fields[field](random)
		}
	}
	if spec["effect"] != "NoExecute" { // the schema wants evictAfter only there
		delete(spec, "evictAfter")
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autohealer.resourcestack.com/v1alpha1", "kind": "ConditionSet",
		"metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// mutate changes up to two fields of a stored object.
func mutate(random *rand.Rand, old *unstructured.Unstructured) *unstructured.Unstructured {
	object := old.DeepCopy()
	spec := object.Object["spec"].(map[string]any)
	for range random.IntN(3) {
		field := pick(random, slices.Sorted(maps.Keys(fields))...)
		if !slices.Contains(required, field) && random.IntN(3) == 0 {
			delete(spec, field)
			continue
		}
		spec[field] = fields[field](random)
	}
	return object
}

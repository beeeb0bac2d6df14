package outlier

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// clusterType is how an EnvoyPatchPolicy names clusters.
const clusterType = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// PatchesName is the name of a Gateway's EnvoyPatchPolicy.
func PatchesName(gateway string) string { return "autohealer." + gateway }

// PatchedGateway is the Gateway that an EnvoyPatchPolicy is for; ok is false for a name that isn't one of Autohealer's.
func PatchedGateway(name types.NamespacedName) (gateway types.NamespacedName, ok bool) {
	of, ok := strings.CutPrefix(name.Name, PatchesName(""))
	return types.NamespacedName{Namespace: name.Namespace, Name: of}, ok
}

// PatchSet are the patches in a Gateway's EnvoyPatchPolicy, by the names of the clusters.
type PatchSet map[string]ClusterPatch

// ClusterPatch has Envoy detect outliers in one cluster.
type ClusterPatch struct {
	// For are the policies that the patch is for, in the order of Patched.Policies.
	For []PatchedFor
	// Observes: Envoy counts errors, and ejects no host. It is false in a set that was read.
	Observes bool
	// operations on the cluster, in the content of an unstructured object.
	operations []any
}

// PatchedFor is the generation of a policy that a patch was made for.
type PatchedFor struct {
	Namespace  string    `json:"namespace"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
	Generation int64     `json:"generation"`
}

// NewPatchSet makes the patches of all clusters of one Gateway that are to detect outliers.
func NewPatchSet(clusters []Patched) PatchSet {
	set := PatchSet{}
	for i := range clusters {
		c := &clusters[i]
		if !c.Detects() {
			continue
		}
		fields := c.Policies[0].clusterFields()
		patch := ClusterPatch{Observes: c.Policies[0].Settings.Observe}
		for _, path := range slices.Sorted(maps.Keys(fields)) {
			patch.operations = append(patch.operations, patchOf(c.Cluster, path, fields[path]))
		}
		for _, p := range c.Policies {
			patch.For = append(patch.For, PatchedFor{p.Namespace, p.Name, p.UID, p.Generation})
		}
		set[c.Cluster] = patch
	}
	return set
}

func patchOf(cluster, path string, value any) map[string]any {
	return map[string]any{"type": clusterType, "name": cluster, "operation": map[string]any{"op": "add", "path": path, "value": value}}
}

// ReadPatchSet reads an EnvoyPatchPolicy of Autohealer's: its spec, and the record of the policies that it is for. A patch that isn't in the
// record is left out.
func ReadPatchSet(spec map[string]any, record string) (PatchSet, error) {
	by := map[string][]PatchedFor{}
	if err := json.Unmarshal([]byte(record), &by); err != nil {
		return nil, fmt.Errorf("read the record: %w", err)
	}
	set := PatchSet{}
	for _, patch := range entries(spec["jsonPatches"]) {
		name, _ := patch["name"].(string)
		if of, recorded := by[name]; recorded {
			set[name] = ClusterPatch{For: of, operations: append(set[name].operations, patch)}
		}
	}
	return set, nil
}

// Record is the encoded record of the policies that the patches are for.
func (s PatchSet) Record() (string, error) {
	by := make(map[string][]PatchedFor, len(s))
	for name, patch := range s {
		by[name] = patch.For
	}
	text, err := json.Marshal(by)
	return string(text), err
}

// Spec is the EnvoyPatchPolicy's.
func (s PatchSet) Spec(gateway string) map[string]any {
	patches := []any{}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		patches = append(patches, s[name].operations...)
	}
	return map[string]any{
		"targetRef": map[string]any{"group": gatewayGroup, "kind": "Gateway", "name": gateway}, "type": "JSONPatch", "jsonPatches": patches,
	}
}

// Effective returns the patches that a Gateway's clusters are to have in a lifecycle state, where s is wanted and before is stored. Patches of
// doubtful clusters stay as they are.
func (s PatchSet) Effective(state lifecycle.State, doubtful func(cluster string) bool, before PatchSet) PatchSet {
	next := PatchSet{}
	for name := range union(s, before) {
		wanted, is := s[name]
		previous, was := before[name]
		own := state
		if doubtful(name) {
			own = lifecycle.Frozen
		}
		switch {
		case own == lifecycle.Active, own.HealsOnly() && (!is || was && slices.Equal(wanted.For, previous.For)):
			if is {
				next[name] = wanted
			}
		case own.IsFrozen(), sameUIDs(wanted.For, previous.For): // it was changed since
			if was {
				next[name] = previous
			}
		}
	}
	return next
}

// Changed are the clusters whose patch is for other policies or generations than before, by the policies that it is for.
func (s PatchSet) Changed(before PatchSet) map[PatchedFor][]string {
	changed := map[PatchedFor][]string{}
	for name, patch := range s {
		if slices.Equal(patch.For, before[name].For) {
			continue
		}
		for _, p := range patch.For {
			changed[p] = append(changed[p], name)
		}
	}
	return changed
}

// Removed are the clusters whose patch was removed, by the policies that it was for.
func (s PatchSet) Removed(before PatchSet) map[PatchedFor][]string {
	removed := map[PatchedFor][]string{}
	for name, patch := range before {
		if _, is := s[name]; is {
			continue
		}
		for _, p := range patch.For {
			removed[p] = append(removed[p], name)
		}
	}
	return removed
}

func sameUIDs(a, b []PatchedFor) bool {
	return slices.EqualFunc(a, b, func(a, b PatchedFor) bool { return a.UID == b.UID })
}

func union(a, b PatchSet) map[string]bool {
	all := make(map[string]bool, len(a))
	for _, set := range []PatchSet{a, b} {
		for name := range set {
			all[name] = true
		}
	}
	return all
}

// ReadPatchStatus returns the condition of an EnvoyPatchPolicy that Envoy Gateway has set for its current generation: Programmed, or Accepted
// where that is False; nil while it has set none.
func ReadPatchStatus(object map[string]any) (*metav1.Condition, error) {
	var read struct {
		metav1.ObjectMeta `json:"metadata"`

		Status struct {
			Ancestors []struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"ancestors"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &read); err != nil {
		return nil, fmt.Errorf("read the status of an EnvoyPatchPolicy: %w", err)
	}
	var status *metav1.Condition
	for _, ancestor := range read.Status.Ancestors {
		for _, c := range ancestor.Conditions {
			refused := c.Type == "Accepted" && c.Status == metav1.ConditionFalse
			if c.ObservedGeneration == read.Generation && (refused || c.Type == "Programmed" && status == nil) {
				status = &c
			}
		}
	}
	return status, nil
}

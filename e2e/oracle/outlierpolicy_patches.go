package oracle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// patching is one revision of an EnvoyPatchPolicy.
type patching struct {
	key     types.NamespacedName
	gateway types.NamespacedName
	// ours: it has a record, of whom each cluster is patched for.
	ours      bool
	record    map[string][]patchedFor
	recordErr error
	clusters  map[string]*detection
	// strange are operations that Autohealer has no business with, or hasn't recorded.
	strange []string
	// rest is all that Autohealer writes once, or never.
	rest map[string]any
}

// patchedFor is an entry of the record.
type patchedFor struct {
	Namespace, Name string
	UID             types.UID
	Generation      int64
}

// Records gives for whom anything is patched.
func (p *patching) Records() []types.UID {
	var all []types.UID
	for _, of := range p.record {
		for _, one := range of {
			all = append(all, one.UID)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (p *patching) String() string { return "EnvoyPatchPolicy " + p.key.String() }

// operation on a part of what Envoy is configured with.
type operation struct {
	Type, Name string
	Operation  struct {
		Op, Path string
		Value    json.RawMessage
	}
}

// detectionPaths are the fields of a cluster that OutlierPolicies say. The first is how outliers are detected.
var detectionPaths = []string{
	"/outlier_detection", "/common_lb_config/healthy_panic_threshold", "/common_lb_config/update_merge_window", "/connect_timeout",
}

func (o *operation) ofDetection() bool {
	return o.Type == "type.googleapis.com/envoy.config.cluster.v3.Cluster" && o.Operation.Op == "add" && slices.Contains(detectionPaths, o.Operation.Path)
}

func parsePatching(object []byte) (View, error) {
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(object); err != nil {
		return nil, fmt.Errorf("read an EnvoyPatchPolicy: %w", err)
	}
	var is struct {
		Spec struct {
			TargetRef   struct{ Name string }
			JSONPatches []operation
		}
	}
	if err := json.Unmarshal(object, &is); err != nil {
		return nil, fmt.Errorf("read an EnvoyPatchPolicy: %w", err)
	}
	p := &patching{
		key:      types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()},
		gateway:  types.NamespacedName{Namespace: u.GetNamespace(), Name: is.Spec.TargetRef.Name},
		clusters: map[string]*detection{},
	}
	text, ours := u.GetAnnotations()[patchedForKey]
	if p.ours = ours; ours {
		p.recordErr = json.Unmarshal([]byte(text), &p.record)
	}
	for i := range is.Spec.JSONPatches {
		p.take(&is.Spec.JSONPatches[i])
	}
	for _, field := range [][]string{
		{"spec"}, {"metadata", "annotations", patchedForKey}, {"metadata", "labels", "app.kubernetes.io/managed-by"}, {"metadata", "ownerReferences"}, {"metadata", "generation"},
	} {
		unstructured.RemoveNestedField(u.Object, field...)
	}
	p.rest = u.Object
	return p, nil
}

func (p *patching) take(o *operation) {
	if _, recorded := p.record[o.Name]; !recorded || !o.ofDetection() {
		p.strange = append(p.strange, fmt.Sprintf("%s %s of %s", o.Operation.Op, o.Operation.Path, o.Name))
		return
	}
	if o.Operation.Path != detectionPaths[0] {
		return
	}
	d, err := parseDetection(o.Operation.Value)
	if err != nil {
		p.strange = append(p.strange, fmt.Sprintf("%s of %s: %v", o.Operation.Path, o.Name, err))
		return
	}
	p.clusters[o.Name] = d
}

// patched judges a write of the manager's to an EnvoyPatchPolicy.
func (s *detectors) patched(c Change, before, after *patching) Finding {
	if c.Subresource != "" {
		return Finding{NotMine: true}
	}
	if why := trespasses(c, before, after); why != "" {
		return broken(OwnOnly, "the manager wrote to %s: %s", cmp.Or(after, before), why)
	}
	if after == nil {
		return Finding{}
	}
	f := Finding{Broken: after.misplaced(before)}
	for _, cluster := range slices.Sorted(maps.Keys(after.record)) {
		for _, p := range after.record[cluster] {
			if before == nil || !slices.Contains(before.record[cluster], p) {
				s.news(&f, after, cluster, p)
			}
		}
	}
	if len(f.Acts) > 0 && !s.asked(after.gateway, c.At) {
		f.Broken = append(f.Broken, Broken{Validated, fmt.Sprintf("the manager patched Gateway %s, which doesn't ask for it", after.gateway)})
	}
	return f
}

// trespasses says why an EnvoyPatchPolicy isn't the manager's to write; "" when it is.
func trespasses(c Change, before, after *patching) string {
	switch {
	case before != nil && !before.ours:
		return "it is somebody else's"
	case after == nil && judgedAt(c.Request, false) == 0:
		return "it was deleted without saying which, by UID and resource version"
	case after != nil && !after.ours:
		return "it has no record"
	case after != nil && after.recordErr != nil:
		return fmt.Sprintf("its record can't be read: %v", after.recordErr)
	}
	return ""
}

// misplaced: what was written is an object of ours, and nothing in it is anybody else's.
func (p *patching) misplaced(before *patching) (found []Broken) {
	own := func(format string, args ...any) { found = append(found, Broken{OwnOnly, fmt.Sprintf(format, args...)}) }
	if p.key.Name != "autohealer."+p.gateway.Name {
		own("the manager wrote %s for Gateway %s", p, p.gateway)
	}
	if before != nil && !reflect.DeepEqual(before.rest, p.rest) {
		own("the manager changed more of %s than its patches", p)
	}
	for _, one := range p.strange {
		own("the manager patched what isn't recorded, or isn't how outliers are detected: %s", one)
	}
	for _, cluster := range slices.Sorted(maps.Keys(p.record)) {
		if p.clusters[cluster] == nil {
			own("the manager recorded cluster %s, which isn't patched", cluster)
		}
	}
	return found
}

// news judges what is patched anew for a policy.
func (s *detectors) news(f *Finding, p *patching, cluster string, by patchedFor) {
	d := p.clusters[cluster]
	if d == nil {
		return
	}
	what := fmt.Sprintf("patch of cluster %s for %s/%s", cluster, by.Namespace, by.Name)
	f.Acts = append(f.Acts, Act{Policy: by.UID, Generation: by.Generation, What: what, Observing: !d.ejects()})
	policy := s.world.Policies[by.UID]
	if policy == nil {
		return
	}
	if !slices.Contains(policy.Latest.GetFinalizers(), undoKey) {
		f.Broken = append(f.Broken, Broken{Undone, what + ": the policy has no finalizer, and would be gone before that is undone"})
	}
	spec, found := policy.Spec(by.Generation)
	if !found {
		return
	}
	asks, err := detectingOf(spec.Object)
	if err != nil {
		f.Broken = append(f.Broken, Broken{Validated, fmt.Sprintf("%s: its spec can't be read: %v", what, err)})
	} else if differs := d.differs(asks); differs != "" {
		f.Broken = append(f.Broken, Broken{Validated, fmt.Sprintf("%s: generation %d doesn't say so: %s", what, by.Generation, differs)})
	}
}

// asked says whether a Gateway asked for patches at some moment that the manager may have gone by.
func (s *detectors) asked(gateway types.NamespacedName, at time.Time) bool {
	g := s.gateways[gateway]
	return g.asks || !g.until.IsZero() && at.Sub(g.until) <= s.options.Lag
}

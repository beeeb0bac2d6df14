package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// gatewayAsks is whether a Gateway's owner asks for patches.
type gatewayAsks struct {
	key  types.NamespacedName
	asks bool
}

func (*gatewayAsks) Records() []types.UID { return nil }

// patching is one revision of an EnvoyPatchPolicy.
type patching struct {
	gateway types.NamespacedName
	// ours: it has a record, of whom each cluster is patched for.
	ours     bool
	record   map[string][]patchedFor
	clusters map[string]*detection
	// strange are operations that Autohealer has no business with, or hasn't recorded.
	strange []string
}

// patchedFor is an entry of the record.
type patchedFor struct {
	Namespace, Name string
	UID             types.UID
	Generation      int64
}

// Records gives for whom anything is patched.
func (p *patching) Records() (all []types.UID) {
	for _, of := range p.record {
		for _, one := range of {
			all = append(all, one.UID)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

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
	var is struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			TargetRef   struct{ Name string }
			JSONPatches []operation
		}
	}
	if err := json.Unmarshal(object, &is); err != nil {
		return nil, fmt.Errorf("read an EnvoyPatchPolicy: %w", err)
	}
	p := &patching{
		gateway:  types.NamespacedName{Namespace: is.Namespace, Name: is.Spec.TargetRef.Name},
		clusters: map[string]*detection{},
	}
	var text string
	if text, p.ours = is.Annotations["autohealer.resourcestack.com/patched-for"]; p.ours {
		if err := json.Unmarshal([]byte(text), &p.record); err != nil {
			return nil, fmt.Errorf("read for whom clusters are patched: %w", err)
		}
	}
	for _, o := range is.Spec.JSONPatches {
		if _, recorded := p.record[o.Name]; !recorded || !o.ofDetection() {
			p.strange = append(p.strange, fmt.Sprintf("%s %s of %s", o.Operation.Op, o.Operation.Path, o.Name))
			continue
		}
		if o.Operation.Path == detectionPaths[0] {
			var err error
			if p.clusters[o.Name], err = parseDetection(o.Operation.Value); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// does says whether outliers in a cluster are detected like this for a policy.
func (p *patching) does(cluster string, by patchedFor, d *detection) bool {
	return p != nil && slices.Contains(p.record[cluster], by) && p.clusters[cluster] != nil && p.clusters[cluster].text == d.text
}

// patched judges a write of the manager's to an EnvoyPatchPolicy.
func (s *detectors) patched(c Change, before, after *patching) (f Finding) {
	if before != nil && !before.ours {
		return broken(OwnOnly, "the manager wrote to an EnvoyPatchPolicy that is somebody else's: it had no record")
	}
	if after == nil {
		return Finding{}
	}
	for _, one := range after.strange {
		f.Broken = append(f.Broken, Broken{OwnOnly, "the manager patched what isn't recorded, or isn't how outliers are detected: " + one})
	}
	for _, cluster := range slices.Sorted(maps.Keys(after.clusters)) {
		d := after.clusters[cluster]
		for _, by := range after.record[cluster] {
			if !before.does(cluster, by, d) {
				s.news(&f, cluster, by, d)
			}
		}
	}
	if len(f.Acts) > 0 && !s.asked(after.gateway, c.At) {
		f.Broken = append(f.Broken, Broken{Validated, fmt.Sprintf("the manager patched Gateway %s, which doesn't ask for it", after.gateway)})
	}
	return f
}

// news judges what is patched anew for a policy.
func (s *detectors) news(f *Finding, cluster string, by patchedFor, d *detection) {
	what := fmt.Sprintf("patch of cluster %s for %s/%s", cluster, by.Namespace, by.Name)
	f.Acts = append(f.Acts, Act{Policy: by.UID, Generation: by.Generation, What: what, Observing: !d.ejects()})
	policy := s.world.Policies[by.UID]
	if policy == nil {
		return
	}
	if !slices.Contains(policy.Latest.GetFinalizers(), "autohealer.resourcestack.com/undo") {
		f.Broken = append(f.Broken, Broken{Undone, what + ": the policy has no finalizer, and would be gone before that is undone"})
	}
	if spec, found := policy.Spec(by.Generation); found {
		if differs := d.differs(spec.Object); differs != "" {
			f.Broken = append(f.Broken, Broken{Validated, fmt.Sprintf("%s: generation %d doesn't say so: %s", what, by.Generation, differs)})
		}
	}
}

// asks takes in a Gateway.
func (s *detectors) asks(at time.Time, g *gatewayAsks) {
	until, ever := s.gateways[g.key]
	switch {
	case g.asks:
		s.gateways[g.key] = time.Time{}
	case ever && until.IsZero():
		s.gateways[g.key] = at
	}
}

// asked says whether a Gateway asked for patches at some moment that the manager may have gone by.
func (s *detectors) asked(gateway types.NamespacedName, at time.Time) bool {
	until, ever := s.gateways[gateway]
	return ever && (until.IsZero() || at.Sub(until) <= s.options.Lag)
}

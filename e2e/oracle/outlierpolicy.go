package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// OutlierPolicies is the kind that has Envoys eject hosts.
type OutlierPolicies struct {
	// Gateways says to follow EnvoyPatchPolicies, and the Gateways that they are for. Their CRDs must be installed.
	Gateways bool
}

// Policies are the OutlierPolicies.
func (OutlierPolicies) Policies() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: ourGroup, Version: "v1alpha1", Resource: "outlierpolicies"}
}

// Foreign are what Envoys run with, and the patches that have Envoy Gateway tell its Envoys so.
func (k OutlierPolicies) Foreign() []schema.GroupVersionResource {
	all := []schema.GroupVersionResource{envoys}
	if k.Gateways {
		all = append(all, schema.GroupVersionResource{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Resource: "envoypatchpolicies"},
			schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"})
	}
	return all
}

// Trim drops what Envoy Gateway says.
func (OutlierPolicies) Trim(object *unstructured.Unstructured) { delete(object.Object, "status") }

// Begin gives a reader that has seen nothing yet.
func (OutlierPolicies) Begin(o Options) Reader {
	return &detectors{options: o, gateways: map[types.NamespacedName]time.Time{}, told: map[string]string{}}
}

// detectors follows how Envoys are told to detect outliers through a replay.
type detectors struct {
	options Options
	world   *World
	// gateways are the Gateways that asked for patches, and until when they did: zero while they do.
	gateways map[types.NamespacedName]time.Time
	// told is how Envoys were told last to detect outliers in a cluster.
	told map[string]string
}

func (s *detectors) View(object []byte) (View, error) {
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(object, &meta); err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	switch meta.Kind {
	case "EnvoyPatchPolicy":
		return parsePatching(object)
	case "Gateway":
		key := types.NamespacedName{Namespace: meta.Namespace, Name: meta.Name}
		return &gatewayAsks{key: key, asks: meta.Labels["autohealer.resourcestack.com/envoy-patches"] == "true"}, nil
	case "Envoy":
		return s.parseInEnvoy(object)
	}
	return nil, fmt.Errorf("read an object: its kind is %q", meta.Kind)
}

// OnlyOurs: others may write EnvoyPatchPolicies too.
func (*detectors) OnlyOurs(View, View) bool { return false }

func (s *detectors) Read(w *World, c Change) Finding {
	s.world = w
	switch after := c.After.(type) {
	case *inEnvoy:
		before, known := c.Before.(*inEnvoy)
		if !known {
			before = &inEnvoy{}
		}
		return s.runs(c.At, before, after)
	case *gatewayAsks:
		s.asks(c.At, after)
	case *patching:
		if before, _ := c.Before.(*patching); c.Ours {
			return s.patched(c, before, after)
		}
	case nil:
		if before, is := c.Before.(*patching); is && c.Ours {
			return s.patched(c, before, nil)
		}
	}
	return Finding{NotMine: c.Ours}
}

// inEnvoy is how one Envoy detects outliers in its clusters.
type inEnvoy struct {
	clusters map[string]*detection
	by       func(cluster string, d *detection) []types.UID
}

func (s *detectors) parseInEnvoy(object []byte) (View, error) {
	var is struct{ Clusters map[string]json.RawMessage }
	if err := json.Unmarshal(object, &is); err != nil {
		return nil, fmt.Errorf("read what an Envoy runs with: %w", err)
	}
	r := &inEnvoy{clusters: map[string]*detection{}, by: s.deletedBy}
	for name, text := range is.Clusters {
		d, err := parseDetection(text)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", name, err)
		}
		r.clusters[name] = d
	}
	return r, nil
}

// Records gives by whose word the Envoy detects outliers that should by nobody's.
func (r *inEnvoy) Records() (all []types.UID) {
	for name, d := range r.clusters {
		all = append(all, r.by(name, d)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// runs judges how an Envoy detects outliers from now on: as before, as others were told last, or as a policy says that is in force.
func (s *detectors) runs(at time.Time, before, after *inEnvoy) (f Finding) {
	for cluster := range before.clusters {
		if after.clusters[cluster] == nil {
			delete(s.told, cluster)
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(after.clusters)) {
		d := after.clusters[cluster]
		if was := before.clusters[cluster]; was != nil && was.text == d.text || s.told[cluster] == d.text {
			continue
		}
		s.told[cluster] = d.text
		act, why := s.says(at, cluster, d)
		if why != "" {
			f.Broken = append(f.Broken, Broken{Validated, fmt.Sprintf("an Envoy detects outliers in cluster %s as no OutlierPolicy in force says: %s", cluster, why)})
			continue
		}
		f.Acts = append(f.Acts, act)
	}
	return f
}

// says finds a generation in force that has Envoys detect outliers like this in a cluster, or why none does. Which of several policies is for
// the cluster isn't worked out here.
func (s *detectors) says(at time.Time, cluster string, d *detection) (act Act, why string) {
	why = "there is none for it"
	for _, uid := range s.policiesFor(cluster) {
		p := s.world.Policies[uid]
		if !p.Gone.IsZero() && at.Sub(p.Gone) > s.options.Lag {
			continue
		}
		for _, spec := range p.InForce(at, s.options.Lag) {
			differs := d.differs(spec.Object)
			if differs == "" {
				return Act{Policy: uid, Generation: spec.Generation, What: "detection in cluster " + cluster, Observing: !d.ejects()}, ""
			}
			why = p.Name + ": " + differs
		}
	}
	return Act{}, why
}

// deletedBy is the policy that was deleted last of those that ever said so, once all are; else none.
func (s *detectors) deletedBy(cluster string, d *detection) (last []types.UID) {
	var gone time.Time
	for _, uid := range s.policiesFor(cluster) {
		p := s.world.Policies[uid]
		says := slices.ContainsFunc(p.Specs, func(spec Spec) bool { return d.differs(spec.Object) == "" })
		switch {
		case says && p.Gone.IsZero():
			return nil
		case says && p.Gone.After(gone):
			gone, last = p.Gone, []types.UID{uid}
		}
	}
	return last
}

// policiesFor are the policies that may be for a cluster: those of its namespace, and the default of all.
func (s *detectors) policiesFor(cluster string) []types.UID {
	namespace, _, _ := strings.Cut(cluster, "/")
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.world.Policies)), func(uid types.UID) bool {
		p := s.world.Policies[uid]
		of := p.Latest.GetNamespace()
		return p.Resource != (OutlierPolicies{}).Policies() || of != namespace && (of != ownNamespace || p.Name != "default")
	})
}

package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// detectors follows what Envoys are to do, and what is told of it, through a replay.
type detectors struct {
	options  Options
	world    *World
	gateways map[types.NamespacedName]asking
	// services are since when they are there.
	services map[types.NamespacedName]time.Time
	// told is how Envoys were told last to detect outliers in a cluster.
	told map[string]*inEnvoy
	// ejections are what statuses tell.
	ejections map[types.UID]ejections
}

// asking is whether a Gateway asks for patches, and until when it did; zero when it never did.
type asking struct {
	asks  bool
	until time.Time
}

func newDetectors(o Options) *detectors {
	return &detectors{
		options: o, gateways: map[types.NamespacedName]asking{}, services: map[types.NamespacedName]time.Time{}, told: map[string]*inEnvoy{},
		ejections: map[types.UID]ejections{},
	}
}

// OnlyOurs: nobody but the manager writes records.
func (s *detectors) OnlyOurs(before, after View) bool {
	a, ok := before.(*patching)
	b, is := after.(*patching)
	return ok && is && !sameRecord(a, b)
}

func sameRecord(a, b *patching) bool {
	return a.ours == b.ours && maps.EqualFunc(a.record, b.record, func(a, b []patchedFor) bool { return slices.Equal(a, b) })
}

func (s *detectors) Read(w *World, c Change) Finding {
	s.world = w
	switch is := cmp.Or(c.After, c.Before).(type) {
	case *patching:
		before, _ := c.Before.(*patching)
		after, _ := c.After.(*patching)
		if c.Ours {
			return s.patched(c, before, after)
		}
	case *gatewayAsks:
		s.asks(c, is)
	case *reachable:
		if s.services[is.key] = cmp.Or(s.services[is.key], c.At); c.After == nil {
			delete(s.services, is.key)
		}
	case *recordedClusters:
		before, _ := c.Before.(*recordedClusters)
		after, _ := c.After.(*recordedClusters)
		return s.recorded(c, before, after)
	case *ejectionTold:
		if c.Before == nil && c.Judged {
			return s.tells(c, is)
		}
	case *inEnvoy:
		if after, still := c.After.(*inEnvoy); still {
			return s.runs(c, after)
		}
	}
	return Finding{NotMine: c.Ours}
}

// asks takes in a Gateway.
func (s *detectors) asks(c Change, g *gatewayAsks) {
	before, now := s.gateways[g.key], asking{asks: g.asks && c.After != nil}
	if now.until = before.until; before.asks && !now.asks {
		now.until = c.At
	}
	s.gateways[g.key] = now
}

// recorded: a cluster is forgotten once its Service is gone, and not before. A route's own goes with the route, which isn't followed.
func (s *detectors) recorded(c Change, before, after *recordedClusters) (f Finding) {
	if before == nil || after == nil || !c.Judged {
		return Finding{}
	}
	for _, name := range slices.Sorted(maps.Keys(before.names)) {
		namespace, rest, _ := strings.Cut(name, "/")
		service, _, _ := strings.Cut(rest, "/")
		since, there := s.services[types.NamespacedName{Namespace: namespace, Name: service}]
		if !after.names[name] && !strings.Contains(name, "@") && there && c.At.Sub(since) > s.options.Lag {
			f.Broken = append(f.Broken, Broken{Doubt, fmt.Sprintf("the manager forgot cluster %s, whose Service is there", name)})
		}
	}
	return f
}

// runs judges how an Envoy detects outliers from now on: as others do already, or as a policy says that is in force.
func (s *detectors) runs(c Change, after *inEnvoy) Finding {
	last := s.told[after.cluster]
	s.told[after.cluster] = after
	if after.detection == nil {
		return Finding{}
	}
	if last != nil && last.text == after.text {
		after.by = last.by
		return Finding{}
	}
	uid, generation, why := s.says(c.At, after)
	if uid == "" {
		return broken(Validated, "an Envoy detects outliers in cluster %s as no OutlierPolicy in force says: %s", after.cluster, why)
	}
	after.by = []types.UID{uid}
	return Finding{Acts: []Act{{Policy: uid, Generation: generation, What: "detection in cluster " + after.cluster, Observing: !after.detection.ejects()}}}
}

// says finds a policy, and its generation, that has Envoys detect outliers like this in a cluster; else why none does. Which of several is for the
// cluster isn't worked out here.
func (s *detectors) says(at time.Time, r *inEnvoy) (by types.UID, generation int64, why string) {
	namespace, _, _ := strings.Cut(r.cluster, "/")
	why = "there is none in namespace " + namespace
	for _, uid := range slices.Sorted(maps.Keys(s.world.Policies)) {
		p := s.world.Policies[uid]
		if p.Resource != (OutlierPolicies{}).Policies() || !p.Gone.IsZero() && at.Sub(p.Gone) > s.options.Lag {
			continue
		}
		for _, spec := range p.InForce(at, s.options.Lag) {
			asks, err := detectingOf(spec.Object)
			everywhere := p.Latest.GetNamespace() == ownNamespace && p.Name == "default" && len(asks.TargetRefs) == 0
			if err != nil || p.Latest.GetNamespace() != namespace && !everywhere {
				continue
			}
			differs := r.detection.differs(asks)
			if differs == "" {
				return uid, spec.Generation, ""
			}
			why = p.Name + ": " + differs
		}
	}
	return "", 0, why
}

// endless is a moment at which nothing counts any more that doesn't count now.
var endless = time.Unix(1<<36, 0)

// owed are the policies by whose word an Envoy detects outliers, unless one that isn't deleted says the same.
func (s *detectors) owed(r *inEnvoy) []types.UID {
	if r.detection == nil {
		return nil
	}
	if by, _, _ := s.says(endless, r); by != "" {
		return nil
	}
	return r.by
}

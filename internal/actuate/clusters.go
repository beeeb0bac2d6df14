package actuate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/xds"
)

// AdmittedOutlier is an OutlierPolicy that the rules admitted.
type AdmittedOutlier = guard.Validated[*v1alpha1.OutlierPolicy]

// Cluster is what Envoys are to be told of one.
type Cluster struct {
	outlier.Assignment
	Hosts []outlier.Host
	// Admitted is of the assignment's policy. Without it Envoys may not be told to detect anything.
	Admitted AdmittedOutlier
}

// Clusters tells Envoys of clusters and their hosts. One goroutine tells; the others' methods may be called by all.
type Clusters struct {
	Server  *xds.Server
	Current Current
	// Acts takes the audit trail: one line for each generation of a policy that Envoys are told of.
	Acts logr.Logger

	told map[string]told // by name of the cluster
}

// told is what was told last of a cluster, with the messages: what stays as it is costs no new ones.
type told struct {
	uid        types.UID // of the policy that detects; "" when nothing is detected
	generation int64
	http2      bool
	cluster    *clusterv3.Cluster

	hosts     []outlier.Host
	endpoints *endpointv3.ClusterLoadAssignment
}

// Apply has Envoys told of all clusters, and of those that are gone for sure. An error means that nothing was told: an admission
// is missing, or no longer what is stored.
func (c *Clusters) Apply(ctx context.Context, clusters []Cluster, gone []outlier.Key) error {
	news, err := c.check(ctx, clusters)
	if err != nil {
		return err
	}
	next := make(map[string]told, len(clusters))
	snapshot := xds.Snapshot{
		Clusters: make(map[string]*clusterv3.Cluster, len(clusters)), Endpoints: make(map[string]*endpointv3.ClusterLoadAssignment, len(clusters)),
		Owners: make(map[string]types.NamespacedName, len(clusters)),
	}
	for i := range clusters {
		name := clusters[i].Key.String()
		t, err := c.told[name].with(&clusters[i])
		if err != nil {
			return err
		}
		next[name] = t
		snapshot.Clusters[name], snapshot.Endpoints[name], snapshot.Owners[name] = t.cluster, t.endpoints, clusters[i].Key.Service
	}
	for _, key := range gone {
		snapshot.Gone = append(snapshot.Gone, key.String())
	}
	c.told = next
	c.Server.Set(snapshot)
	for _, of := range news {
		c.record(of)
	}
	return nil
}

// check gives the clusters of each policy that Envoys haven't been told of as it is now, and an error where they may not be.
func (c *Clusters) check(ctx context.Context, clusters []Cluster) (map[types.UID][]*Cluster, error) {
	if c.Server.Serves != nil && !c.Server.Serves() {
		return nil, errors.New("tell Envoys: the cluster isn't known to be this installation's")
	}
	news := map[types.UID][]*Cluster{}
	for i := range clusters {
		if err := covered(&clusters[i]); err != nil {
			return nil, err
		}
		if uid, generation := detects(&clusters[i]); uid != "" {
			if before := c.told[clusters[i].Key.String()]; before.uid != uid || before.generation != generation {
				news[uid] = append(news[uid], &clusters[i])
			}
		}
	}
	for _, of := range news {
		p := of[0].Policy
		if err := c.Current.Check(ctx, v1alpha1.GroupVersion.WithKind("OutlierPolicy"), p.Key(), p.UID, p.Generation); err != nil {
			return nil, fmt.Errorf("tell Envoys of OutlierPolicy %s: %w", p.Key(), err)
		}
	}
	return news, nil
}

// covered: where anything is detected, the policy's admission is there. One that was admitted because it observes may not eject.
func covered(c *Cluster) error {
	if !c.Policy.Detects() {
		return nil
	}
	v, p := c.Admitted, c.Policy
	if !v.Valid() || v.UID() != p.UID || v.Generation() != p.Generation || !v.Enforces() && !p.Settings.Observe {
		return fmt.Errorf("tell Envoys of OutlierPolicy %s: %w", p.Key(), ErrNotValidated)
	}
	return nil
}

// detects gives the policy by which errors are detected.
func detects(c *Cluster) (types.UID, int64) {
	if !c.Policy.Detects() {
		return "", 0
	}
	return c.Policy.UID, c.Policy.Generation
}

// with gives what is told next, with the messages of before where they say it already.
func (t told) with(c *Cluster) (told, error) {
	uid, generation := detects(c)
	next := told{uid: uid, generation: generation, http2: c.HTTP2, cluster: t.cluster, hosts: c.Hosts, endpoints: t.endpoints}
	if t.cluster == nil || t.uid != uid || t.generation != generation || t.http2 != c.HTTP2 {
		var err error
		if next.cluster, err = outlier.NewCluster(&c.Assignment); err != nil {
			return told{}, err
		}
	}
	if t.endpoints == nil || !slices.Equal(t.hosts, c.Hosts) {
		next.endpoints = outlier.NewEndpoints(c.Key.String(), c.Hosts)
	}
	return next, nil
}

// record writes the audit line of one policy that Envoys are told of.
func (c *Clusters) record(of []*Cluster) {
	const samples = 5
	names := map[string]bool{}
	for _, cluster := range of[:min(samples, len(of))] {
		names[cluster.Key.String()] = true
	}
	p, v := of[0].Policy, of[0].Admitted
	Act{
		Verb: "Tell", Reason: v1alpha1.ReasonProgrammed,
		PolicyKind: "OutlierPolicy", Policy: p.Key(), PolicyUID: p.UID, PolicyGeneration: p.Generation, RuleSet: v.RuleSetHash(),
		TargetKind: "Cluster", Target: types.NamespacedName{Name: strings.Join(slices.Sorted(maps.Keys(names)), ",")}, TargetUID: p.UID, Trigger: p.Created,
	}.record(c.Acts, "Told Envoys how to detect outliers", "clusters", len(of), "observe", p.Settings.Observe)
}

// Proxies tells how far Envoys are with a cluster.
func (c *Clusters) Proxies(cluster outlier.Key) xds.Proxies {
	return c.Server.Proxies(cluster.String())
}

// RemovalHeld tells which clusters would be gone if they weren't too many at a time.
func (c *Clusters) RemovalHeld() xds.Held { return c.Server.RemovalHeld() }

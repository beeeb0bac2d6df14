package actuate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
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

	told map[string]map[string]told // by namespace, and by name of the cluster
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

// checkWithin bounds how long endpoints wait for what the API server says of policies.
const checkWithin = 2 * time.Second

// checksAtOnce are how many policies the API server is asked about at a time.
const checksAtOnce = 8

// Absent are clusters that Envoys may have and that aren't found: Missing are all of them, Gone those that are gone for sure.
type Absent struct{ Missing, Gone []outlier.Key }

// Apply has Envoys told of all clusters of some namespaces, and of those that are gone for sure in any; with nil for the namespaces the
// clusters are of all. Of other namespaces Envoys keep what they have. Held are clusters about which there is doubt: an
// admission is missing, or no longer what is stored. Of them Envoys keep what they have, and are told of their hosts. An error means
// that nothing was told; until something was, any doubt is one, since Envoys would miss what isn't there.
func (c *Clusters) Apply(ctx context.Context, clusters []Cluster, namespaces map[string]bool, absent Absent) (held map[outlier.Key]error, err error) {
	if c.Server.Serves != nil && !c.Server.Serves() {
		return nil, errors.New("tell Envoys: the cluster isn't known to be this installation's")
	}
	news, held := c.check(ctx, clusters)
	next := map[string]map[string]told{}
	snapshot := xds.Snapshot{
		Clusters: make(map[string]*clusterv3.Cluster, len(clusters)), Endpoints: make(map[string]*endpointv3.ClusterLoadAssignment, len(clusters)),
		Owners: make(map[string]types.NamespacedName, len(clusters)),
	}
	for i := range clusters {
		key := clusters[i].Key
		name := key.String()
		before := c.told[key.Service.Namespace][name]
		t, err := before.with(&clusters[i], held[key] != nil)
		if err != nil {
			held[key] = err
			t, _ = before.with(&clusters[i], true)
		}
		if t.cluster == nil {
			continue
		}
		if next[key.Service.Namespace] == nil {
			next[key.Service.Namespace] = map[string]told{}
		}
		next[key.Service.Namespace][name] = t
		snapshot.Clusters[name], snapshot.Endpoints[name], snapshot.Owners[name] = t.cluster, t.endpoints, key.Service
	}
	if c.told == nil {
		for _, err := range held {
			return nil, err
		}
	}
	snapshot.Gone, snapshot.Missing = names(absent.Gone), names(absent.Missing)
	c.keep(namespaces, next)
	c.Server.Set(snapshot)
	for _, of := range news {
		c.record(of)
	}
	return held, nil
}

// keep what was told last of some namespaces; nil for all.
func (c *Clusters) keep(namespaces map[string]bool, next map[string]map[string]told) {
	if namespaces == nil || c.told == nil {
		c.told = next
		return
	}
	for namespace := range namespaces {
		delete(c.told, namespace)
	}
	maps.Copy(c.told, next)
}

// check gives the clusters of each policy that Envoys haven't been told of as it is now, and those that they may not be told of.
func (c *Clusters) check(ctx context.Context, clusters []Cluster) (news map[types.UID][]*Cluster, held map[outlier.Key]error) {
	news, held = map[types.UID][]*Cluster{}, map[outlier.Key]error{}
	for i := range clusters {
		if err := covered(&clusters[i]); err != nil {
			held[clusters[i].Key] = err
			continue
		}
		if uid, generation := detects(&clusters[i]); uid != "" {
			if before := c.told[clusters[i].Key.Service.Namespace][clusters[i].Key.String()]; before.uid != uid || before.generation != generation {
				news[uid] = append(news[uid], &clusters[i])
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	var mu sync.Mutex
	var asking errgroup.Group
	asking.SetLimit(checksAtOnce)
	for uid, of := range maps.Clone(news) {
		asking.Go(func() error {
			p := of[0].Policy
			err := c.Current.Check(ctx, v1alpha1.GroupVersion.WithKind("OutlierPolicy"), p.Key(), p.UID, p.Generation)
			if err == nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			delete(news, uid)
			for _, cluster := range of {
				held[cluster.Key] = fmt.Errorf("tell Envoys of OutlierPolicy %s: %w", p.Key(), err)
			}
			return nil
		})
	}
	_ = asking.Wait() // each error is its policy's
	return news, held
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

// with gives what is told next, with the messages of before where they say it already. Of a cluster that is held only the hosts
// are new; one that was never told has no message then.
func (t told) with(c *Cluster, held bool) (told, error) {
	next := t
	next.hosts = c.Hosts
	uid, generation := detects(c)
	if !held && (t.cluster == nil || t.uid != uid || t.generation != generation || t.http2 != c.HTTP2) {
		var err error
		if next.cluster, err = outlier.NewCluster(&c.Assignment); err != nil {
			return told{}, err
		}
		next.uid, next.generation, next.http2 = uid, generation, c.HTTP2
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

// Rejections are what Envoys refuse now, by the name of the cluster.
func (c *Clusters) Rejections() map[string][]xds.Rejection { return c.Server.Rejections() }

func names(keys []outlier.Key) []string {
	all := make([]string, len(keys))
	for i, key := range keys {
		all[i] = key.String()
	}
	return all
}

// Together tells how many Envoys may see any of some clusters, and how many of those have all that they may see.
func (c *Clusters) Together(clusters []outlier.Key) (connected, acked int) {
	return c.Server.Together(names(clusters))
}

// RemovalHeld tells which clusters would be gone if they weren't too many at a time.
func (c *Clusters) RemovalHeld() xds.Held { return c.Server.RemovalHeld() }

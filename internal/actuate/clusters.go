package actuate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
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

// InDoubt is the cluster as Envoys are told of it while nobody can say that its policy may detect anything: it has its place all the same.
func (c Cluster) InDoubt() Cluster {
	if c.Policy != nil {
		doubtful := *c.Policy
		doubtful.Doubtful = true
		c.Policy, c.Admitted = &doubtful, AdmittedOutlier{}
	}
	return c
}

// AllCurrent checks live, just before an act, that many policies still are what was admitted. It gives the errors of those that aren't, by UID.
type AllCurrent interface {
	CheckAll(ctx context.Context, kind schema.GroupVersionKind, admitted []kube.Admission) map[types.UID]error
}

// Clusters tells Envoys of clusters and their hosts. One goroutine tells; the others' methods may be called by all.
type Clusters struct {
	Server  *xds.Server
	Current AllCurrent
	// Waits says whether doubt is waited out while nothing was told yet. Default: it is, however long it lasts.
	Waits func() bool
	// Others says whether it is known which Envoys are connected to other replicas. Default: there are no other replicas.
	Others func() bool
	// Acts takes the audit trail: one line for each generation of a policy that Envoys are told of.
	Acts logr.Logger

	last map[string]map[string]lastSnapshot // by namespace, and by name of the cluster
}

// lastSnapshot is what was sent last of a cluster, with the messages: what stays as it is costs no new ones.
type lastSnapshot struct {
	uid        types.UID // of the policy that detects; "" when nothing is detected
	generation int64
	http2      bool
	cluster    *clusterv3.Cluster

	hosts     []outlier.Host
	endpoints *endpointv3.ClusterLoadAssignment
}

const (
	// checkTimeout bounds how long endpoints wait for what the API server says of policies.
	checkTimeout = 2 * time.Second
	// firstCheckTimeout bounds it while nothing was sent yet, and all policies are asked about: a list that takes longer than endpoints should
	// wait is better than none.
	firstCheckTimeout = 10 * time.Second
)

// Absent are clusters that Envoys may have and that aren't found: Missing are all of them, Gone those that are gone for sure.
type Absent struct{ Missing, Gone []outlier.Key }

// Apply has Envoys told of all clusters of some namespaces, and of those that are gone for sure in any; with nil for the namespaces the
// clusters are of all. Of other namespaces Envoys keep what they have. Held are clusters about which there is doubt: an
// admission is missing, or no longer what is stored. Of them Envoys keep what they have, and are told of their hosts. An error means
// that nothing was told; until something was, any doubt is one as long as it is waited for, since Envoys would miss what isn't there. After that
// clusters in doubt are told InDoubt.
func (c *Clusters) Apply(ctx context.Context, clusters []Cluster, namespaces map[string]bool, absent Absent) (held map[outlier.Key]error, err error) {
	if c.Server.Serves != nil && !c.Server.Serves() {
		return nil, errors.New("tell Envoys: the cluster isn't known to be this installation's")
	}
	news, held := c.check(ctx, clusters)
	if c.last == nil && len(held) > 0 && (c.Waits == nil || c.Waits()) {
		return nil, firstError(held)
	}
	next := map[string]map[string]lastSnapshot{}
	snapshot := xds.Snapshot{
		Clusters: make(map[string]*clusterv3.Cluster, len(clusters)), Endpoints: make(map[string]*endpointv3.ClusterLoadAssignment, len(clusters)),
		Owners: make(map[string]types.NamespacedName, len(clusters)),
	}
	for i := range clusters {
		key := clusters[i].Key
		name := key.String()
		t := c.next(&clusters[i], held[key] != nil)
		if t.cluster == nil {
			continue
		}
		if next[key.Service.Namespace] == nil {
			next[key.Service.Namespace] = map[string]lastSnapshot{}
		}
		next[key.Service.Namespace][name] = t
		snapshot.Clusters[name], snapshot.Endpoints[name], snapshot.Owners[name] = t.cluster, t.endpoints, key.Service
	}
	snapshot.Gone, snapshot.Missing = names(absent.Gone), names(absent.Missing)
	c.retain(namespaces, next)
	c.Server.Set(ctx, snapshot)
	for _, of := range news {
		c.record(of)
	}
	return held, nil
}

// next gives what is sent next of a cluster.
func (c *Clusters) next(cluster *Cluster, held bool) lastSnapshot {
	if held && c.last == nil {
		doubtful := cluster.InDoubt()
		return lastSnapshot{}.with(&doubtful, false)
	}
	return c.last[cluster.Key.Service.Namespace][cluster.Key.String()].with(cluster, held)
}

// firstError is the same one of some errors each time: it is reported again and again.
func firstError(held map[outlier.Key]error) error {
	byKey := func(a, b outlier.Key) int { return strings.Compare(a.String(), b.String()) }
	return held[slices.MinFunc(slices.Collect(maps.Keys(held)), byKey)]
}

// retain keeps what was sent last of some namespaces; nil for all.
func (c *Clusters) retain(namespaces map[string]bool, next map[string]map[string]lastSnapshot) {
	if namespaces == nil || c.last == nil {
		c.last = next
		return
	}
	for namespace := range namespaces {
		delete(c.last, namespace)
	}
	maps.Copy(c.last, next)
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
			if before := c.last[clusters[i].Key.Service.Namespace][clusters[i].Key.String()]; before.uid != uid || before.generation != generation {
				news[uid] = append(news[uid], &clusters[i])
			}
		}
	}
	if len(news) == 0 {
		return news, held
	}
	within := checkTimeout
	if c.last == nil {
		within = firstCheckTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	admitted := make([]kube.Admission, 0, len(news))
	for uid, of := range news {
		admitted = append(admitted, kube.Admission{Key: of[0].Policy.Key(), UID: uid, Generation: of[0].Policy.Generation})
	}
	for uid, err := range c.Current.CheckAll(ctx, v1alpha1.GroupVersion.WithKind("OutlierPolicy"), admitted) {
		for _, cluster := range news[uid] {
			held[cluster.Key] = fmt.Errorf("tell Envoys of OutlierPolicy %s: %w", cluster.Policy.Key(), err)
		}
		delete(news, uid)
	}
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
func (t lastSnapshot) with(c *Cluster, held bool) lastSnapshot {
	next := t
	next.hosts = c.Hosts
	uid, generation := detects(c)
	if !held && (t.cluster == nil || t.uid != uid || t.generation != generation || t.http2 != c.HTTP2) {
		next.cluster, next.uid, next.generation, next.http2 = outlier.NewCluster(&c.Assignment), uid, generation, c.HTTP2
	}
	if t.endpoints == nil || !slices.Equal(t.hosts, c.Hosts) {
		next.endpoints = outlier.NewEndpoints(c.Key.String(), c.Hosts)
	}
	return next
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

// CountProxies tells how many Envoys may see any of some clusters, and how many of those have all that they may see.
func (c *Clusters) CountProxies(clusters []outlier.Key) (connected, acked int) {
	return c.Server.CountProxies(names(clusters))
}

// KnowsOthers says whether what is told of Envoys includes those that are connected to other replicas.
func (c *Clusters) KnowsOthers() bool { return c.Others == nil || c.Others() }

// DelayedRemovals tells which clusters would be gone if they weren't too many at a time.
func (c *Clusters) DelayedRemovals() xds.DelayedRemovals { return c.Server.DelayedRemovals() }

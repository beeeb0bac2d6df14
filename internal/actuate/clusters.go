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

// Cluster is what Envoys are to be sent of one.
type Cluster struct {
	outlier.Assignment
	Hosts []outlier.Host
	// Admitted is of the assignment's policy. Without it Envoys may not be made to detect anything.
	Admitted AdmittedOutlier
}

// inDoubt is the cluster as Envoys are sent it while nobody can say that its policy may detect anything: it has its place all the same.
func (c Cluster) inDoubt() Cluster {
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
	// Waits says whether doubt is waited out while nothing was sent yet. Default: it is, however long it lasts.
	Waits func() bool
	// Others says whether it is known which Envoys are connected to other replicas. Default: there are no other replicas.
	Others func() bool
	// Acts takes the audit trail: one line for each generation of a policy that Envoys are sent.
	Acts logr.Logger

	last map[string]sentCluster // by name; nil while nothing was sent
}

// sentCluster is a cluster as it was sent last, with the messages: what stays as it is costs no new ones.
type sentCluster struct {
	Cluster
	cluster   *clusterv3.Cluster
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

// Apply has Envoys sent clusters, and of those that are gone for sure; of others Envoys keep what they have. Held are clusters about which
// there is doubt: an admission is missing, or no longer what is stored. Of them Envoys keep what they have, and are sent their hosts.
// Removed are the names of those that Envoys have no longer. An error means that nothing was sent; until something was, any doubt is one as
// long as it is waited for, since Envoys would miss what isn't there. After that clusters in doubt are sent so that they detect nothing.
func (c *Clusters) Apply(ctx context.Context, clusters []Cluster, absent Absent) (held map[outlier.Key]error, removed []string, err error) {
	if c.Server.Serves != nil && !c.Server.Serves() {
		return nil, nil, errors.New("serve Envoys: the cluster isn't known to be this installation's")
	}
	news, held := c.check(ctx, clusters)
	if c.last == nil && len(held) > 0 && (c.Waits == nil || c.Waits()) {
		return nil, nil, firstError(held)
	}
	snapshot := xds.Snapshot{Clusters: make(map[string]xds.Cluster, len(clusters)), Gone: names(absent.Gone), Missing: names(absent.Missing)}
	isFirst := c.last == nil
	if isFirst {
		c.last = map[string]sentCluster{}
	}
	for i := range clusters {
		key := clusters[i].Key
		name := key.String()
		next := c.last[name].next(&clusters[i], held[key] != nil, isFirst)
		if next.cluster == nil {
			continue
		}
		c.last[name] = next
		snapshot.Clusters[name] = xds.Cluster{Message: next.cluster, Endpoints: next.endpoints, Namespace: key.Service.Namespace}
	}
	removed = c.Server.Set(ctx, snapshot)
	for _, name := range removed {
		delete(c.last, name)
	}
	for _, of := range news {
		c.record(of)
	}
	return held, removed, nil
}

// Last is a cluster as Envoys were sent it last. Only the goroutine that tells may ask.
func (c *Clusters) Last(key outlier.Key) (last Cluster, wasSent bool) {
	if c == nil {
		return last, false
	}
	sent, wasSent := c.last[key.String()]
	return sent.Cluster, wasSent
}

// firstError is the same one of some errors each time: it is reported again and again.
func firstError(held map[outlier.Key]error) error {
	byKey := func(a, b outlier.Key) int { return strings.Compare(a.String(), b.String()) }
	return held[slices.MinFunc(slices.Collect(maps.Keys(held)), byKey)]
}

// check gives the clusters of each policy that Envoys haven't been sent as they are now, and those that they may not be sent.
func (c *Clusters) check(ctx context.Context, clusters []Cluster) (news map[types.UID][]*Cluster, held map[outlier.Key]error) {
	news, held = map[types.UID][]*Cluster{}, map[outlier.Key]error{}
	for i := range clusters {
		if err := covered(&clusters[i]); err != nil {
			held[clusters[i].Key] = err
			continue
		}
		if uid, generation := detects(&clusters[i]); uid != "" {
			if before := c.last[clusters[i].Key.String()]; !before.detectsBy(uid, generation) {
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
			held[cluster.Key] = fmt.Errorf("serve OutlierPolicy %s to Envoys: %w", cluster.Policy.Key(), err)
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
		return fmt.Errorf("serve OutlierPolicy %s to Envoys: %w", p.Key(), ErrNotValidated)
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

// detectsBy says whether errors are detected by this generation of a policy.
func (c *Cluster) detectsBy(uid types.UID, generation int64) bool {
	ofUID, of := detects(c)
	return ofUID == uid && of == generation
}

// next gives what is sent next, with the messages of before where they say it already. Of a cluster that is held only the hosts
// are new; one that was never sent has no message then, unless nothing was sent yet.
func (t sentCluster) next(c *Cluster, held, isFirst bool) sentCluster {
	next := sentCluster{*c, t.cluster, t.endpoints}
	switch {
	case held && !isFirst:
		next.Cluster = t.Cluster
		next.Hosts = c.Hosts
	case held:
		next.Cluster = c.inDoubt()
		next.cluster = outlier.NewCluster(&next.Assignment)
	case t.cluster == nil || !t.detectsBy(detects(c)) || t.HTTP2 != c.HTTP2:
		next.cluster = outlier.NewCluster(&c.Assignment)
	}
	if t.endpoints == nil || !slices.Equal(t.Hosts, c.Hosts) {
		next.endpoints = outlier.NewEndpoints(c.Key.String(), c.Hosts)
	}
	return next
}

// record writes the audit line of one policy that Envoys are sent.
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
	}.record(c.Acts, "Set how Envoys detect outliers", "clusters", len(of), "observe", p.Settings.Observe)
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

// OthersKnown says whether what is reported of Envoys includes those that are connected to other replicas.
func (c *Clusters) OthersKnown() bool { return c.Others == nil || c.Others() }

// DelayedRemovals tells which clusters would be gone if they weren't too many at a time.
func (c *Clusters) DelayedRemovals() xds.DelayedRemovals { return c.Server.DelayedRemovals() }

package outlierpolicy

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/kube/outliers"
)

// patchRetryAfter after a write that failed.
const patchRetryAfter = 5 * time.Second

// patcher writes EnvoyPatchPolicies that have Envoy Gateway's Gateways detect outliers. It is a Runnable of the leader.
type patcher struct {
	*Publisher
	Gateways interface {
		Gateways(ctx context.Context) (outliers.Gateways, error)
	}
	Patches interface {
		Apply(ctx context.Context, g actuate.GatewayPatches) (held map[string]error, err error)
	}
}

// NeedLeaderElection is true: one replica writes.
func (*patcher) NeedLeaderElection() bool { return true }

// Start patches whenever something is translated, until the context ends.
func (p *patcher) Start(ctx context.Context) error {
	var again <-chan time.Time
	problem := ""
	for {
		again = nil
		if err := p.patch(ctx); err != nil {
			switch logger := log.FromContext(ctx); {
			case problem == err.Error(): // log it once
			case apierrors.IsConflict(err): // Envoy Gateway has just written its status
				logger.V(1).Info("An EnvoyPatchPolicy changed since it was read; retrying", "conflict", err.Error())
			default:
				logger.Info("Can't patch all Gateways, which keep the EnvoyPatchPolicies that they have; retrying", "reason", err.Error())
			}
			problem, again = err.Error(), p.Clock.After(patchRetryAfter)
		} else {
			problem = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.pendingPatches:
		case <-again:
		}
	}
}

// patch applies the EnvoyPatchPolicies of all labeled Gateways, and removes those of Gateways that are no longer labeled.
func (p *patcher) patch(ctx context.Context) error {
	snap := p.snapshot()
	if snap == nil {
		return nil
	}
	g, err := p.Gateways.Gateways(ctx)
	if err != nil {
		return err
	}
	g.Objects.Services = map[types.NamespacedName]*corev1.Service{}
	for _, services := range snap.services {
		for _, svc := range services {
			g.Objects.Services[client.ObjectKeyFromObject(svc)] = svc
		}
	}
	byGateway, view := map[types.NamespacedName][]outlier.Patched{}, &gatewayStatuses{patchStatuses: g.PatchStatuses, writeErrors: map[types.NamespacedName]error{}}
	for _, c := range snap.index.Patches(g.Objects) {
		byGateway[c.Gateway] = append(byGateway[c.Gateway], c)
	}
	var failed error
	for _, gateway := range slices.SortedFunc(maps.Keys(g.UIDs), compareNames) { // sorted, so that of several errors the same one is reported each time
		wants, err := snap.patches(byGateway[gateway])
		if err == nil {
			wants.Gateway, wants.GatewayUID = gateway, g.UIDs[gateway]
			inDoubt := wants.Doubtful
			wants.Doubtful = func(cluster string) bool {
				return inDoubt(cluster) || unreadKind(g.Unread, cluster)
			}
			var held map[string]error
			held, err = p.Patches.Apply(ctx, wants)
			for _, cluster := range slices.Sorted(maps.Keys(held)) {
				err = cmp.Or(err, held[cluster])
			}
		}
		if err != nil {
			view.writeErrors[gateway], failed = err, cmp.Or(failed, err)
		}
	}
	view.clusters = byGateway
	p.setGateways(view, snap)
	return failed
}

// patches are the desired patches of a Gateway's clusters, by the policies in the snapshot.
func (snap *policySnapshot) patches(clusters []outlier.Patched) (wants actuate.GatewayPatches, err error) {
	wants.State = lifecycle.Policy{Frozen: snap.paused.Frozen, Paused: snap.paused.By != ""}.State()
	if wants.Wanted, err = outlier.NewPatchSet(clusters); err != nil {
		return wants, err
	}
	doubtful := map[string]bool{}
	wants.Doubtful = func(cluster string) bool { return doubtful[cluster] }
	wants.Admitted = map[types.UID]actuate.AdmittedOutlier{}
	for i := range clusters {
		doubtful[clusters[i].Cluster] = clusters[i].Doubtful()
		for _, of := range clusters[i].Policies {
			wants.Admitted[of.UID] = snap.policies[of.Key()].admitted
		}
	}
	return wants, nil
}

// unreadKind says whether a cluster is of a kind of routes whose informer isn't synced.
func unreadKind(unread map[string]bool, cluster string) bool {
	kind, _, _ := strings.Cut(cluster, "/")
	for of := range unread {
		if strings.EqualFold(of, kind) {
			return true
		}
	}
	return false
}

func compareNames(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }

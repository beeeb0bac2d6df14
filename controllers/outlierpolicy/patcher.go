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

// patchAgain after a write that failed.
const patchAgain = 5 * time.Second

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
			problem, again = err.Error(), p.Clock.After(patchAgain)
		} else {
			problem = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.shown:
		case <-again:
		}
	}
}

// patch applies the EnvoyPatchPolicies of all labeled Gateways, and removes those of Gateways that are no longer labeled.
func (p *patcher) patch(ctx context.Context) error {
	pic := p.picture()
	if pic == nil {
		return nil
	}
	g, err := p.Gateways.Gateways(ctx)
	if err != nil {
		return err
	}
	g.World.Services = map[types.NamespacedName]*corev1.Service{}
	for _, services := range pic.services {
		for _, svc := range services {
			g.World.Services[client.ObjectKeyFromObject(svc)] = svc
		}
	}
	by, view := map[types.NamespacedName][]outlier.Patched{}, &gatewaysView{verdicts: g.Verdicts, troubles: map[types.NamespacedName]error{}}
	for _, c := range pic.index.Patches(g.World) {
		by[c.Gateway] = append(by[c.Gateway], c)
	}
	var failed error
	for _, gateway := range slices.SortedFunc(maps.Keys(g.UIDs), compareNames) { // sorted, so that of several errors the same one is reported each time
		wants, err := pic.patches(by[gateway])
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
			view.troubles[gateway], failed = err, cmp.Or(failed, err)
		}
	}
	view.clusters = by
	p.showGateways(view, pic)
	return failed
}

// patches are the desired patches of a Gateway's clusters, by the policies in the snapshot.
func (pic *picture) patches(clusters []outlier.Patched) (wants actuate.GatewayPatches, err error) {
	wants.State = lifecycle.Policy{Frozen: pic.paused.Frozen, Paused: pic.paused.By != ""}.State()
	if wants.Wanted, err = outlier.NewPatchSet(clusters); err != nil {
		return wants, err
	}
	doubtful := map[string]bool{}
	wants.Doubtful = func(cluster string) bool { return doubtful[cluster] }
	wants.Admitted = map[types.UID]actuate.AdmittedOutlier{}
	for i := range clusters {
		doubtful[clusters[i].Cluster] = clusters[i].Doubtful()
		for _, of := range clusters[i].Policies {
			wants.Admitted[of.UID] = pic.policies[of.Key()].admitted
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

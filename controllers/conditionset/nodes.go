package conditionset

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/kube"
)

func (o *Observer) node(node *corev1.Node) {
	o.Facts.RecordNodeEvent()
	changed, requeue := o.Facts.Fleet.ObserveNode(node, o.Facts.Moment())
	if changed {
		requeue = append(requeue, node.Name)
	}
	o.request(requeue)
	o.requestChanged()
}

func (o *Observer) nodeGone(node *corev1.Node) {
	o.Facts.RecordNodeEvent()
	requeue := o.Facts.Fleet.ForgetNode(node.Name, node.UID, o.Facts.Moment())
	o.request(append(requeue, node.Name)) // which is forgotten there, too
	o.requestChanged()
}

// daemonSets gives the fleet the DaemonSets that nodes can't do without.
func (o *Observer) daemonSets(ctx context.Context) {
	var list appsv1.DaemonSetList
	if err := o.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		var notStarted *cache.ErrCacheNotStarted
		if !errors.As(err, &notStarted) {
			log.FromContext(ctx).Error(err, "Can't list DaemonSets from the cache")
		}
		return
	}
	var pods []ecosystem.SystemPod
	for i := range list.Items {
		if p, is := ecosystem.SystemPodOf(&list.Items[i]); is {
			pods = append(pods, p)
		}
	}
	o.Facts.Fleet.ObserveSystemPods(pods)
}

// watchLeases begins to watch the nodes' Leases when the first set needs them: 5,000 nodes renew 500 times a second.
func (o *Observer) watchLeases(ctx context.Context) {
	o.mu.Lock()
	started := o.leaseWatch
	o.leaseWatch = true
	o.mu.Unlock()
	if started {
		return
	}
	go func() { // GetInformer waits for the first list, and this is an informer's own handler
		_, err := o.watches.Add(ctx, kube.On(&coordinationv1.Lease{}, o.lease, func(*coordinationv1.Lease) {}))
		if err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Can't watch node Leases; conditions without a heartbeat stay unproven")
			o.mu.Lock()
			o.leaseWatch = false // the next event of a set tries again
			o.mu.Unlock()
		}
	}()
}

func (o *Observer) lease(lease *coordinationv1.Lease) {
	if lease.Namespace != corev1.NamespaceNodeLease || lease.Spec.RenewTime == nil {
		return
	}
	if o.Facts.Fleet.ObserveLease(lease.Name, lease.Spec.RenewTime.Time, o.Facts.Moment()) {
		o.request([]string{lease.Name})
	}
}

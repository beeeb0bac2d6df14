package healthcheckregistration

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

// Observer knows every stored registration, and has their targets looked at. It runs on every
// replica, so that one that takes over knows them already.
type Observer struct {
	Cache   cache.Cache
	Facts   *kube.Facts
	Watches *checking.Watches
	Shoots  *checking.Shoots

	policies policy.Policies[*v1alpha1.HealthCheckRegistration, reading]
	targets  kube.Requests
	watches  *kube.Watches
	book     book
	// informed has what each registration's targets were told of it.
	informed informed
	counts   counts
	synced   atomic.Bool
}

// NewObserver gives an observer that follows the rules, and does nothing else before Start.
func NewObserver(objects cache.Cache, opts Options) *Observer {
	o := &Observer{Cache: objects, Facts: opts.Facts, watches: kube.NewWatches(objects)}
	o.follow(opts.Guard, opts.Facts.Clock, opts.Rejections)
	return o
}

// follow has registrations follow the rules.
func (o *Observer) follow(rules *guard.Guard, by clock.PassiveClock, rejections *kube.Rejections) {
	o.policies.Init(policy.Hooks[*v1alpha1.HealthCheckRegistration, reading]{
		Kind: kindRegistration, Guard: rules, Clock: by, Rejections: rejections, Read: o.read, Changed: o.update, Forget: o.forget,
	})
}

// NeedLeaderElection is false: every replica observes.
func (*Observer) NeedLeaderElection() bool { return false }

// Start observes until ctx ends. It fails when the API server went back to an older state.
func (o *Observer) Start(ctx context.Context) error {
	return o.watches.Run(ctx, o.run, kube.On(&v1alpha1.HealthCheckRegistration{},
		func(hcr *v1alpha1.HealthCheckRegistration) { o.policies.Seen(ctx, hcr) }, o.policies.Gone))
}

func (o *Observer) run(ctx context.Context) error {
	if err := o.followNamespaces(ctx); err != nil {
		return err
	}
	o.synced.Store(true)
	o.lookAtAll(ctx)
	o.policies.Run(ctx)
	return nil
}

// lead takes the queue of targets of a replica that became the leader.
func (o *Observer) lead(targets kube.Queue) {
	o.targets.Attach(targets)
	o.lookAtAll(context.Background())
}

// leadRegistrations takes the queue of registrations.
func (o *Observer) leadRegistrations(registrations kube.Queue) {
	o.policies.Statuses.Attach(registrations)
	o.lookAtAll(context.Background())
}

// lookAtAll asks for a look at all registrations and targets that are known.
func (o *Observer) lookAtAll(ctx context.Context) {
	if !o.synced.Load() {
		return
	}
	o.informed.clear()
	for _, key := range o.policies.Keys() {
		o.request(key, 0)
		o.inform(ctx, key)
	}
}

// targetChanged has a target looked at.
func (o *Observer) targetChanged(target checking.Target) { o.targets.Add(nameOf(target), 0) }

// request asks for a look at a registration.
func (o *Observer) request(key types.NamespacedName, after time.Duration) {
	o.policies.Statuses.Add(key, after)
}

package healthcheckregistration

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/judging"
)

// Observer knows every stored registration and what the rules say of it, and has their targets looked at. It runs on every
// replica, so that one that takes over knows them already.
type Observer struct {
	Cache   cache.Cache
	Guard   *guard.Guard
	Facts   *kube.Facts
	Watches *checking.Watches
	Shoots  *checking.Shoots

	judge *judging.Judge[*v1alpha1.HealthCheckRegistration, reading]
	book  book
	// informed has what each registration's targets were told of it.
	informed informed
	counts   counts
	synced   atomic.Bool
	// lost takes the first object that the API server went back with.
	lost chan error

	mu            sync.Mutex
	targets       kube.Queue // needs mu, as all below; nil until this replica leads
	registrations kube.Queue
}

// NewObserver gives an observer that follows the rules, and does nothing else before Start.
func NewObserver(objects cache.Cache, opts Options) *Observer {
	o := &Observer{Cache: objects, Guard: opts.Guard, Facts: opts.Facts, lost: make(chan error, 1)}
	o.judge = judging.New(judging.Options[*v1alpha1.HealthCheckRegistration, reading]{
		Kind: kindRegistration, Guard: opts.Guard, Clock: opts.Facts.Clock, Rejections: opts.Rejections, Read: o.read,
	})
	o.judge.FollowPolicy(opts.Guard.Policy())
	opts.Guard.OnChange(o.rulesChanged)
	return o
}

// NeedLeaderElection is false: every replica observes.
func (*Observer) NeedLeaderElection() bool { return false }

// Start observes until ctx ends. It fails when the API server went back to an older state.
func (o *Observer) Start(ctx context.Context) error {
	informer, err := o.Cache.GetInformer(ctx, &v1alpha1.HealthCheckRegistration{})
	if err != nil {
		return fmt.Errorf("watch HealthCheckRegistrations: %w", err)
	}
	handlers := kube.Handlers(func(hcr *v1alpha1.HealthCheckRegistration) { o.registration(ctx, hcr) }, o.registrationGone, o.historyLost)
	registration, err := informer.AddEventHandler(handlers)
	if err != nil {
		return fmt.Errorf("watch HealthCheckRegistrations: %w", err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return nil // stopped before it began
	}
	if err := o.followNamespaces(ctx); err != nil {
		return err
	}
	o.synced.Store(true)
	o.lookAtAll(ctx)
	go o.judge.Run(ctx, o.judgeNow)
	select {
	case <-ctx.Done():
		return nil
	case err := <-o.lost:
		return fmt.Errorf("observe HealthCheckRegistrations: %w", err)
	}
}

func (o *Observer) historyLost(err error) {
	select {
	case o.lost <- err:
	default: // the first says enough
	}
}

// attach takes the queues of a replica that became the leader.
func (o *Observer) attach(targets, registrations kube.Queue) {
	o.mu.Lock()
	if targets != nil {
		o.targets = targets
	}
	if registrations != nil {
		o.registrations = registrations
	}
	o.mu.Unlock()
	o.lookAtAll(context.Background())
}

// lookAtAll asks for a look at all registrations and targets that are known.
func (o *Observer) lookAtAll(ctx context.Context) {
	if !o.synced.Load() {
		return
	}
	o.informed.clear()
	for _, key := range o.judge.Keys() {
		o.enqueueRegistration(key, 0)
		o.inform(ctx, key)
	}
}

// targetChanged has a target looked at.
func (o *Observer) targetChanged(target checking.Target) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kube.Enqueue(o.targets, nameOf(target), 0)
}

func (o *Observer) enqueueRegistration(key types.NamespacedName, after time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kube.Enqueue(o.registrations, key, after)
}

package probeconfig

import (
	"context"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/probing"
)

// Observer knows every stored config and its targets. It runs on every replica, so that one that
// takes over knows them already.
type Observer struct {
	Facts *kube.Facts
	// OwnNamespace is Autohealer's; "" when unknown.
	OwnNamespace string
	// Witnesses are asked when external probes fail.
	Witnesses *probing.Witnesses

	policies policy.Policies[*v1alpha1.ProbeConfig, reading]
	watches  *kube.Watches
	targets  targets
	synced   atomic.Bool
	// targetLooks and orphanLooks are asked for by who observes.
	targetLooks, orphanLooks kube.Requests
	// telling is held while targets are told of a config, or dropped: else an older one could come after a newer, or to one that
	// is dropped.
	telling sync.Mutex

	mu         sync.Mutex
	namespaces map[string]namespace // needs mu, as all below
	// told are the configs that all their targets know.
	told map[types.NamespacedName]*probe.Config
	// goneKinds are the kinds that configs scaled which are gone.
	goneKinds sets.Set[v1alpha1.DependentKind]
}

// NewObserver gives an observer that follows the rules, and does nothing else before Start.
func NewObserver(objects cache.Cache, opts Options) *Observer {
	o := &Observer{
		Facts: opts.Facts, OwnNamespace: opts.OwnNamespace, Witnesses: opts.Witnesses,
		watches: kube.NewWatches(objects), namespaces: map[string]namespace{}, told: map[types.NamespacedName]*probe.Config{},
		goneKinds: sets.New[v1alpha1.DependentKind](),
	}
	opts.Facts.Targets.Complete = func() bool { return o.synced.Load() && len(o.policies.Unjudged()) == 0 }
	o.policies.Init(policy.Hooks[*v1alpha1.ProbeConfig, reading]{
		Kind: kindProbeConfig, Guard: opts.Guard, Clock: opts.Facts.Clock, Rejections: opts.Rejections,
		Read: o.read, Guardrails: o.guardrails, Changed: o.update, Forget: o.forget,
	})
	return o
}

// NeedLeaderElection is false: every replica observes.
func (*Observer) NeedLeaderElection() bool { return false }

// Start observes until ctx ends. It fails when the API server went back to an older state.
func (o *Observer) Start(ctx context.Context) error {
	return o.watches.Run(ctx, o.run,
		kube.On(&corev1.Namespace{}, o.namespace, o.namespaceGone),
		kube.On(&v1alpha1.ProbeConfig{}, func(pc *v1alpha1.ProbeConfig) { o.policies.Seen(ctx, pc) }, o.policies.Gone),
	)
}

func (o *Observer) run(ctx context.Context) error {
	o.markSynced()
	var running sync.WaitGroup
	for range judges {
		running.Go(func() { o.policies.Run(ctx) })
	}
	running.Wait()
	return nil
}

// markSynced takes in that all namespaces are known. What configs were told before may lack targets, and a deleted one that
// seems to have none would be let go.
func (o *Observer) markSynced() {
	o.telling.Lock()
	o.mu.Lock()
	clear(o.told)
	o.mu.Unlock()
	o.synced.Store(true)
	o.telling.Unlock()
	for _, key := range o.policies.Keys() {
		o.retarget(key)
	}
	o.requestAll()
}

func (o *Observer) fleet() *probe.Fleet { return o.Facts.Targets }

// lead takes the queue of targets of a replica that became the leader.
func (o *Observer) lead(targets kube.Queue) {
	o.targetLooks.Attach(targets)
	o.requestAll()
}

// leadConfigs takes the queue of configs.
func (o *Observer) leadConfigs(configs kube.Queue) {
	o.policies.Statuses.Attach(configs)
	o.requestAll()
}

// leadOrphans takes the queue of who looks for what configs left that are gone.
func (o *Observer) leadOrphans(q kube.Queue) {
	o.orphanLooks.Attach(q)
	o.orphanLooks.Add(orphansName, 0)
}

// requestAll asks for a look at all that is known.
func (o *Observer) requestAll() {
	if !o.synced.Load() {
		return
	}
	o.requestConfigs()
	for _, key := range o.targets.keys() {
		o.requestTarget(key)
	}
}

func (o *Observer) requestConfigs() { o.policies.Statuses.AddAll(o.policies.Keys()...) }

func (o *Observer) requestConfig(key types.NamespacedName) { o.policies.Statuses.Add(key, 0) }

func (o *Observer) requestTarget(key probing.Key) { o.targetLooks.Add(key, 0) }

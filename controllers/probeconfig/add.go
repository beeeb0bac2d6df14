// Package probeconfig acts on ProbeConfigs:
//
//	Observer            every replica: configs, namespaces and targets; Observer.apply gives a target an event (probe.Target.Next)
//	probing.Prober      leader: runs the probes; each run comes back by Observer.Observe
//	TargetReconciler    leader: reads a target's Secrets, and scales its dependents
//	statusKeeper        leader: finalizers and statuses of configs
//	OrphanReconciler    leader: restores what was scaled down for configs that are gone
//
// Begin reading at TargetReconciler.Reconcile. What a target does by its two probes is drawn in package probe. Acting waits for
// the statusKeeper: the finalizer, and the kinds of dependents in the status, by which a later leader finds what was scaled down.
package probeconfig

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
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

	policies policy.Policies[*v1alpha1.ProbeConfig, parsedConfig]
	watches  *kube.Watches
	targets  targets
	synced   atomic.Bool
	// targetRequests and orphanRequests are the queues that observing adds to.
	targetRequests, orphanRequests kube.Requests
	// assigning is held while configs are assigned to targets, or targets removed: else an older config could replace a newer one, or
	// reach a target that is removed.
	assigning sync.Mutex

	mu         sync.Mutex
	namespaces map[string]namespaceState // needs mu, as all below
	// assigned are the configs that all their targets have.
	assigned map[types.NamespacedName]*probe.Config
	// goneKinds are the kinds that configs scaled which are gone.
	goneKinds sets.Set[v1alpha1.DependentKind]
}

// NewObserver gives an observer that follows the rules, and does nothing else before Start.
func NewObserver(objects cache.Cache, opts Options) *Observer {
	o := &Observer{
		Facts: opts.Facts, OwnNamespace: opts.OwnNamespace, Witnesses: opts.Witnesses,
		watches: kube.NewWatches(objects), namespaces: map[string]namespaceState{}, assigned: map[types.NamespacedName]*probe.Config{},
		goneKinds: sets.New[v1alpha1.DependentKind](),
	}
	opts.Facts.Targets.Complete = func() bool { return o.synced.Load() && len(o.policies.Unjudged()) == 0 }
	o.policies.Init(policy.Hooks[*v1alpha1.ProbeConfig, parsedConfig]{
		Kind: kindProbeConfig, Guard: opts.Guard, Clock: opts.Facts.Clock, Rejections: opts.Rejections,
		Read: o.parse, Guardrails: o.setGuardrails, Changed: o.update, Forget: o.forget,
	})
	return o
}

// NeedLeaderElection is false: every replica observes.
func (*Observer) NeedLeaderElection() bool { return false }

// Start observes until ctx ends. It fails when the API server went back to an older state.
func (o *Observer) Start(ctx context.Context) error {
	return o.watches.Run(ctx, o.run,
		kube.On(&corev1.Namespace{}, o.namespaceSeen, o.namespaceGone),
		kube.On(&v1alpha1.ProbeConfig{}, func(pc *v1alpha1.ProbeConfig) { o.policies.Seen(ctx, pc) }, o.policies.Gone),
	)
}

func (o *Observer) run(ctx context.Context) error {
	o.markSynced()
	var running sync.WaitGroup
	for range ruleWorkers {
		running.Go(func() { o.policies.Run(ctx) })
	}
	running.Wait()
	return nil
}

// markSynced takes in that all namespaces are known. What was assigned before may lack targets, and a deleted config
// that seems to have none would lose its finalizer.
func (o *Observer) markSynced() {
	o.assigning.Lock()
	o.mu.Lock()
	clear(o.assigned)
	o.mu.Unlock()
	o.synced.Store(true)
	o.assigning.Unlock()
	for _, key := range o.policies.Keys() {
		o.retarget(key)
	}
	o.requestAll()
}

func (o *Observer) fleet() *probe.Fleet { return o.Facts.Targets }

// attachTargets takes the queue of targets of a replica that became the leader.
func (o *Observer) attachTargets(targets kube.Queue) {
	o.targetRequests.Attach(targets)
	o.requestAll()
}

// attachConfigs takes the queue of configs.
func (o *Observer) attachConfigs(configs kube.Queue) {
	o.policies.Statuses.Attach(configs)
	o.requestAll()
}

// attachOrphans takes the queue of who looks for what configs left that are gone.
func (o *Observer) attachOrphans(q kube.Queue) {
	o.orphanRequests.Attach(q)
	o.orphanRequests.Add(orphansName, 0)
}

// requestAll enqueues all that is known.
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

func (o *Observer) requestTarget(key probing.Key) { o.targetRequests.Add(key, 0) }

// namespaceState is what matters of one.
type namespaceState struct {
	labels                  map[string]string
	hibernated, terminating bool
	// resetBreaker is the breaker that someone reset; it counts on Autohealer's own namespace only.
	resetBreaker string
}

func readNamespace(ns *corev1.Namespace) namespaceState {
	value, annotated := ns.Annotations[v1alpha1.AnnotationHibernated]
	return namespaceState{labels: ns.Labels, hibernated: annotated && value != "false", terminating: ns.DeletionTimestamp != nil, resetBreaker: ns.Annotations[v1alpha1.AnnotationResetBreaker]}
}

func (o *Observer) namespaceSeen(ns *corev1.Namespace) {
	is := readNamespace(ns)
	o.mu.Lock()
	was, known := o.namespaces[ns.Name]
	o.namespaces[ns.Name] = is
	o.mu.Unlock()
	if ns.Name == o.OwnNamespace {
		o.resetBreaker(is.resetBreaker)
	}
	if !known || !maps.Equal(was.labels, is.labels) || was.hibernated != is.hibernated || was.terminating != is.terminating {
		o.namespaceChanged(ns.Name)
	}
}

func (o *Observer) namespaceGone(ns *corev1.Namespace) {
	o.mu.Lock()
	delete(o.namespaces, ns.Name)
	o.mu.Unlock()
	o.namespaceChanged(ns.Name)
}

// namespaceChanged looks anew at whose target a namespace is.
func (o *Observer) namespaceChanged(name string) {
	if !o.synced.Load() {
		return
	}
	o.assigning.Lock()
	defer o.assigning.Unlock()
	for _, config := range o.policies.Keys() {
		j, ok := o.policies.Get(config)
		if !ok || j.Read.config == nil {
			continue
		}
		key, selected := targetKey(config, name), o.selects(j.Read.config, name)
		if selected || o.targets.find(key) != nil {
			o.assign(key, j.Read.config, !selected)
			o.requestConfig(config)
		}
	}
}

// namespaceState is a namespace as it was seen last; ok is false when there is none of that name.
func (o *Observer) namespaceState(name string) (ns namespaceState, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ns, ok = o.namespaces[name]
	return ns, ok
}

// selects says whether a namespace is a target of a config.
func (o *Observer) selects(c *probe.Config, name string) bool {
	if c.Namespaces == nil {
		return name == c.Namespace
	}
	ns, ok := o.namespaceState(name)
	return ok && c.Namespaces.Matches(labels.Set(ns.labels))
}

// candidateNamespaces are the names of all namespaces that a config may select.
func (o *Observer) candidateNamespaces(c *probe.Config) []string {
	if c.Namespaces == nil {
		return []string{c.Namespace}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.namespaces))
}

const (
	targetWorkers = 16
	configWorkers = 4
	// ruleWorkers ask the API server what accounts may do, one question after the other.
	ruleWorkers = 4
)

// Options are what the controllers for ProbeConfigs need.
type Options struct {
	policy.Options
	// Protection says which objects must not be scaled down after all.
	Protection Protection
	// Dial says which addresses probes may dial.
	Dial kubeconfig.Policy
	// Witnesses are asked when external probes fail.
	Witnesses *probing.Witnesses
}

// AddToManager adds the observer, the prober and the controllers.
func AddToManager(mgr manager.Manager, opts Options) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	if err := probing.RegisterMetrics(); err != nil {
		return err
	}
	report := NewReporter(mgr.GetEventRecorder("autohealer"))
	observer := NewObserver(mgr.GetCache(), opts)
	prober := (&probing.Prober{Handler: observer, Policy: opts.Dial, Witnesses: opts.Witnesses}).Init()
	reader := &actuate.ScaleReader{Live: mgr.GetAPIReader(), Client: mgr.GetClient()}
	targets := &TargetReconciler{
		Observer: observer, Prober: prober, Live: mgr.GetAPIReader(), Errors: &observer.policies.Errors, Report: report,
		Reader: reader, Protection: opts.Protection,
		Scales: &actuate.Scales{
			Client: mgr.GetClient(), Acts: mgr.GetLogger().WithName(kube.HistoryLogger), Leads: opts.Leads,
			Current: opts.Current(mgr),
		},
	}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	if err := errors.Join(mgr.Add(prober), mgr.Add(opts.Witnesses)); err != nil {
		return err
	}
	if err := kube.AddController(mgr, "probeconfig-target", targets, targetWorkers, observer.attachTargets); err != nil {
		return err
	}
	orphans := NewOrphanReconciler(targets)
	if err := kube.AddController(mgr, "probeconfig-orphans", orphans, 1, observer.attachOrphans); err != nil {
		return err
	}
	configs := &policy.Keeper[*v1alpha1.ProbeConfig]{Steps: (&statusKeeper{Observer: observer, Report: report, Reader: reader}).steps(), Clock: opts.Facts.Clock, Urgent: observer.policies.VerdictUnreported, Leads: opts.Leads}
	return configs.AddToManager(mgr, "probeconfig", configWorkers, observer.attachConfigs)
}

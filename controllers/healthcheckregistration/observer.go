package healthcheckregistration

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

// Observer knows every stored registration, and has their targets evaluated. It runs on every
// replica, so that one that takes over knows them already.
type Observer struct {
	Cache   cache.Cache
	Facts   *kube.Facts
	Watches *checking.Watches

	policies policy.Policies[*v1alpha1.HealthCheckRegistration, parsedRegistration]
	targets  kube.Requests
	watches  *kube.Watches
	results  resultStore
	// notifying is held while targets are asked for because of a registration.
	notifying sync.Mutex
	synced    atomic.Bool
}

// NewObserver gives an observer that follows the rules, and does nothing else before Start.
func NewObserver(objects cache.Cache, opts Options) *Observer {
	o := &Observer{Cache: objects, Facts: opts.Facts, watches: kube.NewWatches(objects)}
	o.initPolicies(opts.Guard, opts.Facts.Clock, opts.Rejections)
	return o
}

// initPolicies has registrations follow the rules.
func (o *Observer) initPolicies(rules *guard.Guard, by clock.PassiveClock, rejections *kube.Rejections) {
	o.policies.Init(policy.Hooks[*v1alpha1.HealthCheckRegistration, parsedRegistration]{
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
	if err := o.watchNamespaces(ctx); err != nil {
		return err
	}
	o.synced.Store(true)
	o.enqueueAll(ctx)
	o.policies.Run(ctx)
	return nil
}

// attachTargets takes the queue of targets of a replica that became the leader.
func (o *Observer) attachTargets(targets kube.Queue) {
	o.targets.Attach(targets)
	o.enqueueAll(context.Background())
}

// attachRegistrations takes the queue of registrations.
func (o *Observer) attachRegistrations(registrations kube.Queue) {
	o.policies.Statuses.Attach(registrations)
	o.enqueueAll(context.Background())
}

// enqueueAll enqueues all registrations and targets that are known.
func (o *Observer) enqueueAll(ctx context.Context) {
	if !o.synced.Load() {
		return
	}
	for j := range o.judgedRegistrations() {
		key := client.ObjectKeyFromObject(j.Object)
		o.renotifyTargets(j.Object.UID)
		o.request(key, 0)
		o.notifyTargets(ctx, key)
	}
}

// targetChanged has a target evaluated.
func (o *Observer) targetChanged(target checking.Target) { o.targets.Add(nameOf(target), 0) }

// request enqueues a registration.
func (o *Observer) request(key types.NamespacedName, after time.Duration) {
	o.policies.Statuses.Add(key, after)
}

// fingerprint is all of a registration by which its targets go, but for what is judged anew with each evaluation.
type fingerprint struct {
	generation, judged int64
	invalidations      int
	outdated, deleting bool
	state              lifecycle.State
	reset              string
	pause              policy.Pause
	known              bool
}

func (o *Observer) fingerprint(j storedRegistration) fingerprint {
	hcr := j.Object
	return fingerprint{
		generation: hcr.Generation, judged: j.Generation, invalidations: j.Invalidations, outdated: j.Outdated, deleting: hcr.DeletionTimestamp != nil,
		state: j.State(hcr.Spec.Mode == v1alpha1.Observe), reset: hcr.Annotations[v1alpha1.AnnotationResetBreaker], pause: j.Pause, known: j.PauseKnown,
	}
}

// notifyTargets enqueues all targets of a registration that means something else to them than when they were last asked for.
// Our own status is written again and again while some of them change, which mustn't have thousands of others evaluated. It says
// whether they were asked for, then or now.
func (o *Observer) notifyTargets(ctx context.Context, key types.NamespacedName) bool {
	o.notifying.Lock()
	defer o.notifying.Unlock()
	j, ok := o.policies.Get(key)
	if !ok || !o.synced.Load() {
		return false
	}
	now, list := o.fingerprint(j), o.results.results(j.Object.UID)
	if list == nil { // it is forgotten, or who follows it informs of it next
		return false
	}
	if list.notified != nil && *list.notified == now {
		return true
	}
	if !o.enqueueTargets(ctx, j.Read.kind, metav1.NamespaceAll) {
		return false
	}
	list.notified = &now
	return true
}

// renotifyTargets has all targets of a registration asked for when it is next informed of.
func (o *Observer) renotifyTargets(uid types.UID) {
	o.notifying.Lock()
	defer o.notifying.Unlock()
	if list := o.results.results(uid); list != nil {
		list.notified = nil
	}
}

// enqueueTargets enqueues all objects of a kind in a namespace, or in all of them, and says whether they are known.
func (o *Observer) enqueueTargets(ctx context.Context, kind schema.GroupVersionKind, namespace string) bool {
	if err := o.Watches.Watch(ctx, kind, true); err != nil {
		return false // the registration's own reconciler asks again, and tells why not
	}
	objects, err := o.Watches.List(ctx, kind, namespace, allTargets)
	if err != nil {
		return false
	}
	keys := make([]types.NamespacedName, len(objects))
	for i, object := range objects {
		keys[i] = nameOf(checking.Target{Kind: kind.GroupKind(), Key: client.ObjectKeyFromObject(object)})
	}
	o.targets.AddAll(keys...)
	return true
}

// watchNamespaces has targets evaluated that a registration selects, or selected, by the labels of their namespace.
func (o *Observer) watchNamespaces(ctx context.Context) error {
	informer, err := o.Cache.GetInformer(ctx, &corev1.Namespace{})
	if err != nil {
		return fmt.Errorf("watch Namespaces: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		o.namespaceRelabelled(ctx, before.(*corev1.Namespace), after.(*corev1.Namespace))
	}})
	return err
}

// namespaceRelabelled has all targets in a namespace evaluated whose labels changed. A namespace that is new has none, or none that were
// looked at without its labels.
func (o *Observer) namespaceRelabelled(ctx context.Context, before, after *corev1.Namespace) {
	if maps.Equal(before.Labels, after.Labels) || !o.synced.Load() {
		return
	}
	kinds := map[schema.GroupVersionKind][]storedRegistration{}
	for j := range o.judgedRegistrations() {
		if j.Object.Spec.Target.NamespaceSelector != nil {
			kinds[j.Read.kind] = append(kinds[j.Read.kind], j)
		}
	}
	for kind, by := range kinds {
		if o.enqueueTargets(ctx, kind, after.Name) {
			continue
		}
		for _, j := range by { // all of the kind are looked at once it can be read
			o.renotifyTargets(j.Object.UID)
			o.request(client.ObjectKeyFromObject(j.Object), 0)
		}
	}
}

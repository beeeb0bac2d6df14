package probeconfig

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/probing"
)

// targets own the state of all targets of all configs. It is safe for concurrent use.
type targets struct {
	all sync.Map // from probing.Key to *target
}

// target holds what is known of one.
type target struct {
	mu sync.Mutex
	is probe.Target // needs mu
}

// apply gives a target an event, and passes on what follows: to the fleet, the queue of targets and the statuses. Ok is false when there
// is no such target.
func (o *Observer) apply(key probing.Key, e probe.Event) (target probe.Target, do probe.Actions, ok bool) {
	t := o.targets.find(key)
	if t == nil {
		return target, do, false
	}
	t.mu.Lock()
	t.is, do = t.is.Next(e)
	target = t.is
	breaker := o.updateFleet(&target, do) // with t.mu: in the order in which it happened
	t.mu.Unlock()
	if breaker {
		o.requestAll() // it holds them all, or lets them go
	}
	if do.Reconcile {
		o.requestTarget(key)
	}
	if do.UpdateStatus {
		o.requestConfig(target.Config.Key())
	}
	return target, do, true
}

// updateFleet says whether the breaker opened or closed.
func (o *Observer) updateFleet(target *probe.Target, do probe.Actions) (breaker bool) {
	switch at := target.Key(); {
	case do.RunCounted:
		return o.fleet().ObserveRun(at, &target.State, target.State.At)
	case do.Unprobed:
		o.fleet().ObserveUnprobed(at)
	case do.Gone:
		o.fleet().Forget(at)
	case do.Down != nil:
		o.fleet().ObserveDown(at, *do.Down)
	}
	return false
}

// update takes in a config that changed, or whose verdict did.
func (o *Observer) update(_ context.Context, before, now storedConfig) {
	if now.Object != before.Object {
		o.followBreaker(now.Object, before.Object == nil || before.Object.Status.BreakerID != now.Object.Status.BreakerID)
	}
	if before.Object == nil || !now.SameVerdict(before) || !o.assignedToAll(now) || !sameForTargets(before.Object, now.Object) {
		o.retarget(client.ObjectKeyFromObject(now.Object))
	}
}

// sameForTargets says whether nothing changed by which targets go, but for what is judged: our own status is written at each
// turn of any of them.
func sameForTargets(was, is *v1alpha1.ProbeConfig) bool {
	return was.UID == is.UID && was.Generation == is.Generation && was.DeletionTimestamp.Equal(is.DeletionTimestamp) &&
		slices.Equal(was.Finalizers, is.Finalizers) && slices.Equal(was.Status.DependentKinds, is.Status.DependentKinds)
}

// retarget makes a config's targets those that it asks for now. A namespace that it doesn't select any more stays until its
// replicas are restored.
func (o *Observer) retarget(key types.NamespacedName) {
	o.assigning.Lock()
	defer o.assigning.Unlock()
	j, ok := o.policies.Get(key)
	if !ok {
		return
	}
	c := j.Read.config
	if c == nil { // its targets go on with what they know, and stop
		for _, t := range o.targets.of(key) {
			o.requestTarget(keyOf(&t))
		}
		return
	}
	for _, name := range o.candidateNamespaces(c) {
		if o.selects(c, name) {
			o.assign(targetKey(key, name), c, false)
		}
	}
	for _, t := range o.targets.of(key) {
		if !o.selects(c, t.Namespace) {
			o.assign(keyOf(&t), c, true)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.assigned[key] = c
}

// assignedToAll says whether all targets of a config know it as it was read last. One that can't be read asks for none.
func (o *Observer) assignedToAll(j storedConfig) bool {
	if !o.synced.Load() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return j.Read.unreadable != nil || j.Read.config != nil && o.assigned[client.ObjectKeyFromObject(j.Object)] == j.Read.config
}

// assign gives a target its config. In a namespace that is new, or that is there again, nothing is known of its objects.
// It needs o.assigning.
func (o *Observer) assign(key probing.Key, c *probe.Config, departed bool) {
	o.targets.ensure(key, c)
	again := o.namespaceActive(key.Namespace) && o.fleet().Add(probe.TargetKey{Config: c.UID, Namespace: key.Namespace}, c.Namespace != o.OwnNamespace)
	o.apply(key, probe.ConfigAssigned{Config: c, Deselected: departed, NamespaceIsNew: again})
}

// Observe takes in what a run of probes found, and says when the next one is.
func (o *Observer) Observe(key probing.Key, run probe.Run) (next time.Time) {
	switch target, do, ok := o.apply(key, probe.RunEnded{Run: run}); {
	case !ok:
		return run.Ended.Add(time.Minute) // its removal is on its way
	case !do.RunCounted: // it is of something else than what is probed now
		return run.Ended
	default:
		return target.State.NextRun
	}
}

func (ts *targets) find(key probing.Key) *target {
	t, _ := ts.all.Load(key)
	found, _ := t.(*target)
	return found
}

// get gives a target's state; ok is false when there is none.
func (ts *targets) get(key probing.Key) (target probe.Target, ok bool) {
	t := ts.find(key)
	if t == nil {
		return target, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.is, true
}

// ensure makes a target for a config if there is none.
func (ts *targets) ensure(key probing.Key, c *probe.Config) {
	ts.all.LoadOrStore(key, &target{is: probe.Target{Namespace: key.Namespace, Config: c}})
}

func (ts *targets) forget(key probing.Key) { ts.all.Delete(key) }

// of are the targets of a config, by namespace.
func (ts *targets) of(config types.NamespacedName) (all []probe.Target) {
	name := config.String()
	for _, key := range ts.keys() {
		if key.Name != name {
			continue
		}
		if target, ok := ts.get(key); ok {
			all = append(all, target)
		}
	}
	slices.SortFunc(all, func(a, b probe.Target) int { return strings.Compare(a.Namespace, b.Namespace) })
	return all
}

func (ts *targets) keys() (all []probing.Key) {
	for key := range ts.all.Range {
		all = append(all, key.(probing.Key))
	}
	return all
}

// targetKey names a target, in its queue and for the Prober.
func targetKey(config types.NamespacedName, namespace string) probing.Key {
	return probing.Key{Namespace: namespace, Name: config.String()}
}

func keyOf(target *probe.Target) probing.Key { return targetKey(target.Config.Key(), target.Namespace) }

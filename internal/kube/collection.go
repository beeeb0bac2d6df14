package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// crdPollInterval lies between two looks for a kind that isn't installed.
const crdPollInterval = 5 * time.Second

// PastDeadline lets a deadline lie behind us when it is looked at.
const PastDeadline = time.Millisecond

// Collection follows all objects of a cluster-scoped kind of ours, and passes all of them on after each change of a spec, a label or an annotation: it
// is for kinds that rule over others, of which only all together mean something. It runs on every replica.
type Collection[T client.Object] struct {
	Cache cache.Cache
	// Kind is an empty object.
	Kind T
	// Use takes all objects, sorted by name. They aren't to be changed. It is called first when all that are stored are
	// known, and by one goroutine. It gives when it is to be called again though nothing changes; the zero time is never.
	Use func(context.Context, []T) (again time.Time)
	// Early takes all objects that are known, sorted by name, at each such change, also while Use is still busy with an
	// older state. Default: nobody does.
	Early func([]T)
	// Listed is called when Early has had all objects there are, also when that is none since the kind isn't installed.
	// Default: nobody is.
	Listed func()
	// Seen is called for every object that is new, changed in any field, or deleted. Default: nothing is.
	Seen func(name string)
	// After is a collection that must be in use before this one. Default: none.
	After interface{ Known() <-chan struct{} }
	// Clock. Default: the machine's.
	Clock clock.Clock

	once    sync.Once
	changed chan struct{} // holds one notice at most: changes that come while the last ones are being used are used together
	known   chan struct{} // closed once Use was called

	mu      sync.Mutex
	objects map[string]T        // needs mu
	inForce map[types.UID]int64 // needs mu: the generations that Use was given last; nil before
	changes int                 // needs mu: that the watch delivered
}

// NeedLeaderElection is false: every replica serves the webhook.
func (*Collection[T]) NeedLeaderElection() bool { return false }

// InForce are the generations that are in force, by UID; nil until all are known.
func (c *Collection[T]) InForce() map[types.UID]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inForce
}

// Changes counts those that the watch delivered, in force or not yet.
func (c *Collection[T]) Changes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}

// Known is closed once all objects are known and in use.
func (c *Collection[T]) Known() <-chan struct{} {
	c.make()
	return c.known
}

func (c *Collection[T]) make() {
	c.once.Do(func() {
		c.changed, c.known = make(chan struct{}, 1), make(chan struct{})
		if c.Clock == nil {
			c.Clock = clock.RealClock{}
		}
	})
}

// Synced gives an error until all objects are known.
func (c *Collection[T]) Synced() error {
	if c.InForce() == nil {
		return fmt.Errorf("%T isn't read yet", c.Kind)
	}
	return nil
}

// Start follows until ctx ends. Without the kind's CRD it waits for it.
func (c *Collection[T]) Start(ctx context.Context) error {
	c.make()
	if there, err := c.await(ctx); err != nil || !there {
		return err
	}
	return NewWatches(c.Cache).Run(ctx, c.follow, On(client.Object(c.Kind), c.seen, c.gone))
}

// follow uses all objects when it is their turn, again after each change, and when it is time, until ctx ends.
func (c *Collection[T]) follow(ctx context.Context) error {
	c.listed()
	if c.After != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-c.After.Known():
		}
	}
	select {
	case <-c.changed: // the first ones are used now
	default:
	}
	again := c.use(ctx)
	close(c.known)
	for {
		var due <-chan time.Time // never, where again is the zero time
		if !again.IsZero() {
			due = c.Clock.After(max(0, again.Sub(c.Clock.Now())) + PastDeadline)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed:
		case <-due:
		}
		again = c.use(ctx)
	}
}

// await waits for the kind; it isn't there when ctx ends before.
func (c *Collection[T]) await(ctx context.Context) (there bool, err error) {
	waiting := false
	_ = wait.PollUntilContextCancel(ctx, crdPollInterval, true, func(ctx context.Context) (bool, error) {
		if _, err = c.Cache.GetInformer(ctx, c.Kind); !meta.IsNoMatchError(err) {
			return true, nil
		}
		if !waiting {
			log.FromContext(ctx).Error(err, "Nothing new is done until the CRD is installed")
			waiting = true
			c.listed()
		}
		return false, nil
	})
	if ctx.Err() != nil {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("watch %T: %w", c.Kind, err)
	}
	return true, nil
}

func (c *Collection[T]) listed() {
	if c.Listed != nil {
		c.Listed()
	}
}

func (c *Collection[T]) seen(object T) {
	c.mu.Lock()
	was, there := c.objects[object.GetName()]
	if c.objects == nil {
		c.objects = map[string]T{}
	}
	c.objects[object.GetName()] = object
	changed := !there || !sameRule(was, object)
	if changed {
		c.changes++
	}
	c.mu.Unlock()
	c.notify(object.GetName(), changed)
}

// sameRule says whether two states of an object mean the same: rules over it may read its labels and annotations, too,
// which change without a new generation.
func sameRule(a, b client.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration() &&
		maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetAnnotations(), b.GetAnnotations())
}

func (c *Collection[T]) gone(object T) {
	c.mu.Lock()
	if was, there := c.objects[object.GetName()]; there && was.GetUID() == object.GetUID() {
		delete(c.objects, object.GetName())
	}
	c.changes++
	c.mu.Unlock()
	c.notify(object.GetName(), true)
}

// notify passes on the watch's event of an object, and whether it changes what all of them mean.
func (c *Collection[T]) notify(name string, changed bool) {
	if changed {
		if c.Early != nil {
			c.Early(c.all())
		}
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
	if c.Seen != nil {
		c.Seen(name)
	}
}

// all objects that are known, by name.
func (c *Collection[T]) all() []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.objects), func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) })
}

func (c *Collection[T]) use(ctx context.Context) (again time.Time) {
	objects := c.all()
	again = c.Use(ctx, objects)
	inForce := make(map[types.UID]int64, len(objects))
	for _, object := range objects {
		inForce[object.GetUID()] = object.GetGeneration()
	}
	c.mu.Lock()
	c.inForce = inForce
	c.mu.Unlock()
	return again
}

// Rejections has which rules refuse which stored policies, for the Guardrails' statuses. It is safe for concurrent use.
type Rejections struct {
	mu       sync.Mutex
	by       map[string][]string // needs mu: rules by policy
	onChange func(owner string)  // needs mu
}

// OnChange calls f for each owner of rules whose rejections changed.
func (r *Rejections) OnChange(f func(owner string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onChange = f
}

// Set records which rules refuse a policy, given as Kind/name or Kind/namespace/name; none for one that is deleted or
// admitted.
func (r *Rejections) Set(policy string, rules []string) {
	r.mu.Lock()
	was := r.by[policy]
	if r.by == nil {
		r.by = map[string][]string{}
	}
	if r.by[policy] = rules; len(rules) == 0 {
		delete(r.by, policy)
	}
	onChange := r.onChange
	r.mu.Unlock()
	if onChange == nil || slices.Equal(was, rules) {
		return
	}
	for _, owner := range owners(was, rules) {
		onChange(owner)
	}
}

// Of gives the policies that rules of an owner refuse, sorted.
func (r *Rejections) Of(owner string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(func(yield func(string) bool) {
		for policy, rules := range r.by {
			if slices.ContainsFunc(rules, func(rule string) bool { return ownerOf(rule) == owner }) && !yield(policy) {
				return
			}
		}
	})
}

// ownerOf a rule is the part before its slash: a Guardrail's name, or a kind in lower case.
func ownerOf(rule string) string {
	owner, _, _ := strings.Cut(rule, "/")
	return owner
}

func owners(lists ...[]string) []string {
	found := map[string]struct{}{}
	for _, rules := range lists {
		for _, rule := range rules {
			found[ownerOf(rule)] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

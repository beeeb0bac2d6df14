package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

// runner runs checks, so that one which panics, hangs or is slow costs nothing but its own result.
type runner struct {
	extension string
	kind      string
	timeout   time.Duration
	seed      client.Client
	// live reads the seed past any cache; nil where the extension's author gave the client.
	live   client.Client
	shoots shootClients
	refs   *refs

	// running are the checks that run, by checkOf.
	running sync.Map
}

// shootClients gives the client of the shoot in a namespace, and forgets it.
type shootClients interface {
	Of(ctx context.Context, namespace string) (client.Client, error)
	Forget(namespace string)
}

// checkOf is one check of one target.
type checkOf struct {
	target              types.NamespacedName
	conditionType, name string
}

func (c check) of(target types.NamespacedName) checkOf {
	return checkOf{target, c.conditionType, c.name}
}

// runAll runs the checks at once, with this client of the seed, and gives their results, each within the timeout.
func (r *runner) runAll(ctx context.Context, seed client.Client, target types.NamespacedName, checks []check) []health.Result {
	results := make([]health.Result, len(checks))
	var running sync.WaitGroup
	for i, c := range checks {
		running.Go(func() {
			results[i] = r.runOne(ctx, seed, target, c)
			results[i].Check = c.name
		})
	}
	running.Wait()
	return results
}

// confirm gives the results of the checks by what is there now. Those that were True stay so, since no harm comes of them.
func (r *runner) confirm(ctx context.Context, target types.NamespacedName, checks []check, seen []health.Result) []health.Result {
	if r.live == nil {
		return seen
	}
	var doubtful []check
	var results []health.Result
	for i, c := range checks {
		if seen[i].Status == health.True {
			results = append(results, seen[i])
		} else {
			doubtful = append(doubtful, c)
		}
	}
	return append(results, r.runAll(ctx, r.live, target, doubtful)...)
}

// runOne runs one check, and comes back by the timeout whether the check does or not.
func (r *runner) runOne(ctx context.Context, seed client.Client, target types.NamespacedName, c check) health.Result {
	id := c.of(target)
	if _, busy := r.running.LoadOrStore(id, nil); busy {
		return health.Error(r.timeoutError())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, r.timeoutError())
	done := make(chan health.Result, 1)
	go func() {
		result := health.Error(errors.New("the check ended its goroutine"))
		defer func() {
			r.running.Delete(id) // before the result is there: the next run may follow at once
			done <- result
			cancel()
		}()
		result = r.runProtected(ctx, seed, target, c)
	}()
	select {
	case result := <-done:
		return result
	case <-ctx.Done():
		select {
		case result := <-done: // it ended just then, and cancelled itself
			return result
		default:
			return health.Error(context.Cause(ctx))
		}
	}
}

func (r *runner) timeoutError() error {
	return fmt.Errorf("the check gave no result within %s", r.timeout)
}

func (r *runner) runProtected(ctx context.Context, seed client.Client, target types.NamespacedName, c check) (result health.Result) {
	defer func() {
		if p := recover(); p != nil {
			log.FromContext(ctx).Error(fmt.Errorf("%v", p), "Check panicked", "check", c.name, "conditionType", c.conditionType, "stack", string(debug.Stack()))
			result = health.Error(errors.New("the check panicked; the log has the stack"))
		}
	}()
	single, err := r.check(ctx, seed, target, c)
	switch {
	case errors.Is(err, context.DeadlineExceeded): // also of a client that counts the time by itself
		return health.Error(r.timeoutError()) // the same text as for one that ignores it
	case err != nil:
		return health.Error(err)
	case single == nil:
		return health.Error(errors.New("the check gave no result"))
	}
	result = health.Result{Status: health.Status(single.Status), Detail: single.Detail, Codes: single.Codes, Note: single.note}
	if single.ProgressingThreshold != nil {
		result.Timeout = *single.ProgressingThreshold
	}
	return result
}

func (r *runner) check(ctx context.Context, seed client.Client, target types.NamespacedName, c check) (*SingleCheckResult, error) {
	if err := r.followRefs(ctx, target, c); err != nil { // before it reads, so that no news is lost
		return nil, err
	}
	instance := c.newCheck()
	if instance == nil {
		return nil, errors.New("no check was made")
	}
	if s, ok := instance.(suffixed); ok {
		s.SetLoggerSuffix(r.extension, r.kind)
	}
	switch c := instance.(type) {
	case SeedClient:
		c.InjectSeedClient(seed)
	case sourceClient:
		c.InjectSourceClient(seed)
	}
	if inject := injectShoot(instance); inject != nil {
		shoot, err := r.shoots.Of(ctx, target.Namespace)
		if err != nil {
			return nil, err
		}
		inject(shoot)
	}
	return instance.Check(ctx, target)
}

// followRefs has the target checked when something changes that the check refers to.
func (r *runner) followRefs(ctx context.Context, target types.NamespacedName, c check) error {
	referrer, ok := c.newCheck().(Referrer)
	if !ok {
		return nil
	}
	objects := referrer.Refs(target)
	if ctx.Err() != nil { // the target may be gone meanwhile
		return context.Cause(ctx)
	}
	return r.refs.follow(c.of(target), objects)
}

// refs knows which checks of which targets look at an object of the seed, and watches the kinds of these objects.
type refs struct {
	scheme *runtime.Scheme
	kinds  meta.RESTMapper
	cache  cache.Cache
	// watch starts a source; the controller's.
	watch func(source.Source) error
	index health.Index[checkOf]

	mu      sync.Mutex
	watched sets.Set[schema.GroupVersionKind] // needs mu
}

func newRefs(mgr manager.Manager, c controller.Controller) *refs {
	return &refs{
		scheme: mgr.GetScheme(), kinds: mgr.GetRESTMapper(), cache: mgr.GetCache(), watch: c.Watch, watched: sets.New[schema.GroupVersionKind](),
	}
}

// follow makes the check's target be checked when one of these objects changes, and no others as before. After an error it is as before.
func (r *refs) follow(by checkOf, objects []client.Object) error {
	var wanted []health.Ref
	for _, o := range objects {
		kind, err := apiutil.GVKForObject(o, r.scheme)
		if err != nil {
			return fmt.Errorf("find the kind of what a check refers to: %w", err)
		}
		if err := r.watchKind(kind); err != nil {
			return err
		}
		key := client.ObjectKeyFromObject(o)
		if inNone, err := clusterScoped(r.kinds, kind); err != nil {
			return err
		} else if inNone {
			key.Namespace = "" // checks that know the kind by its name alone give the target's
		}
		wanted = append(wanted, health.Ref{Kind: kind, Namespace: key.Namespace, Name: key.Name})
	}
	r.index.SetRefs(by, wanted)
	return nil
}

// clusterScoped says whether objects of the kind are in no namespace. Of a kind that isn't served it is false: each evaluation asks again.
func clusterScoped(kinds meta.RESTMapper, kind schema.GroupVersionKind) (bool, error) {
	mapping, err := kinds.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask whether %s is in namespaces: %w", kind.Kind, err)
	}
	return mapping.Scope.Name() == meta.RESTScopeNameRoot, nil
}

// forget what these checks of a target refer to.
func (r *refs) forget(target types.NamespacedName, checks []check) {
	for _, c := range checks {
		r.index.SetRefs(c.of(target), nil)
	}
}

func (r *refs) watchKind(kind schema.GroupVersionKind) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watched.Has(kind) {
		return nil
	}
	changed := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return r.affected(kind, client.ObjectKeyFromObject(o))
	})
	if err := r.watch(source.Kind(r.cache, empty(kind, r.scheme), changed)); err != nil {
		return fmt.Errorf("watch %s: %w", kind.Kind, err)
	}
	r.watched.Insert(kind)
	return nil
}

// affected are the targets whose checks look at an object.
func (r *refs) affected(kind schema.GroupVersionKind, key types.NamespacedName) []reconcile.Request {
	requests := sets.New[reconcile.Request]()
	for c := range r.index.Affected(kind, key) {
		requests.Insert(reconcile.Request{NamespacedName: c.target})
	}
	return requests.UnsortedList()
}

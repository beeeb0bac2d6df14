// Package checking reads what the checks of HealthCheckRegistrations look at, and makes the checks. It writes nothing.
//
//	Checker   makes the checks of one target; begin reading at Checker.Results
//	Watches   informers of kinds in the seed; says which targets to evaluate when an object changes
//	Shoots    connections to shoots by their kubeconfigs, and a mirror of each query (package shoots)
//	Layouts   how kinds keep conditions
package checking

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/shoots"
)

// Checker makes checks. It is safe for concurrent use.
type Checker struct {
	Watches *Watches
	Shoots  *Shoots
	// Live reads from the API server, past any cache, and what it doesn't find may be trusted.
	Live  client.Reader
	Clock clock.PassiveClock
}

// NewChecker makes one that reads past the manager's cache, in the seed and in the shoots.
func NewChecker(mgr manager.Manager, watches *Watches, dial kubeconfig.Policy) (*Checker, error) {
	options := client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()}
	seed, errSeed := client.NewWithWatch(mgr.GetConfig(), options)
	live, errLive := shoots.NewVerifyingClient(mgr.GetConfig(), options)
	if err := errors.Join(errSeed, errLive); err != nil {
		return nil, fmt.Errorf("make the client that checks read with: %w", err)
	}
	return &Checker{
		Watches: watches, Live: live, Clock: watches.Clock,
		Shoots: &Shoots{Seed: seed, Scheme: mgr.GetScheme(), Dial: dial, Changed: watches.Changed, Clock: watches.Clock},
	}, nil
}

// Interest is a registration that is about a target, and the target in the version that it names.
type Interest struct {
	Registration *registration.Registration
	Object       *unstructured.Unstructured
}

// Follow has the target judged again when what the checks of those interested look at changes. What else it followed before ends.
// Checks that can't tell what that is are left out.
func (c *Checker) Follow(target Target, by ...Interest) {
	var refs []registration.Ref
	for _, i := range by {
		for _, check := range i.Registration.Checks {
			if !check.InSeed() {
				continue
			}
			if ref, err := check.Ref(i.Object); err == nil {
				refs = append(refs, ref)
			}
		}
	}
	c.Watches.Follow(target, refs)
	c.Shoots.Follow(target, by)
}

// Results makes a registration's checks of a target, all at once and each within the registration's timeout, and gives what
// they say by condition type. Objects are taken as they were seen last, or for the live condition types as they are now. Of a condition
// type for which a kind isn't all read yet nothing is known: unread has those.
func (c *Checker) Results(ctx context.Context, reg *registration.Registration, target *unstructured.Unstructured, live sets.Set[string]) (by map[string][]health.Result, unread []string) {
	results := make([]health.Result, len(reg.Checks))
	errs := make([]error, len(reg.Checks))
	var running sync.WaitGroup
	for i, check := range reg.Checks {
		running.Go(func() {
			results[i], errs[i] = c.runCheck(ctx, reg, check, target, live.Has(check.ConditionType))
		})
	}
	running.Wait()
	by = map[string][]health.Result{}
	for i, check := range reg.Checks {
		if errs[i] != nil {
			unread = append(unread, check.ConditionType)
		}
		by[check.ConditionType] = append(by[check.ConditionType], results[i])
	}
	for _, t := range unread {
		delete(by, t)
	}
	return by, unread
}

// runCheck makes a check. The error is ErrNotSynced, or none.
func (c *Checker) runCheck(ctx context.Context, reg *registration.Registration, check *registration.Check, target *unstructured.Unstructured, live bool) (result health.Result, err error) {
	defer func() { // it costs its own condition, and not the process
		if p := recover(); p != nil {
			log.FromContext(ctx).Error(fmt.Errorf("%v", p), "Check panicked", "healthCheckRegistration", reg.Name, "check", check.Name, "stack", string(debug.Stack()))
			result, err = check.Failed(errors.New("the check panicked; the manager's log has the stack")), nil
		}
	}()
	late := fmt.Errorf("the check gave no result within %s", reg.CheckTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, reg.CheckTimeout, late)
	defer cancel()
	result, err = check.Result(target, &finder{c, ctx, reg, target, live}, c.Clock.Now())
	switch {
	case errors.Is(err, ErrNotSynced):
		return health.Result{}, err
	case errors.Is(err, context.DeadlineExceeded): // the same text, whatever that ended; a shoot's connection counts the time by itself
		result = check.Failed(late)
	case err != nil && ctx.Err() != nil:
		result = check.Failed(context.Cause(ctx))
	case err != nil:
		result = check.Failed(err)
	}
	return result, nil
}

// finder finds what one look at a target needs: in the seed's cache or the shoot's watches, or with live as it is now.
type finder struct {
	c      *Checker
	ctx    context.Context //nolint:containedctx // of one look
	reg    *registration.Registration
	target *unstructured.Unstructured
	live   bool
}

// Objects gives those that a check looks at.
func (f *finder) Objects(check *registration.Check, ref registration.Ref) ([]*unstructured.Unstructured, error) {
	switch {
	case check.Shoot && f.live:
		shoot, err := f.c.Shoots.live(f.ctx, f.shootKey())
		if err != nil {
			return nil, err
		}
		return read(f.ctx, shoot, ref)
	case check.Shoot:
		return castAll[*unstructured.Unstructured](f.c.Shoots.objects(f.ctx, f.shootKey(), queryOf(ref)))
	case f.live:
		return read(f.ctx, f.c.Live, ref)
	}
	if err := f.c.Watches.Watch(f.ctx, check.Kind, false); err != nil {
		return nil, err
	}
	return read(f.ctx, f.c.Watches.cache, f.c.Watches.Resolve(ref))
}

// Resolve gives where what a check looks at really is. In shoots only what somebody wrote has a namespace.
func (f *finder) Resolve(check *registration.Check, ref registration.Ref) registration.Ref {
	if check.Shoot {
		return ref
	}
	return f.c.Watches.Resolve(ref)
}

// Nodes gives those of the shoot.
func (f *finder) Nodes() ([]*corev1.Node, error) {
	if !f.live {
		return castAll[*corev1.Node](f.c.Shoots.objects(f.ctx, f.shootKey(), everyNode))
	}
	shoot, err := f.c.Shoots.live(f.ctx, f.shootKey())
	if err != nil {
		return nil, err
	}
	return shoots.Nodes(f.ctx, shoot)
}

func (f *finder) shootKey() shootKey { return shootKeyOf(f.reg, f.target) }

const (
	// failureTTL is for how long a question about a kind that failed isn't asked again: checks may name one that is served later, a right
	// may be missing, and each target's look would be a request.
	failureTTL = 5 * time.Second
	// layoutTTL is for how long a kind's layout is trusted, unless it is invalidated.
	layoutTTL = time.Hour
	// requestTimeout is for how long a question is waited for: all who ask for the kind meanwhile wait with it, and nobody asks anew.
	requestTimeout = 10 * time.Second
)

// kindCache knows something of kinds. However many ask for a kind at a time, the API server is asked once, and nobody waits longer than its
// context. It is safe for concurrent use.
type kindCache[T any] struct {
	// ask may make a request, whoever still waits for it.
	ask   func(context.Context, schema.GroupVersionKind) (T, error)
	clock clock.PassiveClock
	// ttl is for how long an answer is trusted; zero: for good.
	ttl time.Duration

	requests singleflight.Group
	mu       sync.Mutex
	known    map[schema.GroupVersionKind]cachedAnswer[T] // needs mu
}

type cachedAnswer[T any] struct {
	value T
	err   error
	at    time.Time
}

// Of gives what is known of a kind. An error is kept for a while.
func (a *kindCache[T]) Of(ctx context.Context, kind schema.GroupVersionKind) (is T, err error) {
	a.mu.Lock()
	was, ok := a.known[kind]
	a.mu.Unlock()
	kept := a.ttl
	if was.err != nil {
		kept = failureTTL
	}
	if ok && (kept == 0 || a.clock.Since(was.at) < kept) {
		return was.value, was.err
	}
	answers := a.requests.DoChan(kind.String(), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		is, err := a.ask(ctx, kind)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.known == nil {
			a.known = map[schema.GroupVersionKind]cachedAnswer[T]{}
		}
		a.known[kind] = cachedAnswer[T]{is, err, a.clock.Now()}
		return is, err
	})
	select {
	case answer := <-answers:
		return answer.Val.(T), answer.Err
	case <-ctx.Done():
		return is, context.Cause(ctx)
	}
}

// Invalidate has a kind asked for anew, if it wasn't just now: a write failed, of which there may be thousands, or can't be made.
func (a *kindCache[T]) Invalidate(kind schema.GroupVersionKind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clock.Since(a.known[kind].at) >= failureTTL {
		delete(a.known, kind)
	}
}

// scopes knows whether kinds have namespaces.
type scopes = kindCache[meta.RESTScopeName]

func scopesBy(mapper meta.RESTMapper) func(context.Context, schema.GroupVersionKind) (meta.RESTScopeName, error) {
	return func(_ context.Context, kind schema.GroupVersionKind) (meta.RESTScopeName, error) {
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return "", err
		}
		return mapping.Scope.Name(), nil
	}
}

// Layouts knows how kinds keep conditions.
type Layouts struct{ kindCache[health.Layout] }

// NewLayouts reads kinds' layouts from their CustomResourceDefinitions.
func NewLayouts(live client.Reader, mapper meta.RESTMapper, now clock.PassiveClock) *Layouts {
	reads := &dependents.Live{Reader: live, Mapper: mapper}
	return &Layouts{kindCache[health.Layout]{ask: reads.Layout, clock: now, ttl: layoutTTL}}
}

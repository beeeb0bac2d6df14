package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

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

	mu   sync.Mutex
	busy map[checkOf]struct{} // needs mu
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

// all runs the checks at once and gives their results, each within the timeout.
func (r *runner) all(ctx context.Context, target types.NamespacedName, checks []check) []health.Result {
	return r.with(ctx, r.seed, target, checks)
}

func (r *runner) with(ctx context.Context, seed client.Client, target types.NamespacedName, checks []check) []health.Result {
	results := make([]health.Result, len(checks))
	var running sync.WaitGroup
	for i, c := range checks {
		running.Go(func() {
			results[i] = r.one(ctx, seed, target, c)
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
	return append(results, r.with(ctx, r.live, target, doubtful)...)
}

// one runs one check, and comes back by the timeout whether the check does or not.
func (r *runner) one(ctx context.Context, seed client.Client, target types.NamespacedName, c check) health.Result {
	id := c.of(target)
	if !r.begin(id) {
		return health.Error(r.late())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, r.late())
	done := make(chan health.Result, 1)
	go func() {
		result := health.Error(errors.New("the check ended its goroutine"))
		defer func() {
			r.end(id) // before the result is there: the next run may follow at once
			done <- result
			cancel()
		}()
		result = r.protected(ctx, seed, target, c)
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

func (r *runner) late() error { return fmt.Errorf("the check gave no result within %s", r.timeout) }

func (r *runner) begin(id checkOf) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, busy := r.busy[id]; busy {
		return false
	}
	if r.busy == nil {
		r.busy = map[checkOf]struct{}{}
	}
	r.busy[id] = struct{}{}
	return true
}

func (r *runner) end(id checkOf) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, id)
}

func (r *runner) protected(ctx context.Context, seed client.Client, target types.NamespacedName, c check) (result health.Result) {
	defer func() {
		if p := recover(); p != nil {
			log.FromContext(ctx).Error(fmt.Errorf("%v", p), "Check panicked", "check", c.name, "conditionType", c.conditionType, "stack", string(debug.Stack()))
			result = health.Error(errors.New("the check panicked; the log has the stack"))
		}
	}()
	single, err := r.check(ctx, seed, target, c)
	switch {
	case errors.Is(err, context.DeadlineExceeded): // also of a client that counts the time by itself
		return health.Error(r.late()) // the same text as for one that ignores it
	case err != nil:
		return health.Error(err)
	case single == nil:
		return health.Error(errors.New("the check gave no result"))
	}
	result = health.Result{Status: health.Status(single.Status), Detail: single.Detail, Codes: single.Codes}
	if single.ProgressingThreshold != nil {
		result.Timeout = *single.ProgressingThreshold
	}
	return result
}

func (r *runner) check(ctx context.Context, seed client.Client, target types.NamespacedName, c check) (*SingleCheckResult, error) {
	if err := r.refer(ctx, target, c); err != nil { // before it reads, so that no news is lost
		return nil, err
	}
	instance := c.newCheck()
	if instance == nil {
		return nil, errors.New("no check was made")
	}
	if s, ok := instance.(suffixed); ok {
		s.SetLoggerSuffix(r.extension, r.kind)
	}
	if inject := injectSeed(instance); inject != nil {
		inject(seed)
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

// refer has the target checked when something changes that the check refers to.
func (r *runner) refer(ctx context.Context, target types.NamespacedName, c check) error {
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

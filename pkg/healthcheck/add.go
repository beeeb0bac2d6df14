// Package healthcheck lets a controller tell on its own resource how what depends on it does. A Registration says which checks
// decide which conditions of the objects of one kind; AddToManager runs them with a controller-runtime manager: when a
// target changes or what a check refers to, and every sync period. The interfaces have the shape of those of Gardener's
// library of this name, so checks written for it keep their methods; they take the types of results from here.
//
// All checks of one condition type decide it together: a failure makes it False, and so does progress whose threshold is over; else
// an error makes it Unknown, else progress makes it Progressing, else it is True. When progress began is stored in
// the condition, so neither a restart nor a passing Unknown begins it anew. A check that panics, hangs or is slow costs its
// own condition only. Conditions of others on the same object are left alone, also when they are written meanwhile. When
// nothing changes, nothing is written.
//
// Before a condition turns False, its checks that aren't True are run once more, by what the API server has now. When many
// targets turn from True to False within minutes, one common cause is likelier: the rest are Unknown until all of it is True again, or somebody
// has looked, and puts BreakerResetAnnotation on one of them.
package healthcheck

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/resourcestack/autohealer/internal/retry"
	"github.com/resourcestack/autohealer/internal/shoots"
)

// AddToManager adds a controller that runs the checks. The error tells what is wrong with the registration. The manager's
// account needs get, list and watch of the targets' kind and of what checks look at, patch of the targets' status, and for
// checks of a shoot get, list and watch of the Secret with its kubeconfig, by name.
func (r *Registration) AddToManager(mgr manager.Manager) error {
	if err := r.validate(); err != nil {
		return fmt.Errorf("health checks of %s: %w", r.kind.Kind, err)
	}
	seed, live, err := r.seedClients(mgr)
	if err != nil {
		return err
	}
	secrets, err := r.secrets(mgr)
	if err != nil {
		return err
	}
	reconciler := &reconciler{
		Registration: r, reader: mgr.GetCache(), scheme: mgr.GetScheme(),
		runner: &runner{extension: r.extension, kind: r.kind.Kind, timeout: r.checkTimeout, seed: seed, live: live, shoots: &shoots.Clients{
			Secrets: secrets, Secret: r.shootSecret, Key: r.shootKey, Scheme: mgr.GetScheme(), Dial: r.dial, Timeout: r.checkTimeout,
		}},
		writer: &writer{client: mgr.GetClient(), live: mgr.GetAPIReader(), shape: r.shape, clock: r.clock},
	}
	reconciler.writer.breaker = &breaker{
		listTargets: reconciler.targets, checked: reconciler.checked, checks: r.checks, clock: r.clock,
	}
	name := r.controllerName()
	paced := retry.New(reconciler, anyFailure)
	c, err := builder.ControllerManagedBy(mgr).Named(name).
		For(r.newTarget(), builder.WithPredicates(append([]predicate.Predicate{predicate.NewPredicateFuncs(r.selectsObject)}, r.predicates...)...)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.concurrency, RateLimiter: paced}).
		Build(paced)
	if err != nil {
		return fmt.Errorf("add the controller %s: %w", name, err)
	}
	reconciler.runner.refs = newRefs(mgr, c)
	open := reconciler.writer.breaker.gauge(prometheus.Labels{"controller": name, "kind": r.kind.Kind, "extension": r.extension})
	metrics.Registry.Unregister(open) // that of an earlier manager of this process
	if err := metrics.Registry.Register(open); err != nil {
		return fmt.Errorf("health checks of %s: %w", r.kind.Kind, err)
	}
	return nil
}

// anyFailure will be one again until people change something, for thousands of targets alike.
func anyFailure(error) bool { return true }

// controllerName tells registrations apart by what they take, in logs and metrics. A second one that takes the same isn't added.
func (r *Registration) controllerName() string {
	names := append([]string{"healthcheck", r.kind.GroupKind().String(), r.extension}, r.classes...)
	return strings.ToLower(strings.Join(slices.DeleteFunc(names, func(name string) bool { return name == "" }), "-"))
}

func (r *Registration) selectsObject(o client.Object) bool {
	target, err := asJSON(o, r.kind)
	return err == nil && r.selects(target)
}

// seedClients are one that reads everything from the manager's cache, whose own client asks live for what is unstructured, and one that
// reads everything live; only the author's, where there is one.
func (r *Registration) seedClients(mgr manager.Manager) (seed, live client.Client, err error) {
	if r.seed != nil {
		return r.seed, nil, nil
	}
	options := client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()}
	uncached, errLive := shoots.NewVerifyingClient(mgr.GetConfig(), options)
	options.Cache = &client.CacheOptions{Reader: mgr.GetCache(), Unstructured: true}
	cached, errCached := client.New(mgr.GetConfig(), options)
	rights, errRights := newWatchRights(mgr, r.clock)
	if err := errors.Join(errLive, errCached, errRights); err != nil {
		return nil, nil, fmt.Errorf("make the clients that checks of the seed get: %w", err)
	}
	return rightsChecked{shoots.VerifyingClient{Client: cached, Live: mgr.GetAPIReader(), CheckServed: uncached.CheckServed}, rights}, uncached, nil
}

// secrets is a cache of the Secrets with kubeconfigs alone, by their one name. It reads none before a check asks for a shoot.
func (r *Registration) secrets(mgr manager.Manager) (client.Reader, error) {
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultFieldSelector: fields.OneTermEqualSelector("metadata.name", r.shootSecret),
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of kubeconfigs: %w", err)
	}
	if err := mgr.Add(startedFirst{secrets}); err != nil {
		return nil, fmt.Errorf("add the cache of kubeconfigs: %w", err)
	}
	return secrets, nil
}

// startedFirst makes the manager start a cache with its own, before any controller reads from it.
type startedFirst struct{ cache.Cache }

// GetCache is what the manager knows caches by.
func (s startedFirst) GetCache() cache.Cache { return s.Cache }

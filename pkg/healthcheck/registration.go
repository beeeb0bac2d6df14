package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

const (
	// DefaultSyncPeriod is how often a target's checks run when nothing changes.
	DefaultSyncPeriod = 30 * time.Second
	// DefaultCheckTimeout bounds one check, or half the sync period where that is less.
	DefaultCheckTimeout = 10 * time.Second
	// DefaultConcurrency is how many targets are checked at once.
	DefaultConcurrency = 20

	minSyncPeriod = 5 * time.Second
)

// Registration says which checks decide which conditions on the objects of one kind. Make it with For, add checks with
// Check, and run it with AddToManager.
type Registration struct {
	kind         schema.GroupVersionKind
	extension    string
	classes      []string
	predicates   []predicate.Predicate
	syncPeriod   time.Duration
	checkTimeout time.Duration
	concurrency  int
	newTarget    func() client.Object
	shape        health.Shape
	seed         client.Client
	shootSecret  string
	shootKey     string
	remove       []string
	suspended    func(client.Object) bool
	checks       []check

	clock clock.Clock
	dial  kubeconfig.Policy
}

// check is one of a Registration's.
type check struct {
	conditionType, name string
	newCheck            func() HealthCheck
}

// Option of For.
type Option func(*Registration)

// For begins a registration for the objects of a kind. It must have a status subresource with conditions: each evaluation of a target of
// another kind is an error, in the manager's log. Codes that its schema lacks are left out.
func For(kind schema.GroupVersionKind, options ...Option) *Registration {
	r := &Registration{
		kind: kind, syncPeriod: DefaultSyncPeriod, concurrency: DefaultConcurrency, shape: health.Gardener,
		shootSecret: "gardener", shootKey: "kubeconfig", clock: clock.RealClock{},
	}
	r.newTarget = func() client.Object { return untyped(kind) }
	for _, option := range options {
		option(r)
	}
	if r.checkTimeout == 0 {
		r.checkTimeout = min(DefaultCheckTimeout, r.syncPeriod/2)
	}
	return r
}

// WithType takes objects with this spec.type only. Default: all.
func WithType(extension string) Option { return func(r *Registration) { r.extension = extension } }

// WithClasses takes objects with one of these in spec.class only; an object without one has class shoot. Default: all.
func WithClasses(classes ...string) Option { return func(r *Registration) { r.classes = classes } }

// WithPredicates filters events of targets. Checks also run every sync period.
func WithPredicates(predicates ...predicate.Predicate) Option {
	return func(r *Registration) { r.predicates = predicates }
}

// WithSyncPeriod sets how often a target's checks run when nothing changes, give or take a tenth. At least 5 s. Default:
// DefaultSyncPeriod.
func WithSyncPeriod(period time.Duration) Option {
	return func(r *Registration) { r.syncPeriod = period }
}

// WithCheckTimeout bounds one check; at most the sync period. Default: DefaultCheckTimeout, or half the sync period.
func WithCheckTimeout(timeout time.Duration) Option {
	return func(r *Registration) { r.checkTimeout = timeout }
}

// WithConcurrency sets how many targets are checked at once. Default: DefaultConcurrency.
func WithConcurrency(targets int) Option { return func(r *Registration) { r.concurrency = targets } }

// WithObject makes the manager's cache hold targets of this type, which its scheme must know, instead of unstructured ones: use
// it where the program has an informer of that type already.
func WithObject(newTarget func() client.Object) Option {
	return func(r *Registration) { r.newTarget = newTarget }
}

// WithMetaConditions writes metav1.Condition, where Progressing is Unknown with reason HealthCheckProgressing. Default:
// Gardener's shape, with lastUpdateTime and codes.
func WithMetaConditions() Option { return func(r *Registration) { r.shape = health.Conditions } }

// WithSeedClient injects this client to checks of the seed instead of one that reads from the manager's cache.
func WithSeedClient(c client.Client) Option { return func(r *Registration) { r.seed = c } }

// WithShootKubeconfig names the Secret in the target's namespace, and the key in it, that has the kubeconfig of the shoot.
// Only static credentials over TLS are accepted. Default: Secret gardener, key kubeconfig.
func WithShootKubeconfig(secret, key string) Option {
	return func(r *Registration) { r.shootSecret, r.shootKey = secret, key }
}

// WithLoopbackShoots lets shoots be on this machine, for tests and local clusters. Default: they may not, since a kubeconfig
// could then reach what listens beside the program.
func WithLoopbackShoots() Option {
	return func(r *Registration) { r.dial.AllowLoopback = true }
}

// WithoutConditions removes conditions of these types from targets, such as those of checks that are no more: those in the form
// in which checks write them, by reason, status and message. One in another form is somebody else's, and stays.
func WithoutConditions(types ...string) Option { return func(r *Registration) { r.remove = types } }

// WithSuspended leaves a target's conditions as they are while suspended says so, for example while a shoot is hibernated. It is asked
// when the target changes, and every sync period.
func WithSuspended(suspended func(target client.Object) bool) Option {
	return func(r *Registration) { r.suspended = suspended }
}

// Check adds a check: all checks of one condition type decide it together. The name is what the condition's message calls it,
// and unique within the type. newCheck is called for each run.
func (r *Registration) Check(conditionType, name string, newCheck func() HealthCheck) *Registration {
	r.checks = append(r.checks, check{conditionType, name, newCheck})
	return r
}

// kstatus reads these; a sick dependent would be taken for a controller that doesn't reconcile.
var reserved = []string{"Ready", "Reconciling", "Stalled"}

var conditionTypeFormat = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_.-]{0,62}[A-Za-z0-9])?$`)

func (r *Registration) validate() error {
	var errs []error
	if len(r.checks) == 0 {
		errs = append(errs, errors.New("there is no check"))
	}
	seen := map[[2]string]bool{}
	for _, c := range r.checks {
		id := [2]string{c.conditionType, c.name}
		if seen[id] {
			errs = append(errs, fmt.Errorf("check %q of %s is there twice", c.name, c.conditionType))
		}
		seen[id] = true
		if slices.Contains(r.remove, c.conditionType) {
			errs = append(errs, fmt.Errorf("condition type %s has checks and is to be removed", c.conditionType))
		}
		errs = append(errs, c.validate())
	}
	if r.syncPeriod < minSyncPeriod {
		errs = append(errs, fmt.Errorf("a sync period of %s is less than %s", r.syncPeriod, minSyncPeriod))
	}
	if r.checkTimeout <= 0 || r.checkTimeout > r.syncPeriod {
		errs = append(errs, fmt.Errorf("a check timeout of %s isn't between zero and the sync period, %s", r.checkTimeout, r.syncPeriod))
	}
	return errors.Join(errs...)
}

func (c check) validate() error {
	switch {
	case slices.Contains(reserved, c.conditionType):
		return fmt.Errorf("condition type %s is its controller's own; choose another", c.conditionType)
	case !conditionTypeFormat.MatchString(c.conditionType):
		return fmt.Errorf("%q is no condition type", c.conditionType)
	case c.name == "":
		return fmt.Errorf("a check of %s has no name", c.conditionType)
	case c.newCheck == nil:
		return fmt.Errorf("check %q of %s is nil", c.name, c.conditionType)
	}
	return nil
}

// ConditionStatus is what a check says.
type ConditionStatus string

const (
	// ConditionTrue: healthy.
	ConditionTrue ConditionStatus = "True"
	// ConditionFalse: unhealthy.
	ConditionFalse ConditionStatus = "False"
	// ConditionUnknown: the check could not be made. Return an error instead, where there is one.
	ConditionUnknown ConditionStatus = "Unknown"
	// ConditionProgressing: not healthy yet, for a reason that is expected and passes, such as a cluster that is scaled.
	ConditionProgressing ConditionStatus = "Progressing"
)

// SingleCheckResult is what one check says.
type SingleCheckResult struct {
	Status ConditionStatus
	// Detail says in a sentence what is wrong. Up to 512 bytes of it get into the condition's message. A detail that changes
	// from run to run, with a time or a counter in it, has the condition written each time.
	Detail string
	// Codes classify what is wrong, such as ERR_CONFIGURATION_PROBLEM.
	Codes []string
	// ProgressingThreshold is how long Progressing is trusted since it began; then it counts as False, until True. Without
	// one it counts as False at once: nothing would ever end it.
	ProgressingThreshold *time.Duration

	// note is what a check that comes with this package says although it is True.
	note string
}

// HealthCheck is one check of what depends on a target. A fresh one is made for each run, and used by one goroutine.
type HealthCheck interface {
	// Check judges the target of that name. An error makes the condition Unknown, and so does a panic, a nil result, and a
	// check that doesn't return by the deadline of ctx. One that ignores the deadline isn't started again for the same target
	// before it returns.
	Check(ctx context.Context, request types.NamespacedName) (*SingleCheckResult, error)
}

// ShootClient is implemented by checks that look at the shoot cluster: its client is injected before each Check. It reads
// live. InjectTargetClient, as Gardener's library has it, will do, too.
type ShootClient interface {
	InjectShootClient(client.Client)
}

// SeedClient is implemented by checks that look at the seed cluster, where the target is: its client is injected before
// each Check. It reads from the manager's cache, unstructured objects too; that something doesn't exist is confirmed by a
// live read, so NotFound may be trusted. What may not be listed or watched any more is an error. What would turn the condition False
// is confirmed by another run, of a fresh check whose client reads live. InjectSourceClient, as Gardener's library has it, will do, too.
type SeedClient interface {
	InjectSeedClient(client.Client)
}

// sourceClient and targetClient are what Gardener's own library calls them since it isn't about seeds and shoots alone.
type (
	sourceClient interface{ InjectSourceClient(client.Client) }
	targetClient interface{ InjectTargetClient(client.Client) }
)

// injectShoot gives what takes the shoot's client; nil where a check wants none.
func injectShoot(check HealthCheck) func(client.Client) {
	switch c := check.(type) {
	case ShootClient:
		return c.InjectShootClient
	case targetClient:
		return c.InjectTargetClient
	}
	return nil
}

// Referrer is implemented by checks that want to run as soon as an object of the seed changes that they look at. Others run
// when their target changes, and every sync period.
type Referrer interface {
	// Refs gives the objects: each with its name and namespace, and a type that the manager's scheme knows or unstructured. Of a
	// kind that is in no namespace the namespace says nothing.
	// It is called on an instance that no client was injected to, before each Check and within its deadline. A panic, or an
	// object of an unknown kind, makes the condition Unknown.
	Refs(target types.NamespacedName) []client.Object
}

// suffixed is what checks of Gardener's own library implement besides.
type suffixed interface {
	SetLoggerSuffix(provider, extension string)
}

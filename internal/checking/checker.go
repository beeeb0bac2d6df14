package checking

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/shoots"
)

// Checker makes checks. It is safe for concurrent use.
type Checker struct {
	Watches *Watches
	// Live reads from the API server, past any cache.
	Live   client.Reader
	Scheme *runtime.Scheme
	// Dial says which addresses a shoot's kubeconfig may have.
	Dial  kubeconfig.Policy
	Clock clock.PassiveClock

	mu     sync.Mutex
	shoots map[v1alpha1.SecretKey]*shoots.Clients // needs mu
}

// Refs are what a registration's checks of the seed look at for a target. Checks that can't tell are left out.
func Refs(reg *registration.Registration, target *unstructured.Unstructured) []registration.Ref {
	var refs []registration.Ref
	for _, c := range reg.Checks {
		if c.Shoot {
			continue
		}
		if ref, err := c.Ref(target); err == nil {
			refs = append(refs, ref)
		}
	}
	return refs
}

// Results makes a registration's checks of a target, all at once and each within the registration's timeout, and gives what
// they say by condition type. The seed's objects are taken as they were seen last, or with live as they are now. Of a condition
// type for which a kind isn't all read yet nothing is known: unread has those.
func (c *Checker) Results(ctx context.Context, reg *registration.Registration, target *unstructured.Unstructured, live bool) (by map[string][]health.Result, unread []string) {
	results := make([]health.Result, len(reg.Checks))
	errs := make([]error, len(reg.Checks))
	var running sync.WaitGroup
	for i, check := range reg.Checks {
		running.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, reg.CheckTimeout, fmt.Errorf("the check gave no result within %s", reg.CheckTimeout))
			defer cancel()
			results[i], errs[i] = c.one(ctx, reg, check, target, live)
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

// one makes a check. The error is ErrUnread, or none.
func (c *Checker) one(ctx context.Context, reg *registration.Registration, check *registration.Check, target *unstructured.Unstructured, live bool) (result health.Result, err error) {
	defer func() { // it costs its own condition, and not the process
		if p := recover(); p != nil {
			log.FromContext(ctx).Error(fmt.Errorf("%v", p), "Check panicked", "healthCheckRegistration", reg.Name, "check", check.Name, "stack", string(debug.Stack()))
			result, err = check.Failed(errors.New("the check panicked; the manager's log has the stack")), nil
		}
	}()
	if asks, err := check.Asks(target); err != nil || !asks {
		return check.PassedOr(err), nil
	}
	result, err = c.look(ctx, reg, check, target, live)
	switch {
	case errors.Is(err, ErrUnread):
		return health.Result{}, err
	case err != nil && ctx.Err() != nil: // the same text, whatever the deadline ended
		result = check.Failed(context.Cause(ctx))
	case err != nil:
		result = check.Failed(err)
	}
	return result, nil
}

func (c *Checker) look(ctx context.Context, reg *registration.Registration, check *registration.Check, target *unstructured.Unstructured, live bool) (health.Result, error) {
	if check.Nodes {
		return c.nodes(ctx, reg, check, target)
	}
	ref, err := check.Ref(target)
	if err != nil {
		return health.Result{}, err
	}
	from, err := c.reader(ctx, reg, check, target, live)
	if err != nil {
		return health.Result{}, err
	}
	objects, err := read(ctx, from, ref)
	if err != nil {
		return health.Result{}, fmt.Errorf("read %s %s: %w", ref.Kind.Kind, ref.Name, err)
	}
	return check.JudgeObjects(ref, target, objects, c.Clock.Now()), nil
}

// reader is where a check reads: in the shoot, or in the seed's cache or API server.
func (c *Checker) reader(ctx context.Context, reg *registration.Registration, check *registration.Check, target *unstructured.Unstructured, live bool) (client.Reader, error) {
	switch {
	case check.Shoot:
		return c.shoot(ctx, reg, target)
	case live:
		return believed{c.Live}, nil
	}
	if err := c.Watches.Watch(ctx, check.Kind, false); err != nil {
		return nil, err
	}
	return c.Watches.cache, nil
}

// believed reads live, and takes the answer for a kind that isn't served for an error.
type believed struct{ client.Reader }

// Get reads an object.
func (b believed) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	err := b.Reader.Get(ctx, key, into, options...)
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("the kind isn't served: %v", err) //nolint:errorlint // wrapped, it would still be taken for NotFound
	}
	return err
}

// read gives the objects that a check looks at; none where the one doesn't exist.
func read(ctx context.Context, from client.Reader, ref registration.Ref) ([]*unstructured.Unstructured, error) {
	if ref.Name == "" {
		return list(ctx, from, ref.Kind, ref.Namespace, ref.Selector)
	}
	o := empty(ref.Kind)
	err := from.Get(ctx, ref.Key(), o)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return []*unstructured.Unstructured{o}, err
}

// nodes judges the shoot's nodes.
func (c *Checker) nodes(ctx context.Context, reg *registration.Registration, check *registration.Check, target *unstructured.Unstructured) (health.Result, error) {
	from, err := c.shoot(ctx, reg, target)
	if err != nil {
		return health.Result{}, err
	}
	var all corev1.NodeList
	// From the API server's memory: nodes of a moment ago do, and the list may be long.
	if err := from.List(ctx, &all, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return health.Result{}, fmt.Errorf("list the shoot's nodes: %w", err)
	}
	nodes := make([]*corev1.Node, len(all.Items))
	for i := range all.Items {
		nodes[i] = &all.Items[i]
	}
	return check.JudgeNodes(target, nodes), nil
}

// shoot gives the client of the target's shoot.
func (c *Checker) shoot(ctx context.Context, reg *registration.Registration, target *unstructured.Unstructured) (client.Client, error) {
	if reg.Kubeconfig == nil {
		return nil, errors.New("the registration doesn't say where the shoot's kubeconfig is")
	}
	c.mu.Lock()
	clients := c.shoots[*reg.Kubeconfig]
	if clients == nil {
		clients = &shoots.Clients{
			Secrets: c.Live, Secret: reg.Kubeconfig.SecretName, Key: reg.Kubeconfig.Key, Scheme: c.Scheme, Dial: c.Dial, Timeout: reg.CheckTimeout,
		}
		if c.shoots == nil {
			c.shoots = map[v1alpha1.SecretKey]*shoots.Clients{}
		}
		c.shoots[*reg.Kubeconfig] = clients
	}
	c.mu.Unlock()
	return clients.Of(ctx, target.GetNamespace())
}

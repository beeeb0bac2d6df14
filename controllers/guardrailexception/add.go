// Package guardrailexception puts GuardrailExceptions in force on every replica, and reports on the leader which are.
package guardrailexception

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/metric"
	"github.com/resourcestack/autohealer/internal/policy"
)

// AddToManager adds what puts all exceptions that are stored in force, and the controller of their statuses.
func AddToManager(mgr manager.Manager, g *guard.Guard, exceptions *kube.Collection[*v1alpha1.GuardrailException]) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	c := &controller{Guard: g, Cache: mgr.GetCache(), Client: mgr.GetClient(), Clock: clock.RealClock{}}
	exceptions.Use, exceptions.Seen = c.use, c.request
	g.OnChange(c.rulesChanged)
	if err := mgr.Add(exceptions); err != nil {
		return err
	}
	if err := mgr.Add(c); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("guardrailexceptions", func(*http.Request) error { return exceptions.Synced() }); err != nil {
		return err
	}
	return (&policy.Keeper[*v1alpha1.GuardrailException]{Steps: c.steps()}).AddToManager(mgr, "guardrailexception", 1, c.lead)
}

func (c *controller) steps() policy.Steps[*v1alpha1.GuardrailException] {
	return policy.Steps[*v1alpha1.GuardrailException]{
		New: func() *v1alpha1.GuardrailException { return &v1alpha1.GuardrailException{} }, Describe: c.describe,
		Gone: func(exception types.NamespacedName) { activeGauge.DeleteLabelValues(exception.Name) },
	}
}

// describe collects what the status reports.
func (c *controller) describe(ctx context.Context, x *v1alpha1.GuardrailException, _ policy.Remaining) (is policy.Description[*v1alpha1.GuardrailException], err error) {
	st := state{now: c.Clock.Now(), ends: guardrail.Ends(x)}
	if st.target, err = readTarget(ctx, c.Client, c.Guard, x.Spec.TargetRef); err != nil {
		is.Skip = true
		return is, err
	}
	_, st.verdict = guard.Admit(ctx, c.Guard, x)
	st.addRules(c.Guard, x)
	is.After = x.DeepCopy()
	is.After.Status = statusOf(x, st)
	ready := meta.FindStatusCondition(is.After.Status.Conditions, v1alpha1.ConditionReady)
	activeGauge.WithLabelValues(x.Name).Set(metric.Bool(ready.Reason == v1alpha1.ReasonActive))
	is.RequeueAfter = next(st.now, st.ends, st.verdict.RecheckAt, st.target.recheckAt)
	return is, nil
}

// next is the time until the first of these moments that is still to come, of which there is no event; 0 when none is.
func next(now time.Time, moments ...time.Time) time.Duration {
	var until time.Duration
	for _, at := range moments {
		if wait := at.Sub(now) + kube.PastDeadline; at.After(now) && (until == 0 || wait < until) {
			until = wait
		}
	}
	return until
}

var activeGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "autohealer_guardrailexception_active",
	Help: "1 while a GuardrailException lifts its rules for its target, 0 while it waits or after it ended.",
}, []string{"exception"})

// registerMetrics adds the metrics to the manager's registry; a second manager in one process shares them.
func registerMetrics() error {
	return metric.Register(activeGauge)
}

// controller puts all exceptions in force, and notices when the target of one changes.
type controller struct {
	Guard  *guard.Guard
	Cache  cache.Cache
	Client client.Client
	Clock  clock.PassiveClock

	statuses kube.Requests
}

// NeedLeaderElection is true: targets are watched for the status alone.
func (*controller) NeedLeaderElection() bool { return true }

// Start watches the targets until ctx ends.
func (c *controller) Start(ctx context.Context) error {
	var watches []kube.Watch
	for _, kind := range kinds.Policies() {
		changed := func(object client.Object) {
			changed := guard.Target{Kind: kind.Name(), Namespace: object.GetNamespace(), Name: object.GetName()}
			c.requestFor(func(target guard.Target) bool { return target == changed })
		}
		watches = append(watches, kube.On(client.Object(kind.New()), changed, changed))
	}
	return kube.NewWatches(c.Cache).Run(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}, watches...)
}

// use puts these exceptions in force in place of all previous ones. Whoever judges an object that one lifts a rule for knows
// itself when that ends, so there is nothing to be done again.
func (c *controller) use(ctx context.Context, all []*v1alpha1.GuardrailException) (never time.Time) {
	c.Guard.SetExceptions(all)
	log.FromContext(ctx).Info("GuardrailExceptions are in force", "exceptions", len(all))
	for _, exception := range all {
		c.request(exception.Name)
	}
	return never
}

// rulesChanged requests the status of the exceptions from rules that changed.
func (c *controller) rulesChanged(change guard.Change) {
	c.requestFor(func(target guard.Target) bool {
		return slices.Contains(change.Kinds, target.Kind) || slices.Contains(change.Kinds, "GuardrailException")
	})
}

// lead takes the queue of a replica that became the leader.
func (c *controller) lead(q kube.Queue) {
	c.statuses.Attach(q)
	c.requestFor(func(guard.Target) bool { return true })
}

func (c *controller) request(name string) { c.statuses.Add(types.NamespacedName{Name: name}, 0) }

// requestFor requests the status of the exceptions for these targets.
func (c *controller) requestFor(concerned func(guard.Target) bool) {
	for target, exceptions := range c.Guard.Exceptions() {
		if concerned(target) {
			for _, x := range exceptions {
				c.request(x.Name)
			}
		}
	}
}

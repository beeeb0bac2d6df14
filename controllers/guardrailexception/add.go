// Package guardrailexception puts GuardrailExceptions in force on every replica, and tells on the leader which are.
package guardrailexception

import (
	"context"
	"net/http"
	"slices"
	"sync"
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

// Options are what the controller for GuardrailExceptions needs.
type Options struct {
	Guard *guard.Guard
	// Exceptions are all that are stored.
	Exceptions *kube.Collection[*v1alpha1.GuardrailException]
}

// AddToManager adds the observer and the controller of the status.
func AddToManager(mgr manager.Manager, opts Options) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	observer := &Observer{Cache: mgr.GetCache(), Guard: opts.Guard}
	opts.Exceptions.Use, opts.Exceptions.Seen = observer.use, observer.request
	opts.Guard.OnChange(observer.rulesChanged)
	if err := mgr.Add(opts.Exceptions); err != nil {
		return err
	}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("guardrailexceptions", func(*http.Request) error { return opts.Exceptions.Synced() }); err != nil {
		return err
	}
	exceptions := &policy.Keeper[*v1alpha1.GuardrailException]{Steps: (&keeper{Observer: observer, Client: mgr.GetClient(), Clock: clock.RealClock{}}).steps()}
	return exceptions.AddToManager(mgr, "guardrailexception", 1, observer.lead)
}

// keeper keeps GuardrailExceptions' statuses.
type keeper struct {
	*Observer
	Client client.Client
	Clock  clock.PassiveClock
}

func (k *keeper) steps() policy.Steps[*v1alpha1.GuardrailException] {
	return policy.Steps[*v1alpha1.GuardrailException]{
		New: func() *v1alpha1.GuardrailException { return &v1alpha1.GuardrailException{} }, Describe: k.describe,
		Gone: func(exception types.NamespacedName) { activeGauge.DeleteLabelValues(exception.Name) },
	}
}

// describe gathers what the status tells.
func (k *keeper) describe(ctx context.Context, x *v1alpha1.GuardrailException, _ policy.Left) (is policy.Description[*v1alpha1.GuardrailException], err error) {
	now := k.Clock.Now()
	st, err := k.observe(ctx, x)
	if err != nil {
		is.Skip = true
		return is, err
	}
	st.now = now
	is.After = x.DeepCopy()
	is.After.Status = statusOf(x, st)
	ready := meta.FindStatusCondition(is.After.Status.Conditions, v1alpha1.ConditionReady)
	activeGauge.WithLabelValues(x.Name).Set(metric.Bool(ready.Reason == v1alpha1.ReasonActive))
	is.Again = next(now, st.ends, st.verdict.RecheckAt, st.target.recheckAt)
	return is, nil
}

// next is the time until the first of these moments that is still to come, since no event tells of it; 0 when none is.
func next(now time.Time, moments ...time.Time) time.Duration {
	var until time.Duration
	for _, at := range moments {
		if left := at.Sub(now) + kube.PastDeadline; at.After(now) && (until == 0 || left < until) {
			until = left
		}
	}
	return until
}

// observe gathers what the status tells.
func (k *keeper) observe(ctx context.Context, x *v1alpha1.GuardrailException) (st state, err error) {
	g := k.Guard
	_, st.verdict = guard.Admit(ctx, g, x)
	st.ends = guardrail.Ends(x)
	ref := x.Spec.TargetRef
	rules := map[string]guard.RuleInfo{}
	for _, rule := range g.Rules(ref.Kind) {
		rules[rule.ID] = rule
	}
	for _, id := range x.Spec.RuleIDs {
		rule, known := rules[id]
		switch {
		case !known:
			st.unknown = append(st.unknown, id)
		case !rule.Exceptable:
			st.fixed = append(st.fixed, id)
		case rule.AtRunTime:
			st.atRunTime = append(st.atRunTime, id)
		}
	}
	st.target, err = readTarget(ctx, k.Client, g, ref)
	return st, err
}

var activeGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "autohealer_guardrailexception_active",
	Help: "1 while a GuardrailException lifts its rules for its target, 0 while it waits or after it ended.",
}, []string{"exception"})

// registerMetrics adds the metrics to the manager's registry; a second manager in one process shares them.
func registerMetrics() error {
	return metric.Register(activeGauge)
}

// Observer puts all exceptions in force, and notices when the target of one changes.
type Observer struct {
	Cache cache.Cache
	Guard *guard.Guard

	statuses kube.Requests

	mu     sync.Mutex
	naming map[v1alpha1.ExceptionTarget][]string // needs mu: exceptions by target; nil until all are in force
}

// NeedLeaderElection is true: targets are watched for the status alone.
func (*Observer) NeedLeaderElection() bool { return true }

// Start watches the targets until ctx ends.
func (o *Observer) Start(ctx context.Context) error {
	var watches []kube.Watch
	for _, kind := range kinds.Policies() {
		changed := func(object client.Object) {
			changed := v1alpha1.ExceptionTarget{Kind: kind.Name(), Namespace: object.GetNamespace(), Name: object.GetName()}
			o.requestFor(func(target v1alpha1.ExceptionTarget) bool { return target == changed })
		}
		watches = append(watches, kube.On(client.Object(kind.New()), changed, changed))
	}
	return kube.NewWatches(o.Cache).Run(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}, watches...)
}

// use puts these exceptions in force in place of all former ones. Whoever judges an object that one lifts a rule for knows
// itself when that ends, so there is nothing to be done again.
func (o *Observer) use(ctx context.Context, all []*v1alpha1.GuardrailException) (never time.Time) {
	o.Guard.SetExceptions(all)
	log.FromContext(ctx).Info("GuardrailExceptions are in force", "exceptions", len(all))
	naming := map[v1alpha1.ExceptionTarget][]string{}
	for _, exception := range all {
		naming[exception.Spec.TargetRef] = append(naming[exception.Spec.TargetRef], exception.Name)
	}
	o.mu.Lock()
	o.naming = naming
	o.mu.Unlock()
	for _, exception := range all {
		o.request(exception.Name)
	}
	return never
}

// rulesChanged asks for the status of the exceptions from rules that changed.
func (o *Observer) rulesChanged(c guard.Change) {
	o.requestFor(func(target v1alpha1.ExceptionTarget) bool {
		return slices.Contains(c.Kinds, target.Kind) || slices.Contains(c.Kinds, "GuardrailException")
	})
}

// lead takes the queue of a replica that became the leader.
func (o *Observer) lead(q kube.Queue) {
	o.statuses.Attach(q)
	o.requestFor(func(v1alpha1.ExceptionTarget) bool { return true })
}

func (o *Observer) request(name string) { o.statuses.Add(types.NamespacedName{Name: name}, 0) }

// requestFor asks for the status of the exceptions for these targets.
func (o *Observer) requestFor(concerned func(v1alpha1.ExceptionTarget) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for target, names := range o.naming {
		if concerned(target) {
			for _, name := range names {
				o.request(name)
			}
		}
	}
}

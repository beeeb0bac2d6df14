// Package guardrail puts Guardrails in force on every replica, and tells on the leader what became of each.
package guardrail

import (
	"context"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/metric"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/probing"
)

// Options are what the controller for Guardrails needs.
type Options struct {
	Guard *guard.Guard
	// Guardrails are all that are stored.
	Guardrails *kube.Collection[*v1alpha1.Guardrail]
	// Rejections of stored policies.
	Rejections *kube.Rejections
	// Witnesses that Guardrails name.
	Witnesses *probing.Witnesses
}

// AddToManager adds the observer and the controller of the status. A replica isn't ready until all Guardrails are in force:
// its webhook would admit what one of them forbids.
func AddToManager(mgr manager.Manager, opts Options) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	gaugePolicy(opts.Guard.Policy())
	opts.Guard.OnChange(func(guard.Change) { gaugePolicy(opts.Guard.Policy()) })
	observer := &Observer{Guard: opts.Guard}
	opts.Guardrails.Early, opts.Guardrails.Use, opts.Guardrails.Seen = opts.Guard.Tighten, observer.use, observer.request
	opts.Rejections.OnChange(observer.request)
	opts.Witnesses.OnChange = observer.request
	opts.Guardrails.Listed = opts.Guard.GuardrailsListed
	if err := mgr.Add(opts.Guardrails); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("guardrails", func(*http.Request) error { return opts.Guardrails.Synced() }); err != nil {
		return err
	}
	guardrails := &policy.Keeper[*v1alpha1.Guardrail]{Steps: (&keeper{Observer: observer, Rejections: opts.Rejections, Witnesses: opts.Witnesses}).steps()}
	return guardrails.AddToManager(mgr, "guardrail", 1, observer.lead)
}

// keeper keeps Guardrails' statuses.
type keeper struct {
	*Observer
	Rejections *kube.Rejections
	Witnesses  *probing.Witnesses
}

func (k *keeper) steps() policy.Steps[*v1alpha1.Guardrail] {
	return policy.Steps[*v1alpha1.Guardrail]{
		New: func() *v1alpha1.Guardrail { return &v1alpha1.Guardrail{} }, Describe: k.describe,
		Gone: func(guardrail types.NamespacedName) { rejectsGauge.DeleteLabelValues(guardrail.Name) },
	}
}

// describe gathers what the status tells, once this generation is in force.
func (k *keeper) describe(_ context.Context, g *v1alpha1.Guardrail, _ policy.Left) (is policy.Description[*v1alpha1.Guardrail], err error) {
	became, ok := k.outcomeOf(g)
	if !ok {
		is.Skip = true
		return is, nil
	}
	rejected := k.Rejections.Of(g.Name)
	rejectsGauge.WithLabelValues(g.Name).Set(float64(len(rejected)))
	silent, checked := k.Witnesses.Silent(g.Name)
	is.After = g.DeepCopy()
	is.After.Status = statusOf(g, state{result: became.GuardrailResult, rejected: rejected, silent: silent, looked: checked})
	return is, nil
}

// All but the last one are every replica's own view; the last one is the leader's.
var (
	rulesGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "autohealer_guardrail_rules",
		Help: "Rules of all Guardrails that are in force on this replica, the built-in ones apart.",
	})

	pausedGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "autohealer_guardrail_paused",
		Help: "1 while a Guardrail pauses all new acts, or it isn't known what Guardrails forbid.",
	})

	frozenGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "autohealer_guardrail_frozen",
		Help: "1 while a Guardrail stops everything, undo included.",
	})

	rejectsGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_guardrail_rejected_policies",
		Help: "Stored policies that a rule of a Guardrail refuses now.",
	}, []string{"guardrail"})
)

// registerMetrics adds the metrics to the manager's registry; a second manager in one process shares them.
func registerMetrics() error {
	return metric.Register(rulesGauge, pausedGauge, frozenGauge, rejectsGauge)
}

func gaugePolicy(policy guardrail.Policy) {
	pausedGauge.Set(metric.Bool(policy.Paused()))
	frozenGauge.Set(metric.Bool(policy.Frozen()))
}

// Observer puts all Guardrails in force, and keeps what became of each.
type Observer struct {
	Guard *guard.Guard

	statuses kube.Requests

	mu      sync.Mutex
	results map[string]outcome // needs mu; by name, nil until all Guardrails are in force
}

// outcome is what became of a generation of a Guardrail.
type outcome struct {
	uid        types.UID
	generation int64
	guard.GuardrailResult
}

// says whether two outcomes give the same status.
func (r outcome) says(other outcome) bool {
	a, b := r, other
	a.Verdict.RecheckAt, b.Verdict.RecheckAt = time.Time{}, time.Time{}
	return reflect.DeepEqual(a, b)
}

// use puts these Guardrails in force in place of all former ones. It gives when a rule over Guardrails may say something
// else without any event.
func (o *Observer) use(ctx context.Context, all []*v1alpha1.Guardrail) (again time.Time) {
	results := map[string]outcome{}
	rules := 0
	for i, result := range o.Guard.SetGuardrails(all) { //nolint:contextcheck // it waits for nothing
		results[all[i].Name] = outcome{uid: all[i].UID, generation: all[i].Generation, GuardrailResult: result}
		rules += result.Rules
		if at := result.Verdict.RecheckAt; !at.IsZero() && (again.IsZero() || at.Before(again)) {
			again = at
		}
	}
	rulesGauge.Set(float64(rules))
	o.mu.Lock()
	changed := o.results == nil || !maps.EqualFunc(o.results, results, outcome.says)
	o.results = results
	o.mu.Unlock()
	if !changed {
		return again // only asked once more
	}
	policy := o.Guard.Policy()
	log.FromContext(ctx).Info("Guardrails are in force", "guardrails", len(all), "rules", rules, "pausedBy", policy.PausedBy, "frozenBy", policy.FrozenBy)
	for name := range results {
		o.request(name)
	}
	return again
}

// outcomeOf tells what became of a Guardrail; ok is false while that generation isn't in force.
func (o *Observer) outcomeOf(g *v1alpha1.Guardrail) (result outcome, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	result, ok = o.results[g.Name]
	return result, ok && result.uid == g.UID && result.generation == g.Generation
}

// lead takes the queue of a replica that became the leader.
func (o *Observer) lead(q kube.Queue) {
	o.statuses.Attach(q)
	o.mu.Lock()
	names := slices.Collect(maps.Keys(o.results))
	o.mu.Unlock()
	for _, name := range names {
		o.request(name)
	}
}

// request asks for the status of a Guardrail. What isn't one, such as a kind's name, is found to be gone.
func (o *Observer) request(name string) { o.statuses.Add(types.NamespacedName{Name: name}, 0) }

// Package guardrail puts Guardrails in force on every replica, and reports on the leader what became of each.
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
	c := &controller{Options: opts}
	opts.Guardrails.Early, opts.Guardrails.Use, opts.Guardrails.Seen = opts.Guard.Tighten, c.use, c.request
	opts.Rejections.OnChange(c.request)
	opts.Witnesses.OnChange = c.request
	opts.Guardrails.Listed = opts.Guard.GuardrailsListed
	if err := mgr.Add(opts.Guardrails); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("guardrails", func(*http.Request) error { return opts.Guardrails.Synced() }); err != nil {
		return err
	}
	return (&policy.Keeper[*v1alpha1.Guardrail]{Steps: c.steps()}).AddToManager(mgr, "guardrail", 1, c.lead)
}

func (c *controller) steps() policy.Steps[*v1alpha1.Guardrail] {
	return policy.Steps[*v1alpha1.Guardrail]{
		New: func() *v1alpha1.Guardrail { return &v1alpha1.Guardrail{} }, Describe: c.describe,
		Gone: func(guardrail types.NamespacedName) { rejectsGauge.DeleteLabelValues(guardrail.Name) },
	}
}

// describe collects what the status reports, once this generation is in force.
func (c *controller) describe(_ context.Context, g *v1alpha1.Guardrail, _ policy.Remaining) (is policy.Description[*v1alpha1.Guardrail], err error) {
	became, ok := c.outcomeOf(g)
	if !ok {
		is.Skip = true
		return is, nil
	}
	rejected := c.Rejections.Of(g.Name)
	rejectsGauge.WithLabelValues(g.Name).Set(float64(len(rejected)))
	silent, checked := c.Witnesses.Silent(g.Name)
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

// controller puts all Guardrails in force, and keeps what became of each.
type controller struct {
	Options

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

// sameStatus says whether two outcomes give the same status.
func (r outcome) sameStatus(other outcome) bool {
	a, b := r, other
	a.Verdict.RecheckAt, b.Verdict.RecheckAt = time.Time{}, time.Time{}
	return reflect.DeepEqual(a, b)
}

// use puts these Guardrails in force in place of all previous ones. It gives when a rule over Guardrails may say something
// else without any event.
func (c *controller) use(ctx context.Context, all []*v1alpha1.Guardrail) (again time.Time) {
	results := map[string]outcome{}
	rules := 0
	for i, result := range c.Guard.SetGuardrails(all) { //nolint:contextcheck // it waits for nothing
		results[all[i].Name] = outcome{uid: all[i].UID, generation: all[i].Generation, GuardrailResult: result}
		rules += result.Rules
		if at := result.Verdict.RecheckAt; !at.IsZero() && (again.IsZero() || at.Before(again)) {
			again = at
		}
	}
	rulesGauge.Set(float64(rules))
	c.mu.Lock()
	changed := c.results == nil || !maps.EqualFunc(c.results, results, outcome.sameStatus)
	c.results = results
	c.mu.Unlock()
	if !changed {
		return again // only asked once more
	}
	policy := c.Guard.Policy()
	log.FromContext(ctx).Info("Guardrails are in force", "guardrails", len(all), "rules", rules, "pausedBy", policy.PausedBy, "frozenBy", policy.FrozenBy)
	for name := range results {
		c.request(name)
	}
	return again
}

// outcomeOf is what became of a Guardrail; ok is false while that generation isn't in force.
func (c *controller) outcomeOf(g *v1alpha1.Guardrail) (result outcome, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	result, ok = c.results[g.Name]
	return result, ok && result.uid == g.UID && result.generation == g.Generation
}

// lead takes the queue of a replica that became the leader.
func (c *controller) lead(q kube.Queue) {
	c.statuses.Attach(q)
	c.mu.Lock()
	names := slices.Collect(maps.Keys(c.results))
	c.mu.Unlock()
	for _, name := range names {
		c.request(name)
	}
}

// request asks for the status of a Guardrail. What isn't one, such as a kind's name, is found to be gone.
func (c *controller) request(name string) { c.statuses.Add(types.NamespacedName{Name: name}, 0) }

package guardrail

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

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

package guard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Nobody proves to a webhook who asks. The rules in a review are the asker's own, so they get one processor for all such
// reviews together, no right to ask for other accounts' rights, and a bound for all stored objects together.
const (
	// compileTimeout is for how long a review may compile, waiting included. With countTimeout it leaves half a second of what
	// the API server waits.
	compileTimeout = 3 * time.Second
	// countTimeout is for how long stored objects are judged. It is advice; the verdict waits for it.
	countTimeout = time.Second
	// countCost is what that may cost: about half a second.
	countCost = 5 * maxRequestCost
)

// errBusy means that others' reviews came first.
var errBusy error = apierrors.NewTooManyRequests("too many Guardrails are being reviewed at once; try again in a moment", 1)

// serialize does a small part of a review of a Guardrail, one at a time in the order of asking: a small Guardrail doesn't wait
// for all of a big one, and ordinary reviews have the other processors.
func (g *Guard) serialize(ctx context.Context, do func()) error {
	if g.reviewing.Acquire(ctx, 1) != nil {
		return errBusy
	}
	defer g.reviewing.Release(1)
	do()
	return nil
}

// ownRules compiles the Guardrail that is judged, once. What is in force isn't compiled again, so that a pause or another
// limit never waits for its turn.
func (e *evaluation) ownRules(gr *v1alpha1.Guardrail) (*ownRules, error) {
	if e.own != nil || e.ownErr != nil {
		return e.own, e.ownErr
	}
	ctx, cancel := context.WithTimeout(e.ctx, compileTimeout)
	defer cancel()
	own := e.guard.check(e.rules, gr, func(k *builtinKind, name string, r *v1alpha1.GuardrailRule) *compiledRule {
		compiled, known := e.rules.compiled[keyOf(k, name, r)]
		if known {
			return compiled
		}
		if err := e.guard.serialize(ctx, func() { compiled = k.compileOwnRule(name, r) }); err != nil {
			e.ownErr = err
			compiled = &compiledRule{Rule: ownRule(name, r), fault: &RuleError{}} // of no interest without the others
		}
		return compiled
	})
	if e.ownErr == nil {
		e.own = own
	}
	return e.own, e.ownErr
}

// count is a count of the stored objects that new and changed rules would keep from acting.
type count struct {
	*evaluation
	remaining costs
	forecast  guardrail.Forecast
}

// forecastRefusals counts the stored objects that new and changed rules would keep from acting.
func forecastRefusals(e *evaluation) (any, error) {
	gr, old, err := e.guardrails()
	if err != nil {
		return nil, err
	}
	own, err := e.ownRules(gr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(e.ctx, countTimeout)
	defer cancel()
	c := &count{evaluation: e, remaining: costs{units: countCost}}
	for _, kind := range e.guard.Kinds() {
		if rules := c.added(kind, own, old); len(rules) > 0 {
			if err := c.refusals(ctx, kind, rules); err != nil {
				return nil, err
			}
		}
	}
	return c.forecast, nil
}

// added are the rules that refuse, and didn't before. Those that ask the authorizer are left out: whoever reaches the
// webhook could ask for anybody's rights.
func (c *count) added(kind string, own *ownRules, old *v1alpha1.Guardrail) []*compiledRule {
	var added []*compiledRule
	for _, r := range own.byKind[kind] {
		was := func(o v1alpha1.GuardrailRule) bool {
			return o.Name == r.Name && o.Expression == r.Expression && slices.Contains(o.Kinds, kind) && cmp.Or(o.Severity, Deny) == Deny
		}
		switch {
		case !r.atRunTime, r.fault != nil, r.Severity != Deny, slices.ContainsFunc(old.Spec.Rules, was):
		case r.condition.asks:
			c.notCounted("what rule %s refuses, because it asks the authorizer", r.Name)
		default:
			added = append(added, r)
		}
	}
	return added
}

func (c *count) notCounted(format string, args ...any) {
	sample.Once(&c.forecast.NotCounted, fmt.Sprintf(format, args...))
}

// refusals judges each stored object of a kind, as long as there is time.
func (c *count) refusals(ctx context.Context, kind string, rules []*compiledRule) error {
	stored, err := c.guard.opts.Stored.All(ctx, kind)
	if err != nil {
		return err
	}
	refused, judged, incomplete := 0, 0, ""
	for object := range stored {
		refuses, known := c.refuses(ctx, kind, object, rules)
		if !known {
			incomplete = " so far, and there are more"
			c.notCounted("all stored %ss but %d, because it would take too long now", kind, judged)
			break
		}
		judged++
		if !refuses {
			continue
		}
		refused++
		if len(c.forecast.Refused) < sample.Size {
			c.forecast.Refused = append(c.forecast.Refused, nameOf(kind, object))
		} else {
			c.forecast.Unnamed++
		}
	}
	if refused > 0 {
		c.forecast.Refusals = append(c.forecast.Refusals, fmt.Sprintf("%d of %d stored %ss%s, which then %s", refused, judged, kind, incomplete, consequence(kind)))
	}
	return nil
}

// consequence is what becomes of objects of a kind that a rule refuses.
func consequence(kind string) string {
	switch kind {
	case kindGuardrail:
		return "only make things stricter, and raise no limit"
	case kindGuardrailException:
		return "lift nothing"
	}
	return "do nothing new"
}

func nameOf(kind string, object client.Object) string {
	if object.GetNamespace() != "" {
		return kind + "/" + object.GetNamespace() + "/" + object.GetName()
	}
	return kind + "/" + object.GetName()
}

// refuses says whether one of the rules refuses a stored object; known is false when time or budget ended before.
func (c *count) refuses(ctx context.Context, kind string, object client.Object, rules []*compiledRule) (refused, known bool) {
	err := c.guard.serialize(ctx, func() {
		judged, err := judgedOf(kind, object)
		if err != nil {
			refused = true // at run time nobody could judge it either
			return
		}
		of := c.guard.evaluation(ctx, c.rules, c.rules.kinds[kind], judged)
		of.authorizer, of.remaining = nil, c.remaining
		for _, r := range rules {
			if holds, err := of.holds(r.condition); err != nil || !holds {
				refused = true
				break
			}
		}
		c.remaining = of.remaining
	})
	return refused, err == nil && ctx.Err() == nil && c.remaining.units > 0
}

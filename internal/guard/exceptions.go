package guard

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
)

// Lifted is a rule that an exception keeps from refusing an object.
type Lifted struct {
	Rule string
	// Exception is the GuardrailException's name.
	Exception string
	// Until when.
	Until time.Time
}

// Target names an object of one of our kinds.
type Target struct {
	Kind, Namespace, Name string
}

func (t Target) compare(other Target) int {
	return cmp.Or(strings.Compare(t.Kind, other.Kind), strings.Compare(t.Namespace, other.Namespace), strings.Compare(t.Name, other.Name))
}

// Exceptions are those in force, by their targets. Nobody may change them.
func (g *Guard) Exceptions() map[Target][]*v1alpha1.GuardrailException {
	return g.rules.Load().exceptions
}

// SetExceptions puts these exceptions in force, in place of all former ones.
func (g *Guard) SetExceptions(all []*v1alpha1.GuardrailException) {
	g.notifyAll(Change{Targets: g.setExceptions(all)})
}

// setExceptions gives the targets for which something changed.
func (g *Guard) setExceptions(all []*v1alpha1.GuardrailException) []Target {
	g.mu.Lock()
	defer g.mu.Unlock()
	byTarget := g.byTarget(all)
	set := *g.rules.Load()
	was := set.exceptions
	set.exceptions = byTarget
	g.rules.Store(&set)
	return changedTargets(was, byTarget)
}

// byTarget has copies of them. One that comes from a file would be created now.
func (g *Guard) byTarget(all []*v1alpha1.GuardrailException) exceptions {
	byTarget := exceptions{}
	for _, x := range all {
		target := Target(x.Spec.TargetRef)
		byTarget[target] = append(byTarget[target], stamped(x.DeepCopy(), g.opts.Clock.Now()))
	}
	for _, of := range byTarget {
		slices.SortFunc(of, func(a, b *v1alpha1.GuardrailException) int { return strings.Compare(a.Name, b.Name) })
	}
	return byTarget
}

// exceptions by what they are for, and there by their names.
type exceptions map[Target][]*v1alpha1.GuardrailException

func changedTargets(was, is exceptions) []Target {
	same := func(a, b *v1alpha1.GuardrailException) bool {
		return a.UID == b.UID && a.Name == b.Name && a.DeletionTimestamp.Equal(b.DeletionTimestamp) && reflect.DeepEqual(a.Spec, b.Spec) &&
			maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
	}
	var changed []Target
	for target, exceptions := range is {
		if !slices.EqualFunc(exceptions, was[target], same) {
			changed = append(changed, target)
		}
	}
	for target := range was {
		if is[target] == nil {
			changed = append(changed, target)
		}
	}
	slices.SortFunc(changed, Target.compare)
	return changed
}

// lift finds the exception that lifts a violated rule for the object as it is now, and holds the longest. Only policies can
// be excepted: nothing judges a Guardrail or an exception again when an exception for it ends.
func (e *evaluation) lift(r *compiledRule) *Lifted {
	if !r.Exceptable || !acts(e.kind.name) {
		return nil
	}
	var found *Lifted
	for _, x := range e.exceptions {
		until := guardrail.Ends(x)
		if x.DeletionTimestamp != nil || !slices.Contains(x.Spec.RuleIDs, r.ID) || !e.now.Before(until) || found != nil && !found.Until.Before(until) {
			continue
		}
		if hash, err := hashOf(e.object.content); err == nil && x.Spec.SpecHash == hash && e.admits(x) {
			found = &Lifted{Rule: r.ID, Exception: x.Name, Until: until}
		}
	}
	return found
}

// readExceptions has a review that would refuse see the exceptions that are stored now: who creates an exception and then its policy
// must not be refused for what the cache is behind, nor who deleted it be admitted. Where there is no answer, or there are many refusals
// a second, those in force count.
func (e *evaluation) readExceptions() {
	if e.request == nil || e.exceptionsRead || e.guard.opts.Live == nil {
		return
	}
	e.exceptionsRead = true
	if !e.guard.asking.TryAccept() {
		return
	}
	var stored v1alpha1.GuardrailExceptionList
	if err := e.guard.opts.Live.List(e.ctx, &stored); err != nil {
		logf.FromContext(e.ctx).Error(err, "Can't read the exceptions, so those that were known count")
		return
	}
	target := targetOf(e.kind.name, e.object.content)
	var all []*v1alpha1.GuardrailException
	for i := range stored.Items {
		if x := &stored.Items[i]; Target(x.Spec.TargetRef) == target {
			all = append(all, x)
		}
	}
	e.exceptions = e.guard.byTarget(all)[target]
}

// admits says whether the rules over exceptions admit this one, and all rules that it names are there: it lifts them all or none. It is asked
// only when the exception would lift something, which is seldom.
func (e *evaluation) admits(x *v1alpha1.GuardrailException) bool {
	kind := e.rules.kinds[kindGuardrailException]
	judged, err := judgedOf(kindGuardrailException, x)
	missing := func(id string) bool { return e.kind.rule(id) == nil }
	if kind == nil || err != nil || slices.ContainsFunc(x.Spec.RuleIDs, missing) {
		return false
	}
	of := e.guard.evaluation(e.ctx, e.rules, kind, judged)
	of.exceptions = nil // no exception lifts the rules over exceptions
	verdict := of.atRunTime()
	e.noteRecheck(verdict.RecheckAt)
	return verdict.Allowed
}

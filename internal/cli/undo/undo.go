// Package undo takes back what Autohealer did to objects, by the records on the objects alone: it needs no manager, no
// webhook, and no policies. What a record means and what giving back takes is what the planners say when their policy is
// gone; the actuators write it.
package undo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// attempts bounds how often an object is read again that changed before it was written.
const attempts = 5

// Object is what something was done to, or what somebody asks about.
type Object struct {
	Kind schema.GroupVersionKind
	Key  types.NamespacedName
	// Title such as node/worker-7.
	Title string
	// Checked: it was found by its record of conditions.
	Checked bool
}

// Result is what became of one object.
type Result struct {
	Object Object
	// Did is what was done, or with a dry run would be; nothing when nothing was recorded.
	Did []string
	// Held keeps it from new acts; nil when nothing does. It stands also when the undo failed.
	Held *hold.Hold
	// Again says who will do the same again, and when; "" when nobody will.
	Again string
	// Err says why it isn't undone.
	Err error
}

// Undoer takes back what was done.
type Undoer struct {
	Client client.Client
	// Clock is the API server's, so that a workstation whose clock is off holds no longer or shorter.
	Clock  clock.PassiveClock
	DryRun bool
	// Hold keeps each object from new acts for so long; 0 doesn't. Reason says why, for people.
	Hold   time.Duration
	Reason string

	policies *policies
}

// work is what is to be taken back from an object.
type work struct {
	steps []string
	// write takes it back; nil when nothing is recorded.
	write func(context.Context) error
	// again says who would do it again.
	again []string
}

// read gives the policies, which are read once.
func (u *Undoer) read(ctx context.Context) *policies {
	if u.policies == nil {
		u.policies = readPolicies(ctx, u.Client)
	}
	return u.policies
}

// Undo takes back what was done to one object. It reads policies, where there are any, to say who will do it again.
func (u *Undoer) Undo(ctx context.Context, o Object) Result {
	u.read(ctx)
	r := Result{Object: o}
	about := &metav1.PartialObjectMetadata{}
	about.SetGroupVersionKind(o.Kind)
	if r.Err = u.Client.Get(ctx, o.Key, about); r.Err != nil {
		return r
	}
	if r.Held, r.Err = u.holdObject(ctx, about); r.Err != nil {
		return r
	}
	var again []string
	given := false // what a new plan says of an object that got its replicas back is that someone scaled it
	for range attempts {
		var w work
		if w, r.Err = u.plan(ctx, o, about); r.Err != nil {
			return r
		}
		if !given {
			r.Did, again = w.steps, w.again
		}
		if w.write == nil || u.DryRun {
			break
		}
		r.Err = w.write(ctx)
		given = given || errors.Is(r.Err, actuate.ErrUnfinished)
		if !errors.Is(r.Err, actuate.ErrStale) {
			break
		}
	}
	r.Again = u.policies.again(r, again)
	return r
}

// plan asks only for what the object's records tell of: who may take conditions off needn't be allowed to scale.
func (u *Undoer) plan(ctx context.Context, o Object, about *metav1.PartialObjectMetadata) (work, error) {
	if o.Kind == nodeKind {
		return u.node(ctx, o.Key.Name)
	}
	if o.Kind == actuate.PatchesKind {
		return u.patches(ctx, o)
	}
	if _, taken := about.Annotations[v1alpha1.AnnotationOriginalReplicas]; taken {
		if scaled, err := u.scaled(ctx, o); err != nil || scaled.write != nil {
			return scaled, err
		}
	}
	return u.conditions(ctx, o)
}

// holdObject keeps the object from new acts before anything is taken back. One that is held for longer stays so: it may be a mistake,
// which is reported, or somebody's will.
func (u *Undoer) holdObject(ctx context.Context, about *metav1.PartialObjectMetadata) (*hold.Hold, error) {
	now := u.Clock.Now()
	before, wanted := hold.Of(about.Annotations), &hold.Hold{Until: now.Add(u.Hold)}
	wanted.Text = hold.Text(wanted.Until)
	if !before.Active(now, time.Time{}) {
		before = nil
	}
	if u.Hold > 0 && about.GroupVersionKind() == actuate.PatchesKind {
		return nil, errors.New("it can't be held; instead " + unlabel)
	}
	if u.Hold == 0 || before != nil && before.Until.After(wanted.Until) {
		return before, nil
	}
	if u.DryRun {
		return wanted, nil
	}
	if err := actuate.Hold(ctx, u.Client, about, wanted.Until, u.Reason); err != nil {
		return before, err
	}
	return wanted, nil
}

// Release takes off what keeps Autohealer from an object; one that is gone is no error.
func (u *Undoer) Release(ctx context.Context, o Object) error {
	about := &metav1.PartialObjectMetadata{}
	about.SetGroupVersionKind(o.Kind)
	if err := u.Client.Get(ctx, o.Key, about); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(actuate.Release(ctx, u.Client, about))
}

// policies are those that could do it again.
type policies struct {
	sets     v1alpha1.ConditionSetList
	probes   v1alpha1.ProbeConfigList
	outliers v1alpha1.OutlierPolicyList
	// registrations have a resource version where there is their kind. Without it records of it may be anywhere.
	registrations v1alpha1.HealthCheckRegistrationList
	// unread says of those lists why they can't be read.
	unread map[client.ObjectList]string
	// stopped says why nobody does anything new; "" when they may.
	stopped string
}

// readPolicies reads what there is. Where the kinds aren't installed, or have gone just now, there are none.
func readPolicies(ctx context.Context, c client.Client) *policies {
	p, guardrails := &policies{unread: map[client.ObjectList]string{}}, v1alpha1.GuardrailList{} // without Guardrails it isn't said that somebody stops them
	for _, list := range []client.ObjectList{&p.sets, &p.probes, &p.outliers, &p.registrations, &guardrails} {
		if err := c.List(ctx, list); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			p.unread[list] = err.Error()
		}
	}
	declared := make([]guardrail.Declared, len(guardrails.Items))
	for i := range guardrails.Items {
		declared[i] = guardrail.Declared{Guardrail: &guardrails.Items[i]}
	}
	switch policy := guardrail.Merge(limit.Builtin(), declared); {
	case policy.Frozen():
		p.stopped = "Guardrail " + strings.Join(policy.FrozenBy, ", ") + " freezes everything"
	case policy.Paused():
		p.stopped = "Guardrail " + strings.Join(policy.PausedBy, ", ") + " pauses new acts"
	}
	return p
}

func (p *policies) setExists(uid types.UID) bool {
	return p.unread[&p.sets] != "" || slices.ContainsFunc(p.sets.Items, func(cs v1alpha1.ConditionSet) bool { return cs.UID == uid })
}

// taintsAgain says whether the set whose taint is removed matches the node still, as far as one look can tell.
func (p *policies) taintsAgain(s condition.Step, node *condition.Node, at timing.Moment) []string {
	for i := range p.sets.Items {
		cs := &p.sets.Items[i]
		if cs.UID != s.Set && cs.Name != s.SetName || cs.DeletionTimestamp != nil || cs.Spec.Mode == v1alpha1.Observe {
			continue
		}
		set, err := condition.NewSet(cs)
		if err != nil {
			continue // it does nothing new
		}
		if phase := set.Match(node, at).Phase; phase == condition.Matching || phase == condition.Doubtful {
			return []string{fmt.Sprintf("ConditionSet %s, which matches it", cs.Name)}
		}
	}
	return nil
}

// scalesAgain says whether the config for which replicas were taken would take them again.
func (p *policies) scalesAgain(c *probe.Config) []string {
	for i := range p.probes.Items {
		pc := &p.probes.Items[i]
		if pc.Namespace != c.Namespace || pc.Name != c.Name || pc.DeletionTimestamp != nil || pc.Spec.Mode == v1alpha1.Observe {
			continue
		}
		return []string{fmt.Sprintf("ProbeConfig %s, while its probe from outside fails", c.Key())}
	}
	return nil
}

// unknown says why it can't be known who would do again what was done to an object of a kind.
func (p *policies) unknown(kind schema.GroupVersionKind) string {
	switch kind {
	case nodeKind:
		return p.unread[&p.sets]
	case actuate.PatchesKind:
		return p.unread[&p.outliers]
	}
	return cmp.Or(p.unread[&p.registrations], p.unread[&p.probes])
}

// again says who does again what was undone, and what keeps them from it.
func (p *policies) again(r Result, who []string) string {
	if len(r.Did) == 0 {
		return ""
	}
	if unknown := p.unknown(r.Object.Kind); unknown != "" {
		return "Whether a policy does it again isn't known: " + unknown
	}
	if len(who) == 0 {
		return ""
	}
	slices.Sort(who)
	doers := strings.Join(slices.Compact(who), ", and ")
	switch {
	case r.Held != nil && r.Held.Until.IsZero():
		return "Done again when the hold is corrected or removed: by " + doers
	case r.Held != nil:
		return fmt.Sprintf("Done again after %s: by %s", hold.Text(r.Held.Until), doers)
	case p.stopped != "":
		return fmt.Sprintf("Done again when that ends: by %s; now %s", doers, p.stopped)
	case r.Object.Kind == actuate.PatchesKind:
		return fmt.Sprintf("Done again soon: by %s. To keep it off, %s, or stop all with: kubectl autohealer freeze", doers, unlabel)
	}
	return fmt.Sprintf("Done again soon: by %s. Keep it off with --hold=2h, or stop all with: kubectl autohealer freeze", doers)
}

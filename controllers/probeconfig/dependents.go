package probeconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/policy"
)

// look reads a config's dependents, all at once, and tells the fleet whether any of them is down. When some can't be read
// that is an error, unless partly will do: nothing is taken upon half a view, and everything is given back that can be.
func (r *TargetReconciler) look(ctx context.Context, t *target, c *probe.Config, partly bool) ([]probe.Object, error) {
	objects := r.readAll(ctx, t.key.Namespace, c.Dependents)
	t.recall(c, objects)
	denied, unread := unreadOf(c, objects)
	t.mu.Lock()
	at := t.fleetKey()
	down := t.owes(c, objects)
	t.mu.Unlock()
	if unread == nil || partly || denied {
		r.Observer.fleet().ObserveDown(at, down)
	}
	if unread != nil && !partly {
		r.Troubles.Failed(nameOf(t.key).String(), unread, policy.Ref{UID: c.UID, NamespacedName: c.Key()})
		return nil, unread
	}
	t.mu.Lock()
	before := t.taken()
	t.objects, t.objectsOf = objects, c
	turned := before != t.taken()
	t.mu.Unlock()
	if turned {
		r.Observer.requestConfig(t.key.Config)
	}
	return objects, nil
}

// owes says whether something of the target counts as scaled down. It needs t.mu.
func (t *target) owes(c *probe.Config, objects []probe.Object) bool {
	return len(t.former) > 0 || slices.ContainsFunc(objects, func(o probe.Object) bool {
		return o.Owes(c) && (!o.Unseen || !o.Denied) // what may not be seen must not use up the others' cap
	})
}

// unreadOf tells of the objects that couldn't be read; denied: each of them because Autohealer's account may not.
func unreadOf(c *probe.Config, objects []probe.Object) (denied bool, unread error) {
	denied = true
	for i, o := range objects {
		if o.Unread != "" {
			denied = denied && o.Denied
			unread = errors.Join(unread, fmt.Errorf("%s: %s", c.Dependents[i].Ref, o.Unread))
		}
	}
	return denied, unread
}

func (r *TargetReconciler) readAll(ctx context.Context, namespace string, dependents []probe.Dependent) []probe.Object {
	objects := make([]probe.Object, len(dependents))
	var reading sync.WaitGroup
	for i, d := range dependents {
		reading.Go(func() { objects[i] = r.Reader.Read(ctx, namespace, d.Ref) })
	}
	reading.Wait()
	return objects
}

// recall adds to objects that can't be seen now what was known of them: from what was never recorded nothing was taken.
func (t *target) recall(c *probe.Config, objects []probe.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.objectsOf == nil || t.objectsOf.UID != c.UID {
		return
	}
	for i := range objects {
		o := &objects[i]
		was := slices.IndexFunc(t.objectsOf.Dependents, func(d probe.Dependent) bool { return d.Ref == c.Dependents[i].Ref })
		if o.Unseen && was >= 0 {
			o.Record, o.RecordError, o.Unseen = t.objects[was].Record, t.objects[was].RecordError, t.objects[was].Unseen
		}
	}
}

// assumeTaken counts objects as recorded of which a record is about to be written, until they are read again.
func (t *target) assumeTaken(c *probe.Config, plan probe.Plan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.objectsOf != c {
		return
	}
	t.objects = slices.Clone(t.objects)
	for _, act := range plan.Acts {
		if i := slices.IndexFunc(c.Dependents, func(d probe.Dependent) bool { return d.Ref == act.Ref }); act.Step == probe.Take && i >= 0 {
			t.objects[i].Record = act.Record
		}
	}
}

// doubtObjects: a write failed that may have been done all the same, or others may be there. The objects are read again before
// anything is said of them.
func (t *target) doubtObjects() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.objectsOf, t.restored = nil, false
}

// giveBackFormer gives back what was taken from objects that the config doesn't name any more, and says what was planned.
func (r *TargetReconciler) giveBackFormer(ctx context.Context, t *target, c *probe.Config, former []probe.Dependent, place namespace) (probe.Plan, error) {
	if len(former) == 0 {
		return probe.Plan{Done: true}, nil
	}
	of := *c
	of.Dependents = former
	in := probe.Scaling{Config: &of, Withdrawn: true, Hibernated: place.hibernated, Now: r.now(), Objects: r.readAll(ctx, t.key.Namespace, former)}
	plan := probe.PlanScaling(in)
	if err := r.carryOut(ctx, t, in, plan, actuate.AdmittedProber{}); err != nil || !plan.Done {
		return plan, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.former = slices.DeleteFunc(t.former, func(d probe.Dependent) bool {
		return names(&of, d.Ref) && !slices.ContainsFunc(plan.Left, func(f probe.Finding) bool { return f.Ref == d.Ref })
	})
	down := slices.ContainsFunc(t.objects, func(o probe.Object) bool { return o.Owes(c) })
	r.Observer.fleet().ObserveDown(t.fleetKey(), down || len(t.former) > 0)
	return plan, nil
}

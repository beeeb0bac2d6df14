// Package undo takes back what Autohealer did to objects, by the records on the objects alone: it needs no manager, no
// webhook, and no policies. What a record means and what giving back takes is what the planners say when their policy is
// gone; the actuators write it.
package undo

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/hold"
)

// attempts bounds how often an object is read again that changed before it was written.
const attempts = 5

// Object is what something was done to, or what somebody asks about.
type Object struct {
	Kind schema.GroupVersionKind
	Key  types.NamespacedName
	// Title such as node/worker-7.
	Title string
}

// Result is what became of one object.
type Result struct {
	Object Object
	// Did is what was done, or with a dry run would be; nothing when nothing was recorded.
	Did []string
	// Held is until when nothing new is done to it; zero when it isn't held.
	Held time.Time
	// Again says who will do the same again, and when.
	Again []string
	// Err says why it isn't undone.
	Err error
}

// Undoer takes back what was done.
type Undoer struct {
	Client client.Client
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

// Undo takes back what was done to one object. It reads policies, where there are any, to say who will do it again.
func (u *Undoer) Undo(ctx context.Context, o Object) Result {
	if u.policies == nil {
		u.policies = readPolicies(ctx, u.Client)
	}
	r := Result{Object: o}
	about := &metav1.PartialObjectMetadata{}
	about.SetGroupVersionKind(o.Kind)
	if r.Err = u.Client.Get(ctx, o.Key, about); r.Err != nil {
		return r
	}
	if r.Held, r.Err = u.hold(ctx, about); r.Err != nil {
		return r
	}
	for range attempts {
		var w work
		if w, r.Err = u.plan(ctx, o); r.Err != nil {
			return r
		}
		r.Did, r.Again = w.steps, w.again
		if w.write == nil || u.DryRun {
			break
		}
		if r.Err = w.write(ctx); !errors.Is(r.Err, actuate.ErrStale) {
			break
		}
	}
	r.Again = u.policies.again(r.Again, r.Held)
	return r
}

func (u *Undoer) plan(ctx context.Context, o Object) (work, error) {
	if o.Kind == nodeKind {
		return u.node(ctx, o.Key.Name)
	}
	return u.scaled(ctx, o)
}

// hold keeps the object from new acts before anything is taken back. One that is held for longer stays so.
func (u *Undoer) hold(ctx context.Context, about *metav1.PartialObjectMetadata) (until time.Time, err error) {
	now := u.Clock.Now()
	h := hold.Of(about.Annotations)
	if h.Holds(now, time.Time{}) {
		until = h.Until
	}
	wanted := now.Add(u.Hold)
	if u.Hold == 0 || h.Fault(now) == "" && until.After(wanted) {
		return until, nil
	}
	if u.DryRun {
		return wanted, nil
	}
	return wanted, actuate.Hold(ctx, u.Client, about, wanted, u.Reason)
}

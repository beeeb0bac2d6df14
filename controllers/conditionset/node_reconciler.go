package conditionset

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/condition"
)

const (
	// quietWatch is for how long a silent watch is believed. After that a node is read live before something is taken
	// from its pods: a watch can die without a word.
	quietWatch = 20 * time.Second
	// lookAgainWaiting is the safety net while a write isn't visible yet.
	lookAgainWaiting = 10 * time.Second
	// pastDeadline lets a deadline lie behind us when it is looked at.
	pastDeadline = time.Millisecond
)

// NodeReconciler gives each node the taints that the sets ask for.
type NodeReconciler struct {
	Observer *Observer
	Taints   *actuate.Taints
	// Live reads from the API server, past the cache.
	Live    client.Reader
	Orphans *Orphans
	Trouble *Trouble
	Report  *Reporter
	// OwnNamespace is where Autohealer's own pods run; "" when unknown.
	OwnNamespace string
}

// Reconcile plans one node and carries the plan out.
func (r *NodeReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	defer r.Observer.enqueueDirty()
	plan, next, err := r.decide(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if next == condition.Write {
		if err := r.act(ctx, plan); err != nil {
			return reconcile.Result{}, err
		}
	}
	if next == condition.Wait {
		return reconcile.Result{RequeueAfter: lookAgainWaiting}, nil
	}
	return r.lookAgain(ctx, plan), nil
}

// decide plans from what is known, and from a live read where that isn't enough: an eviction, an earlier write whose
// outcome is uncertain, a watch that has been silent.
func (r *NodeReconciler) decide(ctx context.Context, name string) (condition.Plan, condition.Next, error) {
	fleet, facts := r.Observer.Facts.Fleet, r.Observer.Facts
	at := facts.Moment()
	plan, next := fleet.Decide(name, at, nil)
	if next == condition.Write && plan.Harmful() && facts.Age(at.Now) > quietWatch {
		r.Observer.enqueueNodes(fleet.Failed(name)) // nothing was written: plan again from a live read
		next = condition.ReadLive
	}
	for range 2 { // the first live read may end an uncertainty and show that an eviction is due, which needs the pods
		if next != condition.ReadLive {
			break
		}
		var evidence *condition.Evidence
		var err error
		if evidence, err = r.readLive(ctx, name, plan.NeedsEvidence); err != nil {
			return condition.Plan{}, condition.Nothing, err
		}
		plan, next = fleet.Decide(name, facts.Moment(), evidence)
	}
	return plan, next, nil
}

func (r *NodeReconciler) readLive(ctx context.Context, name string, withPods bool) (*condition.Evidence, error) {
	facts := r.Observer.Facts
	var node corev1.Node
	if err := r.Live.Get(ctx, types.NamespacedName{Name: name}, &node); err != nil {
		if apierrors.IsNotFound(err) {
			r.Observer.enqueueNodes(facts.Fleet.ForgetNode(name, facts.Moment()))
			return nil, nil
		}
		return nil, err
	}
	r.Observer.enqueueNodes(facts.Fleet.ObserveLive(&node, facts.Moment()))
	if !withPods {
		return nil, nil
	}
	return r.evidence(ctx, name)
}

// act carries out a plan and tells of it.
func (r *NodeReconciler) act(ctx context.Context, plan condition.Plan) error {
	fleet, name := r.Observer.Facts.Fleet, plan.Node.Name
	version, err := r.Taints.Apply(ctx, plan, r.Observer.admittedFor(plan))
	if err != nil {
		if actuate.Certain(err) {
			r.Observer.enqueueNodes(fleet.Failed(name))
		}
		r.Trouble.note(plan, err)
		r.Report.failed(plan, err)
		return err
	}
	r.Observer.enqueueNodes(fleet.Written(name, version))
	r.Trouble.note(plan, nil)
	r.Report.acted(plan, r.Observer.Facts.Clock.Now())
	return nil
}

// lookAgain says when time alone may change the plan.
func (r *NodeReconciler) lookAgain(ctx context.Context, plan condition.Plan) reconcile.Result {
	now := r.Observer.Facts.Clock.Now()
	at := plan.LookAgain
	if orphans := r.Orphans.check(ctx, plan.Orphans, now); !orphans.IsZero() && (at.IsZero() || orphans.Before(at)) {
		at = orphans
	}
	if at.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(pastDeadline, at.Sub(now)+pastDeadline)}
}

// isStale says that an error means no more than that someone else wrote first.
func isStale(err error) bool { return errors.Is(err, actuate.ErrStale) || apierrors.IsConflict(err) }

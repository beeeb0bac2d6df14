package probeconfig

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// Reconciler keeps a ProbeConfig's finalizer and status. The acting is the TargetReconciler's.
type Reconciler struct {
	Client   client.Client
	Observer *Observer
	Troubles *status.Troubles
	Report   *Reporter
	// Reader finds records.
	Reader *actuate.ScaleReader
	// Leads says whether this replica surely leads. Default: it does.
	Leads func() bool

	pace status.Pace
	// recalled has the names of configs whose records were looked for, with the UID that they had.
	recalled sync.Map
}

// Reconcile keeps one config's finalizer and status.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := r.keep(ctx, request)
	return kube.AfterConflict(ctx, result, err, status.Delay)
}

func (r *Reconciler) keep(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pc := &v1alpha1.ProbeConfig{}
	if err := r.Client.Get(ctx, request.NamespacedName, pc); err != nil {
		forgetStates(request.NamespacedName)
		r.pace.Forget(request.NamespacedName)
		if apierrors.IsNotFound(err) {
			r.recalled.Delete(request.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pc.DeletionTimestamp != nil {
		return r.release(ctx, pc)
	}
	if err := kube.SetFinalizer(ctx, r.Client, pc, v1alpha1.FinalizerUndo, true); err != nil {
		return reconcile.Result{}, err
	}
	if wait := r.pace.Wait(request.NamespacedName, r.Observer.Facts.Clock.Now(), r.urgent(pc)); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	recalling := r.recallOnce(ctx, pc)
	st, ok := r.observe(pc)
	if !ok {
		return reconcile.Result{RequeueAfter: status.Delay}, recalling
	}
	return reconcile.Result{}, errors.Join(r.writeStatus(ctx, pc, st), recalling)
}

// urgent: whoever changed a config or a rule wants to see what is refused.
func (r *Reconciler) urgent(pc *v1alpha1.ProbeConfig) bool {
	j, judged := r.Observer.judge.Of(client.ObjectKeyFromObject(pc))
	accepted := meta.IsStatusConditionTrue(pc.Status.Conditions, v1alpha1.ConditionAccepted)
	return pc.Status.ObservedGeneration != pc.Generation || judged && !j.Outdated && j.Read.unreadable == nil && accepted != j.Verdict.Allowed
}

// release lets a deleted config go once all that it scaled down is given back, and says until then what it waits for.
func (r *Reconciler) release(ctx context.Context, pc *v1alpha1.ProbeConfig) (reconcile.Result, error) {
	j, _ := r.Observer.judge.Of(client.ObjectKeyFromObject(pc))
	waits := r.waitsFor(j)
	free, doubt := r.free(ctx, pc, j, waits)
	if free {
		for _, t := range r.Observer.targets.of(client.ObjectKeyFromObject(pc)) {
			r.Report.left(t, r.Observer.Facts.Clock.Now())
		}
		r.Troubles.Forget(pc.UID)
		return reconcile.Result{}, client.IgnoreNotFound(kube.SetFinalizer(ctx, r.Client, pc, v1alpha1.FinalizerUndo, false))
	}
	if st, ok := r.observe(pc); ok && r.pace.Wait(client.ObjectKeyFromObject(pc), r.Observer.Facts.Clock.Now(), false) == 0 {
		st.undoing = waits
		if err := r.writeStatus(ctx, pc, st); err != nil {
			return reconcile.Result{}, errors.Join(err, doubt)
		}
	}
	return reconcile.Result{RequeueAfter: status.Delay}, doubt
}

// free says whether nothing is scaled down for a deleted config: as far as this process knows, and then by the records on
// all objects. The error is that these can't be read.
func (r *Reconciler) free(ctx context.Context, pc *v1alpha1.ProbeConfig, j judgement, waits []string) (free bool, err error) {
	leads := r.Leads == nil || r.Leads()
	known := j.Object != nil && j.UID == pc.UID && j.Object.DeletionTimestamp != nil && r.Observer.knowsTargets(j)
	if !leads || !known || len(waits) > 0 {
		return false, nil
	}
	n, err := r.recall(ctx, j)
	return n == 0 && err == nil, err
}

// waitsFor are the namespaces where something may still be scaled down for a deleted config.
func (r *Reconciler) waitsFor(j judgement) []string {
	if j.Object == nil {
		return nil
	}
	var waits []string
	for _, t := range r.Observer.targets.of(client.ObjectKeyFromObject(j.Object)) {
		t.mu.Lock()
		if !t.restored || j.Read.config != nil && t.config != j.Read.config {
			waits = append(waits, t.key.Namespace)
		}
		t.mu.Unlock()
	}
	return waits
}

// observe gathers what the status tells; ok is false while this generation isn't judged, and while the rules aren't known by
// which it would be.
func (r *Reconciler) observe(pc *v1alpha1.ProbeConfig) (st state, ok bool) {
	key := client.ObjectKeyFromObject(pc)
	st.judgement, ok = r.Observer.judge.Of(key)
	if !ok || !st.judgement.Settled(pc) {
		return st, false
	}
	if st.paused, ok = r.Observer.judge.PausedBy(); !ok {
		return st, false
	}
	st.synced = r.Observer.synced.Load()
	st.knowsAll = r.wasRecalled(pc) && r.Observer.knowsTargets(st.judgement)
	st.trouble = r.Troubles.Get(pc.UID)
	st.breaker, st.broken = r.Observer.fleet().Breaker()
	st.ownNamespace = r.Observer.OwnNamespace
	for _, t := range r.Observer.targets.of(key) {
		place, _ := r.Observer.place(t.key.Namespace)
		s := t.sight(place)
		st.knowsAll = st.knowsAll && len(s.former) == 0
		st.add(s)
	}
	return st, true
}

// writeStatus writes what changed.
func (r *Reconciler) writeStatus(ctx context.Context, pc *v1alpha1.ProbeConfig, st state) error {
	after := pc.DeepCopy()
	after.Status = statusOf(pc, st)
	gaugeStates(client.ObjectKeyFromObject(pc), after.Status)
	written, err := kube.WriteStatus(ctx, r.Client, pc, after)
	if err != nil {
		return fmt.Errorf("tell how ProbeConfig %s is: %w", client.ObjectKeyFromObject(pc), err)
	}
	if written {
		status.Tell(r.Report.Events, pc, pc.Status.Conditions, after.Status.Conditions)
	}
	return nil
}

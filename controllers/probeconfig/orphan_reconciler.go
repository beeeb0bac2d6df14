package probeconfig

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

const (
	// maxOrphans are the configs that are looked for at once. A record may name any.
	maxOrphans = 50
	// orphanDelay is how long what is being written for a config that goes may take.
	orphanDelay = 10 * time.Second
)

// orphansName is the only one in its queue: all are looked at at once.
var orphansName = types.NamespacedName{Name: "records"}

// OrphanReconciler gives back what was taken for configs that are gone and didn't: someone removed their finalizer. It looks
// when a manager takes over, and when a config goes that had something scaled down.
type OrphanReconciler struct {
	*TargetReconciler

	confirmer *kube.Orphans
	// confirmed are the UIDs of configs that are gone for sure.
	confirmed sets.Set[types.UID]
}

// NewOrphanReconciler gives back as targets does.
func NewOrphanReconciler(targets *TargetReconciler) *OrphanReconciler {
	r := &OrphanReconciler{TargetReconciler: targets, confirmed: sets.New[types.UID]()}
	r.confirmer = &kube.Orphans{
		Live: targets.Live, Kind: v1alpha1.GroupVersion.WithKind(kindProbeConfig), Timings: targets.Observer.Facts.Timings, Confirm: func(uid types.UID) { r.confirmed.Insert(uid) },
	}
	return r
}

// Reconcile looks at the records on all objects.
func (r *OrphanReconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	paused, known := r.Observer.policies.PausedBy()
	switch {
	case !r.Observer.synced.Load(), !known:
		return reconcile.Result{RequeueAfter: policy.Delay}, nil
	case paused.Frozen:
		return reconcile.Result{RequeueAfter: r.Observer.Facts.Timings.Orphan()}, nil
	}
	orphans, all := r.orphans(ctx)
	unknown := map[types.UID]types.NamespacedName{}
	for _, o := range orphans {
		if !r.confirmed.Has(o.Record.Owner) && len(unknown) < maxOrphans {
			unknown[o.Record.Owner] = o.Record.Config().Key()
		}
	}
	again := r.confirmer.Check(ctx, unknown, r.now())
	var failed error
	for _, o := range orphans {
		if r.confirmed.Has(o.Record.Owner) {
			failed = errors.Join(failed, r.restore(ctx, o))
		}
	}
	switch {
	case failed != nil:
		log.FromContext(ctx).Error(failed, "Can't scale up again what was scaled down for a ProbeConfig that is gone")
		return reconcile.Result{RequeueAfter: r.Observer.Facts.Timings.Orphan()}, nil
	case again.IsZero() && all:
		return reconcile.Result{}, nil
	case again.IsZero():
		return reconcile.Result{RequeueAfter: r.Observer.Facts.Timings.Orphan()}, nil
	}
	return reconcile.Result{RequeueAfter: max(0, again.Sub(r.now())) + pastDeadline}, nil
}

// orphans are the objects with a record of no config that is known; all is false when some kind couldn't be listed just now. Kinds
// that Autohealer may not list everywhere, or that aren't served, are left out.
func (r *OrphanReconciler) orphans(ctx context.Context) (orphans []actuate.Recorded, all bool) {
	all = true
	for _, kind := range r.Observer.recordedKinds() {
		found, err := r.Reader.Recorded(ctx, schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind), "")
		if err != nil {
			log.FromContext(ctx).V(1).Info("Not looking for records of ProbeConfigs that are gone", "kind", kind.Kind, "reason", err.Error())
			all = all && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || meta.IsNoMatchError(err))
			continue
		}
		for _, one := range found {
			if r.Observer.namespaceActive(one.Namespace) && !r.Observer.ownsRecord(one) {
				orphans = append(orphans, one)
			}
		}
	}
	return orphans, all
}

// restore gives back what was taken from one object, if it still says so.
func (r *OrphanReconciler) restore(ctx context.Context, o actuate.Recorded) error {
	nsState, _ := r.Observer.namespaceState(o.Namespace)
	in := probe.Scaling{
		Config: o.Record.Config(), Removed: []probe.Ref{o.Ref}, Objects: []probe.Object{r.Reader.Read(ctx, o.Namespace, o.Ref)}, Hibernated: nsState.hibernated,
	}
	plan := probe.PlanScaling(in)
	err := r.carryOut(ctx, &probe.Target{Namespace: o.Namespace, Config: in.Config}, plan.Acts, actuate.AdmittedProber{})
	if o := in.Objects[0]; err == nil && o.Unread != "" {
		return errors.New(o.Unread)
	}
	return err
}

// ownsRecord says whether a record is of a stored config: by its UID, or by its name where that config is known to act.
func (o *Observer) ownsRecord(r actuate.Recorded) bool {
	for _, key := range o.policies.Keys() {
		if j, ok := o.policies.Get(key); ok && (j.UID == r.Record.Owner || key.String() == r.Record.Policy && len(o.trustedRecords(j.Object, []actuate.Recorded{r})) > 0) {
			return true
		}
	}
	return false
}

// recordedKinds are those of which something may be scaled down for a config that is gone: such as everybody scales, and those
// of the configs that there are, or were.
func (o *Observer) recordedKinds() []v1alpha1.DependentKind {
	kinds := sets.New(v1alpha1.DependentKind{APIVersion: "apps/v1", Kind: "Deployment"}, v1alpha1.DependentKind{APIVersion: "apps/v1", Kind: "StatefulSet"})
	for _, key := range o.policies.Keys() {
		if j, ok := o.policies.Get(key); ok {
			addKinds(kinds, j.Object)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return kinds.Union(o.goneKinds).UnsortedList()
}

// addKinds adds those of a config, as long as they are no more than one config may have.
func addKinds(to sets.Set[v1alpha1.DependentKind], pc *v1alpha1.ProbeConfig) {
	for _, kind := range dependentKinds(pc, true) {
		if to.Len() < maxKinds {
			to.Insert(kind)
		}
	}
}

// queueOrphans looks for what a config leaves that went.
func (o *Observer) queueOrphans(pc *v1alpha1.ProbeConfig, down bool) {
	if !down && len(pc.Status.Scaled) == 0 {
		return
	}
	o.mu.Lock()
	addKinds(o.goneKinds, pc)
	o.mu.Unlock()
	o.orphanRequests.Add(orphansName, orphanDelay)
}

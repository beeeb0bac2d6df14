package healthcheckregistration

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// recordsPage is how many targets are read at once, of which the metadata alone.
const recordsPage = 500

// release lets a deleted registration go once no target has a condition of it that no other registration decides, and says
// until then what it waits for.
func (r *Reconciler) release(ctx context.Context, hcr *v1alpha1.HealthCheckRegistration) (reconcile.Result, error) {
	j, ok := r.Observer.judge.Of(client.ObjectKeyFromObject(hcr))
	if leads := r.Leads == nil || r.Leads(); !leads || !ok || !r.Observer.synced.Load() || j.Object.DeletionTimestamp == nil {
		return reconcile.Result{RequeueAfter: status.Delay}, nil
	}
	left, on, err := r.left(ctx, j)
	if err == nil && left == 0 {
		r.Troubles.Forget(hcr.UID)
		return reconcile.Result{}, client.IgnoreNotFound(kube.SetFinalizer(ctx, r.Client, hcr, v1alpha1.FinalizerUndo, false))
	}
	st, _ := r.observe(ctx, hcr)
	if st.judgement.Object == nil || r.pace.Wait(client.ObjectKeyFromObject(hcr), r.Observer.Facts.Clock.Now(), false) > 0 {
		return reconcile.Result{RequeueAfter: status.Delay}, err
	}
	st.undoing, st.on = left, on
	_, failed := r.writeStatus(ctx, hcr, st)
	return reconcile.Result{RequeueAfter: status.Delay}, errors.Join(err, failed)
}

// left counts the targets whose records claim a condition that no other registration decides, as they were seen last. That there
// are none only a live read says: many of those would take from the removals what they need of the API server.
func (r *Reconciler) left(ctx context.Context, j judgement) (n int, first string, err error) {
	if n, first := r.leftAsSeen(ctx, j); n > 0 {
		return n, first, nil
	}
	return r.leftLive(ctx, j)
}

func (r *Reconciler) leftAsSeen(ctx context.Context, j judgement) (n int, first string) {
	kind := j.Read.kind
	if err := r.Observer.Watches.Watch(ctx, kind, true); err != nil {
		return 0, ""
	}
	objects, err := r.Observer.Watches.List(ctx, kind, "", everything)
	if err != nil {
		return 0, ""
	}
	return claimedInVain(r, kind, objects)
}

// leftLive asks the API server. A kind that isn't served any more has none.
func (r *Reconciler) leftLive(ctx context.Context, j judgement) (n int, first string, err error) {
	kind := j.Read.kind
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	for next := ""; ; next = page.Continue {
		switch err := r.Live.List(ctx, page, client.Limit(recordsPage), client.Continue(next)); {
		case checking.Unserved(err):
			return 0, "", nil
		case err != nil:
			return 0, "", fmt.Errorf("list each %s to see whose conditions are left: %w", kind.Kind, err)
		}
		objects := make([]*metav1.PartialObjectMetadata, len(page.Items))
		for i := range page.Items {
			objects[i] = &page.Items[i]
		}
		some, one := claimedInVain(r, kind, objects)
		if n += some; first == "" {
			first = one
		}
		if page.Continue == "" {
			return n, first, nil
		}
	}
}

// claimedInVain counts the targets whose records claim a condition that no registration decides which stays. One that is being deleted
// isn't looked at any more, however long that takes: its conditions go with it.
func claimedInVain[T client.Object](r *Reconciler, kind schema.GroupVersionKind, objects []T) (n int, first string) {
	for _, object := range objects {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		for _, t := range registration.Owned(object) {
			if !r.Observer.decidedBySome(kind.GroupKind(), t) {
				if n++; first == "" {
					first = client.ObjectKeyFromObject(object).String()
				}
				break
			}
		}
	}
	return n, first
}

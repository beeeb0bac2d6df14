package healthcheckregistration

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/policy"
)

// recordsPage is how many targets are read at once, of which the metadata alone.
const recordsPage = 500

// left counts the targets that have a condition of a deleted registration that no other registration decides.
func (k *keeper) left(ctx context.Context, hcr *v1alpha1.HealthCheckRegistration) (policy.Left, error) {
	stored, ok := k.policies.Get(client.ObjectKeyFromObject(hcr))
	if !ok || !k.synced.Load() || stored.Object.DeletionTimestamp == nil {
		return policy.Left{Unknown: true}, nil
	}
	n, first, err := k.leftOf(ctx, stored)
	if err != nil {
		return policy.Left{Unknown: true}, err
	}
	return policy.Left{Targets: n, Sample: []string{first}}, nil
}

// leftOf counts the targets whose records claim a condition that no other registration decides, as they were seen last. That there
// are none only a live read says: many of those would take from the removals what they need of the API server.
func (k *keeper) leftOf(ctx context.Context, stored storedRegistration) (n int, first string, err error) {
	if n, first := k.leftAsSeen(ctx, stored); n > 0 {
		return n, first, nil
	}
	return k.leftLive(ctx, stored)
}

func (k *keeper) leftAsSeen(ctx context.Context, stored storedRegistration) (n int, first string) {
	kind := stored.Read.kind
	if err := k.Watches.Watch(ctx, kind, true); err != nil {
		return 0, ""
	}
	objects, err := k.Watches.List(ctx, kind, "", everything)
	if err != nil {
		return 0, ""
	}
	return claimedInVain(k.Observer, kind, objects)
}

// leftLive asks the API server. A kind that isn't served any more has none.
func (k *keeper) leftLive(ctx context.Context, stored storedRegistration) (n int, first string, err error) {
	kind := stored.Read.kind
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	for next := ""; ; next = page.Continue {
		switch err := k.Live.List(ctx, page, client.Limit(recordsPage), client.Continue(next)); {
		case checking.Unserved(err):
			return 0, "", nil
		case err != nil:
			return 0, "", fmt.Errorf("list each %s to see whose conditions are left: %w", kind.Kind, err)
		}
		objects := make([]*metav1.PartialObjectMetadata, len(page.Items))
		for i := range page.Items {
			objects[i] = &page.Items[i]
		}
		some, one := claimedInVain(k.Observer, kind, objects)
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
func claimedInVain[T client.Object](o *Observer, kind schema.GroupVersionKind, objects []T) (n int, first string) {
	for _, object := range objects {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		for _, t := range registration.Owned(object) {
			if !o.decidedBySome(kind.GroupKind(), t) {
				if n++; first == "" {
					first = client.ObjectKeyFromObject(object).String()
				}
				break
			}
		}
	}
	return n, first
}

package uninstall

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

func TestWhatIsStuckIsNamedAlsoWhenTheTimeEndsWithinALook(t *testing.T) {
	kept := &object{ObjectMeta: metav1.ObjectMeta{Name: "kept", Finalizers: []string{"example.com/keep"}, DeletionTimestamp: &metav1.Time{Time: time.Now()}}}
	kept.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ConditionSet"))
	u := &Uninstaller{Timeout: 5 * pollInterval, Report: func(string) {}, Progress: func(string) {}}
	looks := 0
	err := u.remove(t.Context(), "", func(ctx context.Context) ([]*object, error) {
		if looks++; looks == 1 {
			return []*object{kept}, nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	const want = "conditionset/kept is deleted and still there: it waits for the finalizers example.com/keep. See to who set them, then run this again"
	if err == nil || err.Error() != want || looks < 2 {
		t.Errorf("after %d looks: %v", looks, err)
	}
}

// TestTheCheckIsDeletedWithItsPod, which an API server leaves behind unless it is asked not to.
func TestTheCheckIsDeletedWithItsPod(t *testing.T) {
	check := &object{ObjectMeta: metav1.ObjectMeta{Namespace: "autohealer-system", Name: "autohealer-uninstall-check", UID: "1"}}
	check.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	var asked client.DeleteOptions
	u := &Uninstaller{Report: func(string) {}, Client: interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
			asked.ApplyOptions(opts)
			return nil
		},
	})}
	if err := u.removeOne(t.Context(), check, ""); err != nil {
		t.Fatal(err)
	}
	if asked.PropagationPolicy == nil || *asked.PropagationPolicy != metav1.DeletePropagationBackground {
		t.Errorf("asked for %v", asked.PropagationPolicy)
	}
}

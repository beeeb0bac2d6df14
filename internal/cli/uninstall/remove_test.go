package uninstall

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

func TestWhatIsStuckIsNamedAlsoWhenTheTimeEndsWithinALook(t *testing.T) {
	kept := &object{ObjectMeta: metav1.ObjectMeta{Name: "kept", Finalizers: []string{"example.com/keep"}, DeletionTimestamp: &metav1.Time{Time: time.Now()}}}
	kept.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ConditionSet"))
	u := &Uninstaller{Timeout: 5 * lookAgain, Tell: func(string) {}, Progress: func(string) {}}
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

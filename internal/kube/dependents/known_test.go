package dependents

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// A review reads all that are stored: if one of them fell out for another, each would be compiled in each review.
func TestRegistrationsAreKeptAsLongAsTheyAreStored(t *testing.T) {
	var stored []*v1alpha1.HealthCheckRegistration
	for i := range 2000 {
		stored = append(stored, &v1alpha1.HealthCheckRegistration{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("r", i), UID: types.UID(fmt.Sprint(i)), Generation: 1},
			Spec: v1alpha1.HealthCheckRegistrationSpec{
				Target: v1alpha1.HealthCheckTarget{APIVersion: "example.org/v1", Kind: "Widget"},
				Checks: []v1alpha1.HealthCheck{{Name: "own", ConditionType: "Well", Evaluate: v1alpha1.HealthCheckEvaluator{Status: &v1alpha1.StatusCheck{}}}},
			},
		})
	}
	known := &Known{}
	read := func() (all []*registration.Registration) {
		known.keepStored(stored)
		for _, hcr := range stored {
			all = append(all, known.read(hcr))
		}
		return all
	}
	first := read()
	for i, again := range read() {
		if again != first[i] || again == nil {
			t.Fatalf("registration %d was read again, or can't be: %v", i, again)
		}
	}
	stored[0].Generation++
	stored = stored[:1000]
	if again := read(); again[0] == first[0] || again[1] != first[1] {
		t.Error("what changed wasn't read again, or what didn't was")
	}
	if n := len(known.all); n != 1000 {
		t.Errorf("%d are kept of 1000 that are stored", n)
	}
}

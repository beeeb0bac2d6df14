package checking

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// odd is an API server of which some objects can't be read in the ways that bugs and networks have.
type odd struct{ client.Reader }

func (odd) Get(ctx context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	switch key.Name {
	case "panics":
		panic("of a bug")
	case "hangs":
		<-ctx.Done()
		return ctx.Err()
	case "unread":
		return ErrUnread
	}
	return nil
}

func TestACheckCostsItsOwnConditionOnly(t *testing.T) {
	hcr := &v1alpha1.HealthCheckRegistration{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	hcr.Spec.Target = v1alpha1.HealthCheckTarget{APIVersion: "e.org/v1", Kind: "Thing"}
	hcr.Spec.CheckTimeout = "50ms"
	for _, name := range []string{"panics", "hangs", "unread", "fine"} {
		hcr.Spec.Checks = append(hcr.Spec.Checks, v1alpha1.HealthCheck{
			Name: name, ConditionType: name, Object: &v1alpha1.HealthCheckObject{APIVersion: "v1", Kind: "ConfigMap", Name: "'" + name + "'"},
			Evaluate: v1alpha1.HealthCheckEvaluator{Status: &v1alpha1.StatusCheck{}},
		})
	}
	reg, problems := registration.Read(hcr)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	c := &Checker{Live: odd{}, Clock: testingclock.NewFakePassiveClock(time.Time{})}
	by, unread := c.Results(t.Context(), reg, &unstructured.Unstructured{Object: map[string]any{}}, sets.New("panics", "hangs", "unread", "fine"))
	if len(unread) != 1 || unread[0] != "unread" || len(by) != 3 {
		t.Fatalf("results are %v, and unread %v", by, unread)
	}
	for name, want := range map[string]health.Result{
		"panics": {Check: "panics", Status: health.Unknown, Detail: "the check panicked; the manager's log has the stack"},
		"hangs":  {Check: "hangs", Status: health.Unknown, Detail: "the check gave no result within 50ms"},
		"fine":   {Check: "fine", Status: health.True},
	} {
		if got := by[name]; len(got) != 1 || got[0].Status != want.Status || got[0].Detail != want.Detail {
			t.Errorf("%s gave %+v", name, got)
		}
	}
}

package breaker_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/breaker"
)

// A reset that the manager wouldn't follow must not be said to be one.
func TestTheBreakerOfAllIsResetWhereTheManagerLooks(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	config := func(namespace string) *v1alpha1.ProbeConfig {
		return &v1alpha1.ProbeConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "protect"},
			Status: v1alpha1.ProbeConfigStatus{
				BreakerID: "20260301t120000z", Conditions: []metav1.Condition{{Type: v1alpha1.ConditionBreakerOpen, Status: metav1.ConditionTrue}},
			},
		}
	}
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "autohealer-system"}}
	for namespace, at := range map[string]client.Object{"autohealer-system": config("autohealer-system"), "shop": own} {
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(config("autohealer-system"), config("shop"), own.DeepCopy()).Build()
		open, err := breaker.Reset(t.Context(), c, config(namespace), "autohealer-system")
		if err != nil || open == nil {
			t.Fatalf("%s: %+v, %v", namespace, open, err)
		}
		for _, o := range []client.Object{config("autohealer-system"), config("shop"), own.DeepCopy()} {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			want := ""
			if client.ObjectKeyFromObject(o) == client.ObjectKeyFromObject(at) {
				want = "20260301t120000z"
			}
			if got := o.GetAnnotations()[v1alpha1.AnnotationResetBreaker]; got != want {
				t.Errorf("a reset on a config in %s: %T %s has %q, want %q", namespace, o, client.ObjectKeyFromObject(o), got, want)
			}
		}
	}
}

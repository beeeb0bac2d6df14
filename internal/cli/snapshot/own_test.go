package snapshot

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestWhereAutohealerRuns(t *testing.T) {
	labelled := func(component string) map[string]string {
		return map[string]string{"app.kubernetes.io/name": "autohealer", "app.kubernetes.io/component": component}
	}
	runs := func(namespace, component string) client.Object {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "autohealer-manager", Labels: labelled(component)}}
	}
	owned := func(name string) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labelled("")}}
	}
	for name, c := range map[string]struct {
		there []client.Object
		fails error
		want  string
	}{
		"where its manager does":                     {there: []client.Object{runs("healing", "manager"), runs("tools", "dashboard"), owned("former")}, want: "healing"},
		"without a manager, where the label says so": {there: []client.Object{runs("tools", "dashboard"), owned("healing")}, want: "healing"},
		"two managers":                               {there: []client.Object{runs("a", "manager"), runs("b", "manager"), owned("a")}},
		"two namespaces":                             {there: []client.Object{owned("a"), owned("b")}},
		"nothing of it":                              {},
		"nobody may look":                            {there: []client.Object{runs("a", "manager")}, fails: apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "", errors.New("no"))},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := FindOwn(t.Context(), listing(c.fails, c.there...))
			if err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
	if got, err := FindOwn(t.Context(), listing(errors.New("time-out"), owned("a"))); err == nil {
		t.Errorf("got %q of an API server that doesn't answer", got)
	}
}

func listing(fails error, there ...client.Object) client.Client {
	return interceptor.NewClient(fake.NewClientBuilder().WithObjects(there...).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, all client.ObjectList, opts ...client.ListOption) error {
			if fails != nil {
				return fails
			}
			return c.List(ctx, all, opts...)
		},
	})
}

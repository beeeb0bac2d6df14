package snapshot

import (
	"context"
	"errors"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

func TestWhereAutohealerRuns(t *testing.T) {
	labelled := func(component string) map[string]string {
		return map[string]string{"app.kubernetes.io/name": "autohealer", "app.kubernetes.io/component": component}
	}
	runs := func(namespace, component string) client.Object {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "autohealer-manager", Labels: labelled(component)}}
	}
	owned := func(name string) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Labels: labelled("")}}
	}
	mark := func(to string) client.Object {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "autohealer", Annotations: map[string]string{v1alpha1.AnnotationInstallation: to}}}
	}
	account := func(namespace string) client.Object {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "autohealer-manager"}}
	}
	leases := 0
	held := func(namespace string) client.Object {
		leases++
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("lease-", leases), Labels: labelled("manager")}}
	}
	for name, c := range map[string]struct {
		there []client.Object
		fails error
		want  string
	}{
		"where its manager does":                     {there: []client.Object{runs("healing", "manager"), runs("tools", "dashboard"), owned("former")}, want: "healing"},
		"without a manager, where the label says so": {there: []client.Object{runs("tools", "dashboard"), owned("healing")}, want: "healing"},
		"by its Lease, once Helm took the manager":   {there: []client.Object{held("healing"), held("healing")}, want: "healing"},
		"of two, the one whose the cluster is":       {there: []client.Object{runs("a", "manager"), runs("b", "manager"), mark("b/uid-of-b"), owned("a"), owned("b")}, want: "b"},
		"a manager that stands aside":                {there: []client.Object{runs("a", "manager"), mark("b/uid-of-b"), owned("a"), owned("b"), account("b")}, want: "b"},
		"a mark that names where no manager is":      {there: []client.Object{runs("a", "manager"), mark("b/uid-of-b"), owned("a"), owned("b")}, want: "a"},
		"the mark of one that is gone":               {there: []client.Object{runs("a", "manager"), mark("b/uid-of-b"), owned("a")}, want: "a"},
		"the mark of one that was of that name":      {there: []client.Object{runs("a", "manager"), mark("b/older"), owned("a"), owned("b")}, want: "a"},
		"a mark that can't be a namespace's":         {there: []client.Object{runs("a", "manager"), mark("../b"), owned("a")}, want: "a"},
		"no mark yet":                                {there: []client.Object{runs("a", "manager"), mark("")}, want: "a"},
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

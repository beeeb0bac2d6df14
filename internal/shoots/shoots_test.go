package shoots

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func kubeconfigOf(server, more string) []byte {
	return []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
		"clusters: [{name: c, cluster: {server: '" + server + "'" + more + "}}]\nusers: [{name: u, user: {token: secret}}]")
}

func TestAClientIsKeptForOneVersionOfOneSecret(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	secret := func(namespace string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gardener", UID: types.UID(namespace)}, Data: map[string][]byte{"kubeconfig": kubeconfigOf("https://api.example.org", "")}}
	}
	stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(secret("a"), secret("b")).Build()
	s := &Clients{Secrets: stored, Secret: "gardener", Key: "kubeconfig", Scheme: scheme}
	get := func(namespace string) client.Client {
		t.Helper()
		c, err := s.Of(t.Context(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, other := get("a"), get("b")
	if first != get("a") || first == other {
		t.Error("a client isn't kept, or shared by two shoots of the same server")
	}
	change := func(do func(*corev1.Secret) error) {
		t.Helper()
		var now corev1.Secret
		if err := stored.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "gardener"}, &now); err != nil {
			t.Fatal(err)
		}
		if err := do(&now); err != nil {
			t.Fatal(err)
		}
	}
	change(func(now *corev1.Secret) error {
		now.Labels = map[string]string{"changed": ""}
		return stored.Update(t.Context(), now)
	})
	second := get("a")
	if second == first || other != get("b") {
		t.Error("a client outlives its Secret's version, or another's is made anew")
	}
	change(func(now *corev1.Secret) error {
		now.Data["kubeconfig"] = kubeconfigOf("https://api.example.org", ", proxy-url: 'http://proxy.example.org'")
		return stored.Update(t.Context(), now)
	})
	if c, err := s.Of(t.Context(), "a"); err == nil || !strings.HasPrefix(err.Error(), "use key kubeconfig of Secret gardener: ") || strings.Contains(err.Error(), "secret") {
		t.Errorf("an unsafe kubeconfig gave %v, %v", c, err)
	}
	change(func(now *corev1.Secret) error { return stored.Delete(t.Context(), now) })
	if c, err := s.Of(t.Context(), "a"); err == nil || len(s.of) != 1 {
		t.Errorf("without a Secret: %v, %d clients kept", c, len(s.of))
	}
}

func TestWhichNotFoundIsBelieved(t *testing.T) {
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	none := apierrors.NewNotFound(deployments, "d")
	unserved := apierrors.NewGenericServerResponse(404, "get", deployments, "d", "404 page not found", 0, true)
	forbidden := apierrors.NewForbidden(deployments, "d", nil)
	for name, tt := range map[string]struct {
		cached, live error
		want         func(error) bool
	}{
		"in the cache":                  {nil, forbidden, func(err error) bool { return err == nil }},
		"not in the cache, but stored":  {none, nil, func(err error) bool { return err == nil }},
		"not stored":                    {none, none, apierrors.IsNotFound},
		"not in the cache, no right":    {none, forbidden, apierrors.IsForbidden},
		"not in the cache, not served":  {none, unserved, func(err error) bool { return err != nil && !apierrors.IsNotFound(err) }},
		"the cache itself has no right": {forbidden, nil, apierrors.IsForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			b := Believable{answering(tt.cached), answering(tt.live)}
			if err := b.Get(t.Context(), client.ObjectKey{Name: "d"}, &corev1.ConfigMap{}); !tt.want(err) {
				t.Errorf("%v", err)
			}
		})
	}
	if err := (Believable{Client: answering(unserved)}).Get(t.Context(), client.ObjectKey{Name: "d"}, &corev1.ConfigMap{}); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("a live client: %v", err)
	}
}

func answering(err error) client.Client {
	return interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return err
		},
	})
}

package shoots

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/internal/kubeconfig"
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
	get := func(namespace string) *Connection {
		t.Helper()
		c, err := s.Connection(t.Context(), namespace)
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
	if c, err := s.Of(t.Context(), "a"); err == nil || len(s.connections) != 1 {
		t.Errorf("without a Secret: %v, %d clients kept", c, len(s.connections))
	}
}

func TestWhenNotFoundIsTrusted(t *testing.T) {
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
			b := VerifyingClient{Client: answering(tt.cached), Live: answering(tt.live)}
			if err := b.Get(t.Context(), client.ObjectKey{Name: "d"}, &corev1.ConfigMap{}); !tt.want(err) {
				t.Errorf("%v", err)
			}
		})
	}
	if err := (VerifyingClient{Client: answering(unserved)}).Get(t.Context(), client.ObjectKey{Name: "d"}, &corev1.ConfigMap{}); err == nil || apierrors.IsNotFound(err) {
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

// shootAt gives the client of a shoot whose API server answers so.
func shootAt(t *testing.T, answer http.HandlerFunc) client.Client {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	return connectionTo(t, server, 20*time.Second).Client
}

// connectionTo reaches a shoot whose API server that is.
func connectionTo(t *testing.T, server *httptest.Server, within time.Duration) *Connection {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "gardener"},
		Data:       map[string][]byte{"kubeconfig": kubeconfigOf(server.URL, ", certificate-authority-data: "+base64.StdEncoding.EncodeToString(authority))},
	}).Build()
	s := &Clients{Secrets: stored, Secret: "gardener", Key: "kubeconfig", Scheme: scheme, Dial: kubeconfig.Policy{AllowLoopback: true}, Timeout: within}
	c, err := s.Connection(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// discovered answers what a client asks before it reads ConfigMaps.
func discovered(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			_, _ = io.WriteString(w, `{"kind":"APIVersions","versions":["v1"]}`)
		case "/apis":
			_, _ = io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
		case "/api/v1":
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","namespaced":true,"kind":"ConfigMap","verbs":["get"]}]}`)
		default:
			answer(w, r)
		}
	}
}

func TestARedirectIsntFollowed(t *testing.T) {
	asked := make(chan string, 1)
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.Header.Get("Authorization"):
		default:
		}
	}))
	defer elsewhere.Close()
	shoot := shootAt(t, discovered(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusFound)
	}))
	err := shoot.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "c"}, &corev1.ConfigMap{})
	if err == nil || !strings.Contains(err.Error(), "redirects to "+strings.TrimPrefix(elsewhere.URL, "https://")+", which is not followed") {
		t.Errorf("it gave %v", err)
	}
	select {
	case credentials := <-asked:
		t.Errorf("the other server was asked, with %q", credentials)
	default:
	}
}

func TestAnAnswerIsBounded(t *testing.T) {
	var sent atomic.Int64
	shoot := shootAt(t, discovered(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"`)
		for chunk := bytes.Repeat([]byte("x"), 1<<20); sent.Load() < 256<<20; sent.Add(1 << 20) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	err := shoot.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "c"}, &corev1.ConfigMap{})
	if err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("it gave %v", err)
	}
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes were taken", n)
	}
}

func TestWhatIsntServedSaysNothing(t *testing.T) {
	resources := map[string]string{
		"/apis/lives.example.org/v1":  `{"kind":"APIResourceList","resources":[{"name":"things/status","kind":"Thing","verbs":["get"]},{"name":"things","kind":"Thing","verbs":["create","delete","get"]}]}`,
		"/apis/leaves.example.org/v1": `{"kind":"APIResourceList","resources":[{"name":"things","kind":"Thing","verbs":["delete","deletecollection","get","list","watch"]}]}`,
		"/apis/reads.example.org/v1":  `{"kind":"APIResourceList","resources":[{"name":"things","kind":"Thing","verbs":["get","list"]}]}`,
		"/apis/others.example.org/v1": `{"kind":"APIResourceList","resources":[{"name":"others","kind":"Other","verbs":["create","delete"]}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if resources[r.URL.Path] == "" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, resources[r.URL.Path])
	}))
	defer server.Close()
	served, err := NewCheckServed(&rest.Config{Host: server.URL}, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	for group, want := range map[string]string{
		"lives.example.org": "", "reads.example.org": "", "apps": "", "": "", "storage.k8s.io": "",
		"leaves.example.org": "is being removed", "others.example.org": "isn't served", "gone.example.org": "ask whether Thing is served",
	} {
		err := served(t.Context(), schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Thing"})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", group, err, want)
		}
		if apierrors.IsNotFound(err) {
			t.Errorf("%q would be taken for an object that isn't there: %v", group, err)
		}
	}
	leaving := func(context.Context, schema.GroupVersionKind) error { return io.ErrUnexpectedEOF }
	b := VerifyingClient{Client: answering(apierrors.NewNotFound(schema.GroupResource{}, "d")), CheckServed: leaving}
	if err := b.Get(t.Context(), client.ObjectKey{Name: "d"}, &corev1.ConfigMap{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an object: %v", err)
	}
	if err := b.List(t.Context(), &corev1.ConfigMapList{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a list of none: %v", err)
	}
}

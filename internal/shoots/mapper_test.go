package shoots

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

func TestAKindIsFoundOnceItIsServed(t *testing.T) {
	var asked atomic.Int32
	var answer atomic.Value
	answer.Store(`{"kind":"Status","status":"Failure","code":503}`)
	var code atomic.Int32
	code.Store(http.StatusServiceUnavailable)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/e.org/v1" {
			t.Errorf("%s is asked for", r.URL.Path)
		}
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(code.Load()))
		_, _ = w.Write([]byte(answer.Load().(string)))
	}))
	t.Cleanup(server.Close)
	m, err := newMapper(&rest.Config{Host: server.URL, QPS: -1}, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	kind := schema.GroupKind{Group: "e.org", Kind: "Thing"}
	if _, err := m.RESTMapping(kind, "v1"); err == nil || meta.IsNoMatchError(err) {
		t.Errorf("a server that doesn't answer says that the kind isn't served: %v", err)
	}
	code.Store(http.StatusNotFound)
	answer.Store(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	if _, err := m.RESTMapping(kind, "v1"); !meta.IsNoMatchError(err) {
		t.Errorf("a group that isn't served: %v", err)
	}
	code.Store(http.StatusOK)
	answer.Store(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"e.org/v1","resources":[{"name":"things/status","kind":"Thing","namespaced":true},{"name":"items","kind":"Thing","namespaced":true},{"name":"worlds","kind":"World"}]}`)
	if _, err := m.RESTMapping(schema.GroupKind{Group: "e.org", Kind: "Other"}, "v1"); !meta.IsNoMatchError(err) {
		t.Errorf("a kind that isn't served: %v", err)
	}
	before := asked.Load()
	for range 3 {
		mapping, err := m.RESTMapping(kind, "v1")
		if err != nil || mapping.Resource.Resource != "items" || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
			t.Fatalf("found %+v, %v", mapping, err)
		}
	}
	if world, err := m.RESTMapping(schema.GroupKind{Group: "e.org", Kind: "World"}, "v1"); err != nil || world.Scope.Name() != meta.RESTScopeNameRoot {
		t.Errorf("found %+v, %v", world, err)
	}
	if n := asked.Load() - before; n != 2 {
		t.Errorf("the server is asked %d times for two kinds", n)
	}
}

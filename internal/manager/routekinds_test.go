package manager

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// gatewayAPI serves HTTPRoutes in v1, and TCPRoutes in v1alpha2 once it has them.
type gatewayAPI struct{ hasTCPRoutes atomic.Bool }

func (g *gatewayAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	version := func(v string) metav1.GroupVersionForDiscovery {
		return metav1.GroupVersionForDiscovery{GroupVersion: "gateway.networking.k8s.io/" + v, Version: v}
	}
	resources := func(name, kind string) metav1.APIResourceList {
		return metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: strings.TrimPrefix(r.URL.Path, "/apis/"),
			APIResources: []metav1.APIResource{{Name: name, Kind: kind, Namespaced: true}},
		}
	}
	var answer any
	switch has := g.hasTCPRoutes.Load(); {
	case r.URL.Path == "/api":
		answer = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case r.URL.Path == "/apis":
		group := metav1.APIGroup{Name: "gateway.networking.k8s.io", Versions: []metav1.GroupVersionForDiscovery{version("v1")}, PreferredVersion: version("v1")}
		if has {
			group.Versions = append(group.Versions, version("v1alpha2"))
		}
		answer = metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{group}}
	case r.URL.Path == "/apis/gateway.networking.k8s.io/v1":
		answer = resources("httproutes", "HTTPRoute")
	case r.URL.Path == "/apis/gateway.networking.k8s.io/v1alpha2" && has:
		answer = resources("tcproutes", "TCPRoute")
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client tells
}

func TestAKindIsFoundInAVersionThatItsGroupGetsLater(t *testing.T) {
	cluster := &gatewayAPI{}
	server := httptest.NewServer(cluster)
	defer server.Close()
	mapper := liveMapper{&rest.Config{Host: server.URL}, server.Client()}
	http, tcp := schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}, schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "TCPRoute"}
	if m, err := mapper.RESTMapping(http); err != nil || m.GroupVersionKind.Version != "v1" {
		t.Fatal(m, err)
	}
	if m, err := mapper.RESTMapping(tcp); !meta.IsNoMatchError(err) {
		t.Fatal(m, err)
	}
	cluster.hasTCPRoutes.Store(true)
	if m, err := mapper.RESTMapping(tcp); err != nil || m.GroupVersionKind.Version != "v1alpha2" {
		t.Error(m, err)
	}
	if m, err := mapper.RESTMapping(http, "v1alpha2"); !meta.IsNoMatchError(err) {
		t.Error("not served in that version:", m, err)
	}
}

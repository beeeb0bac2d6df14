package outlier_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

func service(namespace, name string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{Ports: ports}}
}

func toService(name, section string) v1alpha1.OutlierTargetReference {
	return v1alpha1.OutlierTargetReference{Kind: "Service", Name: name, SectionName: section}
}

func names(all []*outlier.Assignment) (names []string) {
	for _, a := range all {
		holds := "nobody"
		if a.Policy != nil {
			holds = fmt.Sprintf("%s for %s", a.Policy.Name, a.Level)
		}
		names = append(names, a.Key.String()+": "+holds)
	}
	return names
}

func key(name string) outlier.Key {
	k, ok := outlier.ParseKey(name)
	if !ok {
		panic(name)
	}
	return k
}

var http = corev1.ServicePort{Name: "http", Port: 80}

// A cluster takes its traffic along when it goes, so one that was served stays, whatever becomes of policies, routes and ports.
func TestServedClustersStay(t *testing.T) {
	svc := service("shop", "s1", http)
	served := []outlier.Key{key("shop/s1/80"), key("shop/s1/80@httproute/gone"), key("shop/s1/81"), key("shop/other/80")}
	nobody := outlier.NewIndex(nil, nil, "autohealer-system")
	want := []string{"shop/s1/80: nobody", "shop/s1/80@httproute/gone: nobody", "shop/s1/81: nobody"}
	if diff := cmp.Diff(want, names(nobody.Assign(svc, served))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, a := range nobody.Assign(svc, served) {
		cluster := outlier.NewCluster(a)
		if cluster.OutlierDetection != nil || cluster.CommonLbConfig != nil {
			t.Errorf("%s: nobody wants detection, yet it has %v", a.Key, cluster)
		}
	}
	some := outlier.NewIndex([]*outlier.Policy{{Namespace: "shop", Name: "default"}}, nil, "autohealer-system")
	want = []string{"shop/s1/80: default for the namespace's default", "shop/s1/80@httproute/gone: default for the namespace's default", "shop/s1/81: default for the namespace's default"}
	if diff := cmp.Diff(want, names(some.Assign(svc, served))); diff != "" {
		t.Errorf("with a default, -want +got\n%s", diff)
	}
}

// A policy that the rules refuse may have been meant to switch detection off: what is less specific must not act instead.
func TestARefusedPolicyKeepsItsPrecedenceAndDetectsNothing(t *testing.T) {
	refused := &outlier.Policy{Namespace: "shop", Name: "refused", Targets: []v1alpha1.OutlierTargetReference{toService("s1", "")}, Refused: true}
	x := outlier.NewIndex([]*outlier.Policy{refused, {Namespace: "shop", Name: "default"}}, nil, "")
	all := x.Assign(service("shop", "s1", http), nil)
	if diff := cmp.Diff([]string{"shop/s1/80: refused for the Service"}, names(all)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if cluster := outlier.NewCluster(all[0]); cluster.OutlierDetection != nil {
		t.Errorf("%v", cluster)
	}
}

func TestWithoutAnOwnNamespaceADefaultIsOfItsNamespace(t *testing.T) {
	x := outlier.NewIndex([]*outlier.Policy{{Namespace: "autohealer-system", Name: "default"}}, nil, "")
	if got := x.Assign(service("shop", "s1", http), nil); len(got) != 0 {
		t.Errorf("it holds elsewhere: %v", names(got))
	}
	if got := x.Assign(service("autohealer-system", "s1", http), nil); len(got) != 1 {
		t.Errorf("it doesn't hold at home: %v", names(got))
	}
}

func TestParseKey(t *testing.T) {
	for name, ok := range map[string]bool{
		"a/b/80": true, "a/b/80@httproute/r": true, "a/b/80@httpproxy/r.s": true, "a/b/80@tcproute/r": true,
		"": false, "a/b": false, "a/b/x": false, "a/b/80/c": false, "a/b/080": false, "a/b/80@": false, "a/b/80@pod/r": false, "a/b/80@HTTPRoute/r": false,
	} {
		if k, got := outlier.ParseKey(name); got != ok || ok && k.String() != name {
			t.Errorf("%q: %v, %v", name, k, got)
		}
	}
}

// draw makes policies of every level for two Services and a route, at up to three moments.
func draw(t *rapid.T) (policies []*outlier.Policy) {
	edge := func(service string) *v1alpha1.OutlierBackend {
		return &v1alpha1.OutlierBackend{Name: service, Port: 80}
	}
	targets := [][]v1alpha1.OutlierTargetReference{
		{toService("s1", "")}, {toService("s2", "")}, {toService("s1", "http")}, {toService("s1", ""), toService("s2", "http")},
		{{Kind: "HTTPRoute", Name: "r"}}, {{Kind: "HTTPRoute", Name: "r", Backend: edge("s1")}}, {{Kind: "HTTPRoute", Name: "r", Backend: edge("s2")}, toService("s2", "")},
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "policies") {
		policies = append(policies, &outlier.Policy{
			Namespace: "shop", Name: fmt.Sprintf("p%d", i), Created: time.Unix(rapid.Int64Range(1, 3).Draw(t, "created"), 0),
			Targets: rapid.SampledFrom(targets).Draw(t, "targets"),
		})
	}
	for _, namespace := range []string{"shop", "autohealer-system"} {
		if rapid.Bool().Draw(t, namespace) {
			policies = append(policies, &outlier.Policy{Namespace: namespace, Name: "default", Created: time.Unix(2, 0)})
		}
	}
	return rapid.Permutation(policies).Draw(t, "order")
}

// levelOf says how specific a policy is for a cluster of the property below, -1 when it isn't for it. It is written for that
// world only, from the text of the API's documentation.
func levelOf(p *outlier.Policy, k outlier.Key) (level int) {
	level = -1
	if len(p.Targets) == 0 {
		return map[string]int{"autohealer-system": 0, "shop": 1}[p.Namespace]
	}
	for _, ref := range p.Targets {
		switch {
		case ref.Kind == "Service" && ref.Name == k.Service.Name && ref.SectionName == "http":
			level = max(level, 4)
		case ref.Kind == "Service" && ref.Name == k.Service.Name:
			level = max(level, 3)
		case ref.Kind == "HTTPRoute" && k.Route.Name == "r" && ref.Backend == nil:
			level = max(level, 2)
		case ref.Kind == "HTTPRoute" && k.Route.Name == "r" && ref.Backend.Name == k.Service.Name:
			level = max(level, 5)
		}
	}
	return level
}

// TestTheMostSpecificAndOldestHolds: for any policies, in any order, and none else.
func TestTheMostSpecificAndOldestHolds(t *testing.T) {
	routes := []outlier.Route{{Namespace: "shop", RouteKey: outlier.RouteKey{Kind: "HTTPRoute", Name: "r"}, Backends: []outlier.Backend{{Service: "s1", Port: 80}, {Service: "s2", Port: 80}}}}
	rapid.Check(t, func(t *rapid.T) {
		policies := draw(t)
		x := outlier.NewIndex(policies, routes, "autohealer-system")
		for _, svc := range []string{"s1", "s2"} {
			for _, a := range x.Assign(service("shop", svc, http), nil) {
				want := slices.MinFunc(policies, func(p, q *outlier.Policy) int {
					if lp, lq := levelOf(p, a.Key), levelOf(q, a.Key); lp != lq {
						return lq - lp
					}
					if d := p.Created.Compare(q.Created); d != 0 {
						return d
					}
					return slices.Compare([]string{p.Name}, []string{q.Name})
				})
				if a.Policy != want || int(a.Level) != levelOf(want, a.Key) {
					t.Fatalf("%s has %v at %s, want %v", a.Key, a.Policy, a.Level, want)
				}
			}
		}
	})
}

// TestEjectableIsWhatEnvoyWouldDo ejects one host after the other as Envoy's documentation says: while the share of those ejected, with
// one more, is no more than the maximum; and one in any case.
func TestEjectableIsWhatEnvoyWouldDo(t *testing.T) {
	for hosts := range 40 {
		for percent := range int32(101) {
			for _, always := range []bool{false, true} {
				ejected := 0
				for ejected < hosts && (100*float64(ejected+1)/float64(hosts) <= float64(percent) || always && ejected == 0) {
					ejected++
				}
				p, err := outlier.NewPolicy(&v1alpha1.OutlierPolicy{Spec: v1alpha1.OutlierPolicySpec{OutlierDetection: &v1alpha1.OutlierDetection{
					MaxEjectionPercent: &percent, AlwaysEjectOneHost: &always,
				}}})
				if err != nil {
					t.Fatal(err)
				}
				if got := p.Settings.Ejectable(hosts); got != ejected {
					t.Fatalf("%d%% of %d hosts, always %v: %d, want %d", percent, hosts, always, got, ejected)
				}
			}
		}
	}
}

func TestAClusterWhoseRouteTurnsToTLSStaysWithoutDetection(t *testing.T) {
	route := func(protocol string) outlier.Route {
		return outlier.ReadRoute(map[string]any{
			"kind": "HTTPProxy", "metadata": map[string]any{"namespace": "shop", "name": "web"},
			"spec": map[string]any{"routes": []any{map[string]any{"services": []any{map[string]any{"name": "s1", "port": int64(80), "protocol": protocol}}}}},
		})
	}
	w := parseObjects(t, []byte(`
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: OutlierPolicy
metadata: {namespace: shop, name: p}
spec: {targetRefs: [{group: projectcontour.io, kind: HTTPProxy, name: web}], outlierDetection: {}}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: s1}
spec: {ports: [{name: http, port: 80}]}
`))
	policies := policiesOf(t, w)
	plain := outlier.NewIndex(policies, []outlier.Route{route("")}, "autohealer-system").Assign(w.Services[0], nil)
	if len(plain) != 1 || plain[0].Policy == nil || plain[0].TLS {
		t.Fatalf("in plaintext: %+v", plain)
	}
	x := outlier.NewIndex(policies, []outlier.Route{route("tls")}, "autohealer-system")
	if got := x.Assign(w.Services[0], nil); len(got) != 0 {
		t.Errorf("a new one: %+v", got[0])
	}
	if got := x.Assign(w.Services[0], []outlier.Key{plain[0].Key}); len(got) != 1 || got[0].Policy != nil || !got[0].TLS {
		t.Errorf("one that was served: %+v", got)
	}
	if got := x.OverTLS("shop", policies[0].Targets[0], w.Services); got != "s1:80" {
		t.Errorf("over TLS: %q", got)
	}
}

package outlier_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// edge is the Gateway of all tests, edge/web, that took what says so in its status.
var edge = outlier.Gateway{NamespacedName: types.NamespacedName{Namespace: "edge", Name: "web"}, Labels: map[string]string{"tier": "front"}}

const taken = `status: {parents: [{parentRef: {name: web, namespace: edge}, conditions: [{type: Accepted, status: "True"}]}]}`

func gatewayRoute(t *testing.T, kind, manifest string) outlier.GatewayRoute {
	t.Helper()
	r, err := outlier.ReadGatewayRoute(kind, object(t, manifest))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func object(t *testing.T, manifest string) (o map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(manifest), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// outlierPolicy is one with targets, that ejects after so many errors; 0 for one that is disabled.
func outlierPolicy(t *testing.T, namespace, name string, errors int32, targets ...v1alpha1.OutlierTargetReference) *outlier.Policy {
	t.Helper()
	op := &v1alpha1.OutlierPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Generation: 1}}
	op.Spec.TargetRefs, op.Spec.Disabled = targets, errors == 0
	op.Spec.OutlierDetection = &v1alpha1.OutlierDetection{ConsecutiveServerErrors: &errors}
	p, err := outlier.NewPolicy(op)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// patched says in a line each what becomes of clusters.
func patched(x *outlier.Index, w outlier.PatchObjects) (lines []string) {
	w.Gateways = []outlier.Gateway{edge}
	w.Services = map[types.NamespacedName]*corev1.Service{}
	for _, svc := range []*corev1.Service{service("shop", "s1", http), service("shop", "s2", http), service("shop", "s3", http), service("other", "s4", http)} {
		w.Services[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}] = svc
	}
	for _, p := range x.Patches(w) {
		var names []string
		for _, of := range p.Policies {
			names = append(names, of.Name)
		}
		line := fmt.Sprintf("%s %s: %s", p.Gateway, p.Cluster, strings.Join(names, ", "))
		if !p.Detects() {
			line += " -"
		}
		lines = append(lines, strings.TrimSpace(line+" "+string(p.Obstacle)+" "+strings.Trim(p.TrafficPolicy.String(), "/")))
	}
	return lines
}

func TestPatchesAreForTheClustersOfTakenRoutes(t *testing.T) {
	s1, s2, s4 := toService("s1", ""), toService("s2", ""), toService("s4", "")
	route := v1alpha1.OutlierTargetReference{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute", Name: "r"}
	const one = "metadata: {namespace: shop, name: r}\nspec: {rules: [{backendRefs: [%s]}]}\n" + taken
	for name, test := range map[string]struct {
		kind, route string // kind HTTPRoute by default
		policies    []*outlier.Policy
		want        []string
	}{
		"each rule is a cluster": {
			route:    "metadata: {namespace: shop, name: r}\nspec: {rules: [{backendRefs: [{name: s1, port: 80}]}, {backendRefs: [{name: s3, port: 80}]}, {backendRefs: [{name: s1, port: 80}]}]}\n" + taken,
			policies: []*outlier.Policy{outlierPolicy(t, "shop", "p1", 3, s1)},
			want:     []string{"edge/web httproute/shop/r/rule/0: p1", "edge/web httproute/shop/r/rule/2: p1"},
		},
		"a route that no Gateway took yet": {
			route:    "metadata: {namespace: shop, name: r}\nspec: {rules: [{backendRefs: [{name: s1, port: 80}]}]}\nstatus: {parents: [{parentRef: {name: web, namespace: edge}, conditions: [{type: Accepted, status: \"False\"}]}]}",
			policies: []*outlier.Policy{outlierPolicy(t, "shop", "p1", 3, s1)},
		},
		"a route of another Gateway": {
			route:    "metadata: {namespace: shop, name: r}\nspec: {rules: [{backendRefs: [{name: s1, port: 80}]}]}\nstatus: {parents: [{parentRef: {name: web}, conditions: [{type: Accepted, status: \"True\"}]}]}",
			policies: []*outlier.Policy{outlierPolicy(t, "shop", "p1", 3, s1)},
		},
		"GRPC": {
			kind: "GRPCRoute", route: fmt.Sprintf(one, "{name: s1, port: 80}"), policies: []*outlier.Policy{outlierPolicy(t, "shop", "p1", 3, s1)},
			want: []string{"edge/web grpcroute/shop/r/rule/0: p1"},
		},
		"bytes": {
			kind: "TCPRoute", route: fmt.Sprintf(one, "{name: s1, port: 80}"), policies: []*outlier.Policy{outlierPolicy(t, "shop", "p1", 3, s1)},
			want: []string{"edge/web tcproute/shop/r/rule/-1: p1"},
		},
		"bytes of TLS": {
			kind: "TLSRoute", route: fmt.Sprintf(one, "{name: s1, port: 80}"), policies: []*outlier.Policy{outlierPolicy(t, "shop", "p1", 3, s1)},
			want: []string{"edge/web tlsroute/shop/r/rule/-1: p1"},
		},
		"the Service's policy comes before the route's, and that before the default": {
			route:    "metadata: {namespace: shop, name: r}\nspec: {rules: [{backendRefs: [{name: s1, port: 80}]}, {backendRefs: [{name: s2, port: 80}]}]}\n" + taken,
			policies: []*outlier.Policy{outlierPolicy(t, "shop", "p1", 3, s1), outlierPolicy(t, "shop", "r", 4, route), outlierPolicy(t, "shop", "default", 5)},
			want:     []string{"edge/web httproute/shop/r/rule/0: p1", "edge/web httproute/shop/r/rule/1: r"},
		},
		"backends whose policies differ": {
			route: fmt.Sprintf(one, "{name: s1, port: 80}, {name: s2, port: 80}"), policies: []*outlier.Policy{outlierPolicy(t, "shop", "p1", 3, s1), outlierPolicy(t, "shop", "p2", 4, s2)},
			want: []string{"edge/web httproute/shop/r/rule/0: p1, p2 - Disagreed"},
		},
		"backends whose policies say the same": {
			route: fmt.Sprintf(one, "{name: s1, port: 80}, {name: s2, port: 80}"), policies: []*outlier.Policy{outlierPolicy(t, "shop", "p1", 3, s1), outlierPolicy(t, "shop", "p2", 3, s2)},
			want: []string{"edge/web httproute/shop/r/rule/0: p1, p2"},
		},
		"a backend without a policy": {
			route: fmt.Sprintf(one, "{name: s1, port: 80}, {name: s2, port: 80}"), policies: []*outlier.Policy{outlierPolicy(t, "shop", "p1", 3, s1)},
			want: []string{"edge/web httproute/shop/r/rule/0: p1 - Disagreed"},
		},
		"a backend that is no Service": {
			route: fmt.Sprintf(one, "{name: s1, port: 80}, {group: gateway.envoyproxy.io, kind: Backend, name: s2}"), policies: []*outlier.Policy{outlierPolicy(t, "shop", "p1", 3, s1)},
			want: []string{"edge/web httproute/shop/r/rule/0: p1 - Disagreed"},
		},
		"a backend without a policy that gets no traffic": {
			route: fmt.Sprintf(one, "{name: s1, port: 80}, {name: s2, port: 80, weight: 0}"), policies: []*outlier.Policy{outlierPolicy(t, "shop", "p1", 3, s1)},
			want: []string{"edge/web httproute/shop/r/rule/0: p1"},
		},
		"backends with filters are clusters of their own": {
			route:    fmt.Sprintf(one, "{name: s1, port: 80, filters: [{type: RequestHeaderModifier}]}, {name: s2, port: 80}"),
			policies: []*outlier.Policy{outlierPolicy(t, "shop", "p1", 3, s1), outlierPolicy(t, "shop", "p2", 4, s2)},
			want:     []string{"edge/web httproute/shop/r/rule/0/backend/0: p1", "edge/web httproute/shop/r/rule/0/backend/1: p2"},
		},
		"a Service of another namespace, whose policy it is": {
			route:    fmt.Sprintf(one, "{name: s4, namespace: other, port: 80}"),
			policies: []*outlier.Policy{outlierPolicy(t, "other", "p4", 3, s4), outlierPolicy(t, "shop", "r", 4, route)},
			want:     []string{"edge/web httproute/shop/r/rule/0: p4"},
		},
		"a Service of another namespace, where a policy is for another route of that name": {
			route:    fmt.Sprintf(one, "{name: s4, namespace: other, port: 80}"),
			policies: []*outlier.Policy{outlierPolicy(t, "other", "default", 3), outlierPolicy(t, "other", "r", 4, route)},
			want:     []string{"edge/web httproute/shop/r/rule/0: default"},
		},
		"a policy that is disabled": {
			route: fmt.Sprintf(one, "{name: s1, port: 80}"), policies: []*outlier.Policy{outlierPolicy(t, "shop", "p1", 0, s1), outlierPolicy(t, "shop", "default", 5)},
			want: []string{"edge/web httproute/shop/r/rule/0: p1 -"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind := "HTTPRoute"
			if test.kind != "" {
				kind = test.kind
			}
			x := outlier.NewIndex(test.policies, nil, "autohealer-system")
			got := patched(x, outlier.PatchObjects{Routes: []outlier.GatewayRoute{gatewayRoute(t, kind, test.route)}})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestABackendTrafficPolicyComesFirst(t *testing.T) {
	const spec = "metadata: {namespace: %s, name: btp}\nspec: {%s, healthCheck: {%s}}"
	x := outlier.NewIndex([]*outlier.Policy{outlierPolicy(t, "shop", "p1", 3, toService("s1", ""))}, nil, "autohealer-system")
	route := gatewayRoute(t, "HTTPRoute", "metadata: {namespace: shop, name: r, labels: {app: r}}\nspec: {rules: [{backendRefs: [{name: s1, port: 80}]}]}\n"+taken)
	const ref = "targetRefs: [{group: gateway.networking.k8s.io, kind: %s, name: %s}]"
	for name, test := range map[string]struct {
		namespace, targets, check string
		decides                   bool
	}{
		"for the route":                  {"shop", fmt.Sprintf(ref, "HTTPRoute", "r"), "passive: {}", true},
		"for a rule of it":               {"shop", "targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r, sectionName: a}]", "passive: {}", true},
		"in the field of before":         {"shop", "targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}", "passive: {}", true},
		"for the Gateway":                {"edge", fmt.Sprintf(ref, "Gateway", "web"), "passive: {}", true},
		"by labels":                      {"shop", "targetSelectors: [{kind: HTTPRoute, matchLabels: {app: r}}]", "passive: {}", true},
		"by the Gateway's labels":        {"edge", "targetSelectors: [{kind: Gateway, matchExpressions: [{key: tier, operator: Exists}]}]", "passive: {}", true},
		"by labels, in other namespaces": {"other", "targetSelectors: [{kind: HTTPRoute, namespaces: {from: All}, matchLabels: {app: r}}]", "passive: {}", true},
		"about panic":                    {"shop", fmt.Sprintf(ref, "HTTPRoute", "r"), "panicThreshold: 0", true},
		"about active checks":            {"shop", fmt.Sprintf(ref, "HTTPRoute", "r"), "active: {type: TCP}", false},
		"for another route":              {"shop", fmt.Sprintf(ref, "HTTPRoute", "q"), "passive: {}", false},
		"for another kind of route":      {"shop", fmt.Sprintf(ref, "GRPCRoute", "r"), "passive: {}", false},
		"for a route of the same name":   {"other", fmt.Sprintf(ref, "HTTPRoute", "r"), "passive: {}", false},
		"by other labels":                {"shop", "targetSelectors: [{kind: HTTPRoute, matchLabels: {app: q}}]", "passive: {}", false},
		"by labels, in its namespace":    {"other", "targetSelectors: [{kind: HTTPRoute, matchLabels: {app: r}}]", "passive: {}", false},
	} {
		t.Run(name, func(t *testing.T) {
			p, detects, err := outlier.ReadTrafficPolicy(object(t, fmt.Sprintf(spec, test.namespace, test.targets, test.check)))
			if err != nil {
				t.Fatal(err)
			}
			w := outlier.PatchObjects{Routes: []outlier.GatewayRoute{route}}
			if detects {
				w.TrafficPolicies = append(w.TrafficPolicies, p)
			}
			want := "edge/web httproute/shop/r/rule/0: p1"
			if test.decides {
				want += " - Decided " + test.namespace + "/btp"
			}
			if diff := cmp.Diff([]string{want}, patched(x, w)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestAnEnvoyPatchPolicyHasAllSettings(t *testing.T) {
	op := &v1alpha1.OutlierPolicy{}
	if err := yaml.Unmarshal([]byte(`
spec:
  panicThreshold: 20
  connectTimeout: 250ms
  outlierDetection: {consecutiveServerErrors: 3, interval: 200ms, baseEjectionTime: 2s, maxEjectionTime: 4s, maxEjectionTimeJitter: 100ms,
    splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailure: 4, maxEjectionPercent: 50, alwaysEjectOneHost: true}`), op); err != nil {
		t.Fatal(err)
	}
	p, err := outlier.NewPolicy(op)
	if err != nil {
		t.Fatal(err)
	}
	set := outlier.NewPatchSet([]outlier.Patched{{Cluster: "httproute/shop/r/rule/0", Policies: []*outlier.Policy{p}}})
	got, err := yaml.Marshal(set.Spec("web"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `jsonPatches:
- name: httproute/shop/r/rule/0
  operation:
    op: add
    path: /common_lb_config/healthy_panic_threshold
    value:
      value: 20
  type: type.googleapis.com/envoy.config.cluster.v3.Cluster
- name: httproute/shop/r/rule/0
  operation:
    op: add
    path: /common_lb_config/update_merge_window
    value: 0s
  type: type.googleapis.com/envoy.config.cluster.v3.Cluster
- name: httproute/shop/r/rule/0
  operation:
    op: add
    path: /connect_timeout
    value: 0.250s
  type: type.googleapis.com/envoy.config.cluster.v3.Cluster
- name: httproute/shop/r/rule/0
  operation:
    op: add
    path: /outlier_detection
    value:
      always_eject_one_host: true
      base_ejection_time: 2s
      consecutive_5xx: 3
      consecutive_local_origin_failure: 4
      enforcing_consecutive_5xx: 100
      enforcing_consecutive_gateway_failure: 0
      enforcing_local_origin_success_rate: 0
      enforcing_success_rate: 0
      interval: 0.200s
      max_ejection_percent: 50
      max_ejection_time: 4s
      max_ejection_time_jitter: 0.100s
      split_external_local_origin_errors: true
  type: type.googleapis.com/envoy.config.cluster.v3.Cluster
targetRef:
  group: gateway.networking.k8s.io
  kind: Gateway
  name: web
type: JSONPatch
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

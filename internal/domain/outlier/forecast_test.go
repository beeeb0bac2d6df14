package outlier_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// shop has Services of one, two and no hosts, one of type ExternalName, one for TCP, and routes to some.
const shop = `
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: one}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: two}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: none}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: elsewhere}
spec: {type: ExternalName, externalName: example.com, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: bytes}
spec: {ports: [{name: db, port: 5432, appProtocol: tcp}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: portless}
spec: {clusterIP: None, ports: [{name: dns, port: 53, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: one-a, labels: {kubernetes.io/service-name: one}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.0.0.1]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: two-a, labels: {kubernetes.io/service-name: two}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.0.0.2]}, {addresses: [10.0.0.3]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: bytes-a, labels: {kubernetes.io/service-name: bytes}}
addressType: IPv4
ports: [{name: db, port: 5432}]
endpoints: [{addresses: [10.0.0.4]}, {addresses: [10.0.0.5]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {namespace: shop, name: web}
spec: {rules: [{backendRefs: [{name: two, port: 80}, {name: gone, port: 80}]}]}
---
apiVersion: gateway.networking.k8s.io/v1alpha2
kind: TCPRoute
metadata: {namespace: shop, name: bytes}
spec: {rules: [{backendRefs: [{name: two, port: 80}]}]}
---
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: OutlierPolicy
metadata: {namespace: shop, name: stored, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {targetRefs: [{group: "", kind: Service, name: two}], outlierDetection: {consecutiveServerErrors: 5}}
status: {ejected: 1}
`

func TestForecast(t *testing.T) {
	for name, test := range map[string]struct {
		policy string
		want   outlier.Forecast
	}{
		"a Service with one host may lose it, as alwaysEjectOneHost is the default": {
			"spec: {targetRefs: [{group: '', kind: Service, name: one}], outlierDetection: {maxEjectionPercent: 10}}",
			outlier.Forecast{Clusters: 1, Hosts: 1, EjectsEverything: 1, EjectsEverythingNames: []string{"shop/one/80 (1 host)"}},
		},
		"not in panic": {
			"spec: {panicThreshold: 1, targetRefs: [{group: '', kind: Service, name: one}], outlierDetection: {maxEjectionPercent: 100}}",
			outlier.Forecast{Clusters: 1, Hosts: 1},
		},
		"not while observing": {
			"spec: {mode: Observe, targetRefs: [{group: '', kind: Service, name: one}], outlierDetection: {maxEjectionPercent: 100}}",
			outlier.Forecast{Clusters: 1, Hosts: 1},
		},
		"ten percent of two hosts is nobody": {
			"spec: {targetRefs: [{group: '', kind: Service, name: bytes}], outlierDetection: {alwaysEjectOneHost: false}}",
			outlier.Forecast{Clusters: 1, Hosts: 2, Inert: 1, InertNames: []string{"shop/bytes/5432 (2 hosts)"}},
		},
		"a default is for all, but for what has a policy": {
			"metadata: {name: default}\nspec: {outlierDetection: {maxEjectionPercent: 100}}",
			outlier.Forecast{Clusters: 3, Hosts: 3, EjectsEverything: 2, EjectsEverythingNames: []string{"shop/bytes/5432 (2 hosts)", "shop/one/80 (1 host)"}},
		},
		"targets that aren't there, have no endpoints, or are elsewhere": {
			"spec: {targetRefs: [{group: '', kind: Service, name: gone}, {group: '', kind: Service, name: none}, {group: '', kind: Service, name: elsewhere}, " +
				"{group: '', kind: Service, name: one, sectionName: https}, {group: projectcontour.io, kind: HTTPProxy, name: web}, " +
				"{group: gateway.networking.k8s.io, kind: HTTPRoute, name: web, backend: {name: one, port: 80}}], outlierDetection: {}, panicThreshold: 10}",
			outlier.Forecast{
				Clusters: 1, ExternalTargets: []string{"Service elsewhere"}, EmptyTargets: []string{"Service none"},
				MissingTargets: []string{"Service gone", "Service one, port https", "HTTPProxy web", "HTTPRoute web, backend one:80"},
			},
		},
		"a Service without a port for TCP is there": {
			"spec: {targetRefs: [{group: '', kind: Service, name: portless}, {group: '', kind: Service, name: portless, sectionName: dns}], outlierDetection: {}}",
			outlier.Forecast{MissingTargets: []string{"TCP port of Service portless", "TCP port of Service portless"}},
		},
		"a Service that has a policy": {
			"spec: {targetRefs: [{group: '', kind: Service, name: two}], outlierDetection: {}}",
			outlier.Forecast{Conflicts: []string{"Service two: OutlierPolicy stored"}},
		},
		"a port of it is another target": {
			"spec: {targetRefs: [{group: '', kind: Service, name: two, sectionName: http}], outlierDetection: {}}",
			outlier.Forecast{Clusters: 1, Hosts: 2},
		},
		"an edit isn't in conflict with what it replaces": {
			"metadata: {name: stored}\nspec: {targetRefs: [{group: '', kind: Service, name: two}], outlierDetection: {maxEjectionPercent: 50}}",
			outlier.Forecast{Clusters: 1, Hosts: 2, Ejected: 1},
		},
		"over bytes alone only Envoy's own errors happen": {
			"spec: {targetRefs: [{group: '', kind: Service, name: bytes}, {group: gateway.networking.k8s.io, kind: TCPRoute, name: bytes, backend: {name: two, port: 80}}, {group: '', kind: Service, name: one}], " +
				"panicThreshold: 10, outlierDetection: {consecutiveServerErrors: 5, splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailure: 0}}",
			outlier.Forecast{Clusters: 3, Hosts: 5, Undetected: 2, UndetectedNames: []string{"shop/bytes/5432 (2 hosts)", "shop/two/80@tcproute/bytes (2 hosts)"}},
		},
		"disabled": {
			"spec: {disabled: true, targetRefs: [{group: '', kind: Service, name: one}]}",
			outlier.Forecast{Clusters: 1, Hosts: 1},
		},
		"a time that can't be read": {
			"spec: {outlierDetection: {interval: soon}}",
			outlier.Forecast{Unreadable: `outlierDetection.interval: time: invalid duration "soon"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			op := &v1alpha1.OutlierPolicy{}
			read(t, []byte(test.policy), op)
			if op.Namespace = "shop"; op.Name == "" {
				op.Name = "new"
			}
			got := outlier.ForecastOf(op, parseObjects(t, []byte(shop)), "autohealer-system")
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(got, "Items")); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestWhatAServiceSaysOfAPort: appProtocols of Kubernetes and Istio are known, and others are reported.
func TestWhatAServiceSaysOfAPort(t *testing.T) {
	const h2c, bytes, plain, unknown, unsaid = "HTTP/2", "bytes", "HTTP/1.1", "isn't known", "has no appProtocol"
	for _, c := range []struct{ name, protocol, want string }{
		{"web", "kubernetes.io/h2c", h2c}, {"web", "h2c", h2c}, {"web", "http2", h2c}, {"web", "HTTP2", h2c}, {"web", "grpc", h2c}, {"web", "grpc-web", h2c},
		{"web", "http", plain}, {"web", "kubernetes.io/ws", plain}, {"web", "https", plain}, {"web", "tls", plain}, {"web", "", plain},
		{"db", "tcp", bytes}, {"db", "mysql", bytes}, {"db", "mongo", bytes}, {"db", "redis", bytes},
		{"web", "h2", unknown}, {"mq", "amqp", unknown}, {"web", "example.com/own", unknown}, {"grpc", "example.com/own", unknown},
		{"grpc", "", unsaid}, {"grpc-api", "", unsaid}, {"http2", "", unsaid}, {"h2c", "", unsaid},
		{"grpc-gateway", "http", plain}, {"grpc", "grpc", h2c},
	} {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: c.name, Port: 80}}}}
		if c.protocol != "" {
			svc.Spec.Ports[0].AppProtocol = &c.protocol
		}
		policy := &outlier.Policy{Namespace: "shop", Name: "default"}
		a := outlier.NewIndex([]*outlier.Policy{policy}, nil, "").Assign(svc, nil)[0]
		text := strings.Join(a.NotFollowed(), "")
		if a.HTTP2 != (c.want == h2c) || a.TCP != (c.want == bytes) || a.TLS {
			t.Errorf("%+v is %+v", c, a)
		}
		if want := c.want == unknown || c.want == unsaid; want != (text != "") || want && !strings.Contains(text, c.want) {
			t.Errorf("%+v: %q", c, text)
		}
	}
}

func TestWhatIsNotFollowedIsForecastOnceForAService(t *testing.T) {
	w := parseObjects(t, []byte(shop))
	w.Services[0].Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	w.Services[0].Spec.Ports = append(w.Services[0].Spec.Ports, corev1.ServicePort{Name: "other", Port: 81})
	op := &v1alpha1.OutlierPolicy{}
	read(t, []byte("metadata: {name: default, namespace: shop}\nspec: {outlierDetection: {}}"), op)
	got := outlier.ForecastOf(op, w, "autohealer-system")
	if want := []string{"Service one has sessionAffinity: ClientIP, and Envoys send each client to all hosts in turn"}; got.NotFollowed != 1 || !slices.Equal(got.NotFollowedTexts, want) {
		t.Errorf("%d: %q", got.NotFollowed, got.NotFollowedTexts)
	}
}

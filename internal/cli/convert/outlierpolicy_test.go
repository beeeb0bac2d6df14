package convert

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// contour is the sample of the design for Contour.
const contour = `
outlierDetection:
  consecutiveServerErrors: 5
  interval: 10s
  baseEjectionTime: 30s
  maxEjectionTime: 300s
  splitExternalLocalOriginErrors: false
  consecutiveLocalOriginFailure: 5
  maxEjectionPercent: 10
  maxEjectionTimeJitter: 0s
`

// The examples of the design for Contour, word for word, with what Envoy is to be told.
const (
	example1 = `
apiVersion: projectcontour.io/v1alpha1
kind: HTTPProxy
metadata:
  name: simple-5xx
  namespace: projectcontour
spec:
    virtualhost:
        fqdn: outlierDetection.projectcontour.io
    routes:
      - conditions:
          - prefix: /
        services:
          - name: s1
            port: 80
            outlierDetection:
              consecutiveServerErrors: 5
              maxEjectionPercent: 100
`
	envoy1 = `
common_lb_config:
  healthy_panic_threshold:
    value: 0.0
outlier_detection:
  enforcing_success_rate: 0
  consecutive_5xx: 5
  enforcing_consecutive_5xx: 100
  max_ejection_percent: 100
  enforcing_consecutive_gateway_failure: 0
`
	example2 = `
apiVersion: projectcontour.io/v1alpha1
kind: HTTPProxy
metadata:
  name: only-local-external-origin-errors
  namespace: projectcontour
spec:
    virtualhost:
        fqdn: outlierDetection.projectcontour.io
    routes:
      - conditions:
          - prefix: /
        services:
          - name: s1
            port: 80
            outlierDetection:
              consecutiveServerErrors: 0
              maxEjectionPercent: 100
              splitExternalLocalOriginErrors: true
              consecutiveLocalOriginFailure: 5
`
	envoy2 = `
common_lb_config:
  healthy_panic_threshold:
    value: 0.0
outlier_detection:
  enforcing_success_rate: 0
  enforcing_consecutive_5xx: 0
  max_ejection_percent: 100
  split_external_local_origin_errors: true
  consecutive_local_origin_failure: 5
  enforcing_local_origin_success_rate: 0
  enforcing_consecutive_gateway_failure: 0
`
	example3 = `
apiVersion: projectcontour.io/v1alpha1
kind: HTTPProxy
metadata:
  name: local-external-origin-errors-and-consecutive-5xx
  namespace: projectcontour
spec:
    virtualhost:
        fqdn: outlierDetection.projectcontour.io
    routes:
      - conditions:
          - prefix: /
        services:
          - name: s1
            port: 80
            outlierDetection:
              consecutiveServerErrors: 10
              maxEjectionPercent: 100
              splitExternalLocalOriginErrors: true
              consecutiveLocalOriginFailure: 5
`
	envoy3 = `
common_lb_config:
  healthy_panic_threshold:
    value: 0.0
outlier_detection:
  enforcing_success_rate: 0
  consecutive_5xx: 10
  enforcing_consecutive_5xx: 100
  max_ejection_percent: 100
  split_external_local_origin_errors: true
  consecutive_local_origin_failure: 5
  enforcing_local_origin_success_rate: 0
  enforcing_consecutive_gateway_failure: 0
`
)

func toOutlierPolicies(text string) Result {
	return Convert([]manifest.File{{Name: "f", Text: []byte(text)}}, "OutlierPolicy")
}

// TestTheExamplesOfTheDesignGiveItsConfigurations goes the whole way: convert, validate, store, translate.
func TestTheExamplesOfTheDesignGiveItsConfigurations(t *testing.T) {
	checker, err := check.New(check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, example := range [][2]string{{example1, envoy1}, {example2, envoy2}, {example3, envoy3}} {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			r := toOutlierPolicies(example[0])
			if r.Failed() || len(r.Objects) != 1 {
				t.Fatalf("%d objects, %+v", len(r.Objects), r.Notes)
			}
			report := checker.Object(t.Context(), r.Objects[0].Content, nil)
			warnedOf := func(v check.Violation) bool { return v.Rule == "outlierpolicy/split-misses-hangs" } // which the design doesn't know
			if !report.Allowed || len(slices.DeleteFunc(report.Violations, warnedOf)) > 0 {
				t.Fatalf("allowed %v, %+v", report.Allowed, report.Violations)
			}
			compareEnvoy(t, example[1], translated(t, report.Stored, example[0]))
		})
	}
}

// translated gives the cluster of the proxy's service s1, with a policy as the API server stores it.
func translated(t *testing.T, stored map[string]any, proxy string) *clusterv3.Cluster {
	t.Helper()
	op := &v1alpha1.OutlierPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored, op); err != nil {
		t.Fatal(err)
	}
	p, err := outlier.NewPolicy(op)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.Unmarshal([]byte(proxy), &object); err != nil {
		t.Fatal(err)
	}
	all := outlier.NewIndex([]*outlier.Policy{p}, []outlier.Route{outlier.ReadRoute(object)}, "").Assign(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "projectcontour", Name: "s1"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, nil)
	if len(all) != 1 || all[0].Level != outlier.LevelBackend {
		t.Fatalf("got %v", all)
	}
	return outlier.NewCluster(all[0])
}

func compareEnvoy(t *testing.T, want string, got *clusterv3.Cluster) {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(want))
	if err != nil {
		t.Fatal(err)
	}
	wanted := &clusterv3.Cluster{}
	if err := protojson.Unmarshal(text, wanted); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got.CommonLbConfig.UpdateMergeWindow, durationpb.New(0)) {
		t.Errorf("ejections wait for %v", got.CommonLbConfig.UpdateMergeWindow)
	}
	wanted.CommonLbConfig.UpdateMergeWindow = got.CommonLbConfig.UpdateMergeWindow // which the design doesn't have: decision 0075
	if diff := cmp.Diff(wanted, &clusterv3.Cluster{CommonLbConfig: got.CommonLbConfig, OutlierDetection: got.OutlierDetection}, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestContoursBlockBecomesTheDefault(t *testing.T) {
	for name, text := range map[string]string{"bare": contour, "in a ConfigMap": inConfigMap(contour), "beside other settings": "accesslog-format: json" + contour} {
		t.Run(name, func(t *testing.T) {
			r := toOutlierPolicies(text)
			if r.Failed() || len(r.Objects) != 1 || len(r.Notes) != 0 {
				t.Fatalf("%d objects, notes %+v", len(r.Objects), r.Notes)
			}
			var want map[string]any
			if err := yaml.Unmarshal([]byte(contour), &want); err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(r.Objects[0].Content)
			if err != nil {
				t.Fatal(err)
			}
			var policy map[string]any
			if err := yaml.Unmarshal(got, &policy); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]any{
				"apiVersion": "autohealer.resourcestack.com/v1alpha1", "kind": "OutlierPolicy",
				"metadata": map[string]any{"name": "default", "namespace": "autohealer-system"}, "spec": want,
			}, policy); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// proxyOf is an HTTPProxy with a spec.
func proxyOf(spec string) string {
	return "apiVersion: projectcontour.io/v1\nkind: HTTPProxy\nmetadata: {name: web, namespace: shop}\nspec: " + spec + "\n"
}

func TestConvertHTTPProxies(t *testing.T) {
	const mind = "f:1: warning: remove outlierDetection from the HTTPProxy: Contour doesn't know it"
	for name, c := range map[string]struct {
		text string
		// policies as name: spec.
		policies, notes []string
	}{
		"equal settings share a policy, others get one": {
			proxyOf("{routes: [{services: [{name: a, port: 80, outlierDetection: {interval: 5s}}, {name: b, port: 80}]}, {services: [{name: a, port: 81, outlierDetection: {interval: 5s}}]}], " +
				"tcpproxy: {services: [{name: c, port: 1, outlierDetection: {interval: 6s}}]}}"),
			[]string{
				`web: {"outlierDetection":{"interval":"5s"},"targetRefs":[{"backend":{"name":"a","port":80},"group":"projectcontour.io","kind":"HTTPProxy","name":"web"},{"backend":{"name":"a","port":81},"group":"projectcontour.io","kind":"HTTPProxy","name":"web"}]}`,
				`web-c-1: {"outlierDetection":{"interval":"6s"},"targetRefs":[{"backend":{"name":"c","port":1},"group":"projectcontour.io","kind":"HTTPProxy","name":"web"}]}`,
			}, []string{mind},
		},
		"disabled": {
			proxyOf("{routes: [{services: [{name: a, port: 80, outlierDetection: {disabled: true}}]}]}"),
			[]string{`web: {"disabled":true,"targetRefs":[{"backend":{"name":"a","port":80},"group":"projectcontour.io","kind":"HTTPProxy","name":"web"}]}`}, []string{mind},
		},
		"not disabled, and all by default": {
			proxyOf("{routes: [{services: [{name: a, port: 80, outlierDetection: {disabled: false, interval: null}}]}]}"),
			[]string{`web: {"outlierDetection":{},"targetRefs":[{"backend":{"name":"a","port":80},"group":"projectcontour.io","kind":"HTTPProxy","name":"web"}]}`}, []string{mind},
		},
		"one port in two routes, the same": {
			proxyOf("{routes: [{services: [{name: a, port: 80, outlierDetection: {interval: 5s}}]}, {services: [{name: a, port: 80, outlierDetection: {interval: 5s}}]}]}"),
			[]string{`web: {"outlierDetection":{"interval":"5s"},"targetRefs":[{"backend":{"name":"a","port":80},"group":"projectcontour.io","kind":"HTTPProxy","name":"web"}]}`}, []string{mind},
		},
		"one port in two routes, and only in one with the field": {
			proxyOf("{routes: [{services: [{name: a, port: 80, outlierDetection: {interval: 5s}}]}, {services: [{name: a, port: 80}]}]}"), nil,
			[]string{"f:4: error: spec.routes[1].services[0].outlierDetection: a:80 is in spec.routes[0].services[0] too, with another one or none; a policy is for a Service's port in the whole proxy: write the same in both"},
		},
		"a field that nobody knows": {
			proxyOf("{routes: [{services: [{name: a, port: 80, outlierDetection: {interval: 5s, consecutiveGatewayFailure: 3}}]}]}"),
			[]string{`web: {"outlierDetection":{"interval":"5s"},"targetRefs":[{"backend":{"name":"a","port":80},"group":"projectcontour.io","kind":"HTTPProxy","name":"web"}]}`},
			[]string{"f:4: warning: spec.routes[0].services[0].outlierDetection.consecutiveGatewayFailure: has no counterpart, and is left out", mind},
		},
		"no field":      {proxyOf("{routes: [{services: [{name: a, port: 80}]}]}"), nil, []string{"f:1: warning: no service has outlierDetection, so there is nothing to convert"}},
		"no port":       {proxyOf("{routes: [{services: [{name: a, outlierDetection: {}}]}]}"), nil, []string{"f:4: error: spec.routes[0].services[0]: must be a service with its name and port"}},
		"no name":       {strings.Replace(proxyOf("{}"), "web", "W b", 1), nil, []string{"f:3: error: metadata.name: must be a name of at most 180 lower-case letters, digits, - and ."}},
		"another block": {"outlierDetection: []", nil, []string{"f:1: error: outlierDetection: must be a map"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := toOutlierPolicies(c.text)
			var notes, policies []string
			for _, n := range r.Notes {
				word := "warning"
				if n.Error {
					word = "error"
				}
				notes = append(notes, fmt.Sprintf("%s:%d: %s: %s", n.File, n.Line, word, n.Message))
			}
			for _, o := range r.Objects {
				spec, err := yaml.Marshal(o.Content["spec"])
				if err != nil {
					t.Fatal(err)
				}
				if spec, err = yaml.YAMLToJSON(spec); err != nil {
					t.Fatal(err)
				}
				policies = append(policies, fmt.Sprintf("%s: %s", o.Content["metadata"].(map[string]any)["name"], spec))
			}
			if diff := cmp.Diff(c.notes, notes); diff != "" {
				t.Errorf("notes: -want +got\n%s", diff)
			}
			if diff := cmp.Diff(c.policies, policies); diff != "" {
				t.Errorf("policies: -want +got\n%s", diff)
			}
		})
	}
}

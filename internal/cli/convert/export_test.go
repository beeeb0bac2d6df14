package convert

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/cli/manifest"
)

// policyOf is an OutlierPolicy in shop with a spec.
func policyOf(name, spec string) string {
	return "apiVersion: autohealer.resourcestack.com/v1alpha1\nkind: OutlierPolicy\nmetadata: {name: " + name + ", namespace: shop}\nspec:\n" + spec + "\n---\n"
}

const (
	toCheckout = "  targetRefs: [{group: '', kind: Service, name: checkout}]\n"
	toWeb      = "  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: web}, {group: gateway.networking.k8s.io, kind: TCPRoute, name: db}]\n"
	full       = "  outlierDetection: {consecutiveServerErrors: 0, interval: 1.5s, baseEjectionTime: 90s, splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailure: 7, maxEjectionPercent: 100}\n" +
		"  panicThreshold: 20\n  connectTimeout: 250ms\n"
	shortest = "  outlierDetection: {maxEjectionPercent: 100}\n"
)

// taken checks an object as the API server does with the CRD in a file: fields that it doesn't know are refused, too.
func taken(t *testing.T, file string, object map[string]any) {
	t.Helper()
	text, err := os.ReadFile("testdata/crds/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var crd extv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	var schema apiextensions.JSONSchemaProps
	if err := extv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &schema, nil); err != nil {
		t.Fatal(err)
	}
	openapi, _, err := validation.NewSchemaValidator(&schema)
	if err != nil {
		t.Fatal(err)
	}
	s, err := structural.NewStructural(&schema)
	if err != nil {
		t.Fatal(err)
	}
	if want := crd.Spec.Group + "/" + crd.Spec.Versions[0].Name + " " + crd.Spec.Names.Kind; want != object["apiVersion"].(string)+" "+object["kind"].(string) {
		t.Errorf("%v %v is no %s", object["apiVersion"], object["kind"], want)
	}
	errs := validation.ValidateCustomResource(nil, object, openapi)
	ruleErrs, _ := schemacel.NewValidator(s, true, celconfig.PerCallLimit).Validate(t.Context(), nil, s, object, nil, celconfig.RuntimeCELCostBudget)
	if errs = append(errs, ruleErrs...); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
	if unknown := pruning.PruneWithOptions(runtime.DeepCopyJSON(object), s, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(unknown) > 0 {
		t.Errorf("it doesn't know %v", unknown)
	}
}

func TestOutlierPoliciesBecomeOthersPolicies(t *testing.T) {
	const noSuccessRates = "success rates eject, too"
	for name, c := range map[string]struct {
		to, text string
		want     string   // the specs
		told     []string // parts of the warnings and errors
	}{
		"all that Istio has": {"DestinationRule", policyOf("web", toCheckout+full), `
- host: checkout.shop.svc.cluster.local
  trafficPolicy:
    connectionPool: {tcp: {connectTimeout: 250ms}}
    outlierDetection: {consecutive5xxErrors: 0, interval: 1s500ms, baseEjectionTime: 1m30s, splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 7, maxEjectionPercent: 100, minHealthPercent: 20}
`, nil},
		"Envoy's defaults, where Istio's are others": {"DestinationRule", policyOf("web", toCheckout+shortest), `
- host: checkout.shop.svc.cluster.local
  trafficPolicy:
    connectionPool: {tcp: {connectTimeout: 5s}}
    outlierDetection: {consecutive5xxErrors: 5, interval: 10s, baseEjectionTime: 30s, maxEjectionPercent: 100}
`, nil},
		"a port": {"DestinationRule", policyOf("web", strings.Replace(toCheckout, "}]", ", sectionName: '8080'}]", 1)+shortest), `
- host: checkout.shop.svc.cluster.local
  trafficPolicy:
    portLevelSettings:
    - port: {number: 8080}
      connectionPool: {tcp: {connectTimeout: 5s}}
      outlierDetection: {consecutive5xxErrors: 5, interval: 10s, baseEjectionTime: 30s, maxEjectionPercent: 100}
`, nil},
		"a namespace's default": {"DestinationRule", policyOf("default", shortest), `
- host: "*.shop.svc.cluster.local"
  trafficPolicy:
    connectionPool: {tcp: {connectTimeout: 5s}}
    outlierDetection: {consecutive5xxErrors: 5, interval: 10s, baseEjectionTime: 30s, maxEjectionPercent: 100}
`, nil},
		"the cluster's": {"DestinationRule", strings.Replace(policyOf("default", shortest), "shop", "autohealer-system", 1), `
- host: "*.svc.cluster.local"
  trafficPolicy:
    connectionPool: {tcp: {connectTimeout: 5s}}
    outlierDetection: {consecutive5xxErrors: 5, interval: 10s, baseEjectionTime: 30s, maxEjectionPercent: 100}
`, []string{"the cluster's default goes to istio-system"}},
		"what Istio loses": {"DestinationRule", policyOf("web", "  targetRefs: [{group: '', kind: Service, name: checkout}, {group: '', kind: Service, name: mail, sectionName: smtp}, {group: projectcontour.io, kind: HTTPProxy, name: web}]\n"+
			"  outlierDetection: {maxEjectionPercent: 0, maxEjectionTime: 10m, maxEjectionTimeJitter: 1s, splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailure: 0}"), `
- host: checkout.shop.svc.cluster.local
  trafficPolicy:
    connectionPool: {tcp: {connectTimeout: 5s}}
    outlierDetection: {consecutive5xxErrors: 5, interval: 10s, baseEjectionTime: 30s, splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 0}
`, []string{
			"maxEjectionTime: is lost", "maxEjectionTimeJitter: is lost", "maxEjectionPercent: 0 becomes 10", "alwaysEjectOneHost: true is lost", "consecutiveLocalOriginFailure: 0 becomes 5",
			"spec.targetRefs[1]: Service mail, port smtp is left out", "spec.targetRefs[2]: HTTPProxy web is left out",
		}},
		"two for one host": {"DestinationRule", policyOf("a", toCheckout+shortest) + policyOf("b", strings.Replace(toCheckout, "}]", ", sectionName: '8080'}]", 1)+shortest), "",
			[]string{"error: would become a DestinationRule for checkout.shop.svc.cluster.local, and so would f:5"}},
		"all that Envoy Gateway has": {"BackendTrafficPolicy", policyOf("web", toWeb+full), `
- targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: web}, {group: gateway.networking.k8s.io, kind: TCPRoute, name: db}]
  timeout: {tcp: {connectTimeout: 250ms}}
  healthCheck:
    panicThreshold: 20
    passive: {consecutive5XxErrors: 0, interval: 1s500ms, baseEjectionTime: 1m30s, splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 7, maxEjectionPercent: 100, alwaysEjectOneEndpoint: true}
`, []string{noSuccessRates}},
		"Envoy's defaults, where Envoy Gateway's are others": {"BackendTrafficPolicy", policyOf("web", toWeb+"  outlierDetection: {alwaysEjectOneHost: false}"), `
- targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: web}, {group: gateway.networking.k8s.io, kind: TCPRoute, name: db}]
  timeout: {tcp: {connectTimeout: 5s}}
  healthCheck:
    panicThreshold: 0
    passive: {consecutive5XxErrors: 5, interval: 10s, baseEjectionTime: 30s, maxEjectionPercent: 10, alwaysEjectOneEndpoint: false}
`, []string{noSuccessRates}},
		"what Envoy Gateway loses": {"BackendTrafficPolicy", policyOf("web", "  targetRefs: [{group: '', kind: Service, name: a}, {group: gateway.networking.k8s.io, kind: GRPCRoute, name: b, backend: {name: c, port: 80}}]\n"+
			"  outlierDetection: {maxEjectionPercent: 0, maxEjectionTime: 10m, maxEjectionTimeJitter: 1s}"), "", []string{
			"maxEjectionTime: is lost", "maxEjectionTimeJitter: is lost", "maxEjectionPercent: 0 becomes 10", noSuccessRates, "Service a is left out", "GRPCRoute b, backend c:80 is left out",
		}},
		"a default": {"BackendTrafficPolicy", policyOf("default", shortest), "", []string{noSuccessRates, "a default is left out"}},
		"two for one route": {"BackendTrafficPolicy", policyOf("a", toWeb+shortest) + policyOf("b", strings.Replace(toWeb, "HTTPRoute, name: web", "HTTPRoute, name: other", 1)+shortest), "",
			[]string{noSuccessRates, noSuccessRates, "error: would become a BackendTrafficPolicy for TCPRoute shop/db, and so would f:1"}},
		"one that observes":  {"DestinationRule", policyOf("a", toCheckout+"  mode: Observe\n"+shortest), "", []string{"Istio can't count without ejecting"}},
		"one that is off":    {"BackendTrafficPolicy", policyOf("a", toWeb+"  disabled: true"), "", []string{"spec.disabled: the policy is left out"}},
		"a time that's none": {"DestinationRule", policyOf("a", toCheckout+"  outlierDetection: {interval: soon}"), "", []string{"error: can't be read: outlierDetection.interval"}},
		"without namespace":  {"DestinationRule", strings.Replace(policyOf("a", toCheckout+shortest), ", namespace: shop", "", 1), "", []string{"error: metadata.namespace: is missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := Convert([]manifest.File{{Name: "f", Text: []byte(c.text)}}, c.to)
			for i, n := range r.Notes {
				if text := noteText(n); i >= len(c.told) || !strings.Contains(text, c.told[i]) {
					t.Errorf("told %q", text)
				}
			}
			if len(r.Notes) < len(c.told) {
				t.Errorf("not told: %q", c.told[len(r.Notes):])
			}
			if r.Failed() {
				return
			}
			var want []any
			if err := yaml.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			var got []any
			for _, o := range r.Objects {
				taken(t, strings.ToLower(c.to)+".yaml", o.Content)
				got = append(got, o.Content["spec"])
			}
			if diff := cmp.Diff(asJSON(t, want), asJSON(t, got)); diff != "" {
				t.Error(diff)
			}
			if len(got) != len(r.Outcomes) || len(got) > 0 && !slices.ContainsFunc(r.Outcomes, func(n Note) bool { return strings.Contains(n.Message, "where there is one for") }) {
				t.Errorf("it isn't told that a second one isn't merged: %+v", r.Outcomes)
			}
		})
	}
}

func noteText(n Note) string {
	if n.Error {
		return "error: " + n.Message
	}
	return n.Message
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

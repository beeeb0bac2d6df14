package v1alpha1_test

import (
	"strings"
	"testing"

	extvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
)

// detecting is the shortest spec there is, to add to.
const detecting = "outlierDetection: {consecutiveServerErrors: 5}\n"

// The API server estimates the cost of the schema's rules when the CRD is installed, and refuses it when it is too high.
func TestTheAPIServerTakesTheOutlierPolicySchema(t *testing.T) {
	if errs := extvalidation.ValidateCustomResourceDefinition(t.Context(), schemaOf(t, "outlierpolicies")); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}

func TestOutlierPolicySchema(t *testing.T) {
	judge := judgeOf(t, "OutlierPolicy", "outlierpolicies")
	target := func(ref string) string { return detecting + "targetRefs: [" + ref + "]" }
	detection := func(fields string) string { return "outlierDetection: {" + fields + "}" }
	for name, test := range map[string]struct {
		spec string
		// wrong is a part of the error, "" when the spec is admitted.
		wrong string
	}{
		"a default":  {spec: detecting},
		"disabled":   {spec: "disabled: true"},
		"all fields": {spec: target(`{group: "", kind: Service, name: s1, sectionName: http}`) + "\nmode: Observe\npanicThreshold: 100\ndisabled: false"},
		"all fields of the detection": {spec: detection("consecutiveServerErrors: 0, interval: 10s, baseEjectionTime: 1h30m, maxEjectionTime: 300s, splitExternalLocalOriginErrors: true, " +
			"consecutiveLocalOriginFailure: 0, maxEjectionPercent: 0, maxEjectionTimeJitter: 1s500ms, alwaysEjectOneHost: false")},
		"every kind of route": {spec: target("{group: gateway.networking.k8s.io, kind: HTTPRoute, name: a}, {group: gateway.networking.k8s.io, kind: GRPCRoute, name: a}, " +
			"{group: gateway.networking.k8s.io, kind: TCPRoute, name: a}, {group: projectcontour.io, kind: HTTPProxy, name: a, backend: {name: s1, port: 80}}")},
		"neither detection nor disabled": {"mode: Observe", "write outlierDetection, or disabled: true"},
		"not disabled, and no detection": {"disabled: false", "write outlierDetection, or disabled: true"},
		"a Service of another group":     {target("{group: apps, kind: Service, name: a}"), "Unsupported value"},
		"a route of another group":       {target("{group: projectcontour.io, kind: HTTPRoute, name: a}"), "the group of Service"},
		"an HTTPProxy of another group":  {target("{group: gateway.networking.k8s.io, kind: HTTPProxy, name: a}"), "the group of Service"},
		"a group left out":               {target("{kind: Service, name: a}"), "group: Required value"},
		"another kind":                   {target(`{group: "", kind: Pod, name: a}`), "Unsupported value"},
		"a section of a route":           {target("{group: projectcontour.io, kind: HTTPProxy, name: a, sectionName: http}"), "of a route choose a backend"},
		"a backend of a Service":         {target(`{group: "", kind: Service, name: a, backend: {name: b, port: 80}}`), "of a Service choose a port"},
		"a backend without a port":       {target("{group: projectcontour.io, kind: HTTPProxy, name: a, backend: {name: b}}"), "port: Required value"},
		"a backend's port beyond all":    {target("{group: projectcontour.io, kind: HTTPProxy, name: a, backend: {name: b, port: 65536}}"), "less than or equal to 65535"},
		"too many targets":               {target(strings.Repeat(`{group: "", kind: Service, name: a},`, 17)), "must have at most 16 items"},
		"a negative count":               {detection("consecutiveServerErrors: -1"), "greater than or equal to 0"},
		"the largest count":              {spec: detection("consecutiveServerErrors: 2147483647, splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailure: 2147483647")},
		"a count that Envoy would take":  {detection("consecutiveServerErrors: 4294967295"), "less than or equal to 2.147483647e+09"},
		"another one":                    {detection("consecutiveLocalOriginFailure: 2147483648"), "less than or equal to 2.147483647e+09"},
		"more than 100 percent":          {detection("maxEjectionPercent: 101"), "less than or equal to 100"},
		"a panic beyond 100":             {detecting + "panicThreshold: 101", "less than or equal to 100"},
		"another mode":                   {detecting + "mode: DryRun", "Unsupported value"},
		"an interval without a unit":     {detection("interval: '10'"), "write a duration such as"},
		"an interval in days":            {detection("interval: 1d"), "write a duration such as"},
		"a unit alone":                   {detection("interval: h"), "write a duration such as"},
		"a point alone":                  {detection("interval: .s"), "write a duration such as"},
		"a fraction":                     {spec: detection("interval: .5s, baseEjectionTime: 1.5m")},
		"a time beyond all":              {detection("maxEjectionTime: 8761h"), "at most 8760h"},
		"jitter in minutes":              {detection("maxEjectionTimeJitter: 1m"), "write seconds and milliseconds"},
	} {
		t.Run(name, func(t *testing.T) { judge(t, test.spec, test.wrong) })
	}
}

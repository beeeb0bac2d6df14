package convert

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// destinationRules are Istio's objects for OutlierPolicies, and trafficPolicies Envoy Gateway's. How their fields are translated for Envoy is in
// applyOutlierDetection of istio/istio (pilot/pkg/networking/core/cluster_traffic_policy.go), and in buildXdsOutlierDetection of
// envoyproxy/gateway v1.9.1 (internal/xds/translator/cluster.go).
var (
	destinationRules = source{kind: "DestinationRule", keyword: outlierPolicy, recognizes: isOutlierPolicy, convert: func(p *pass) { p.convertOutlierPolicy("Istio", (*pass).toIstio) }}
	trafficPolicies  = source{kind: "BackendTrafficPolicy", keyword: outlierPolicy, recognizes: isOutlierPolicy, convert: func(p *pass) { p.convertOutlierPolicy("Envoy Gateway", (*pass).toEnvoyGateway) }}
)

const (
	gatewayGroup = "gateway.networking.k8s.io"
	// istioRoot is the namespace of Istio's rules for all namespaces, by default.
	istioRoot = "istio-system"
	// Envoy's defaults, which Istio and Envoy Gateway replace by their own.
	defaultConnectTimeout = 5 * time.Second
	defaultMaxEjection    = 300 * time.Second
)

func isOutlierPolicy(object map[string]any) bool {
	return object["kind"] == outlierPolicy && object["apiVersion"] == v1alpha1.GroupVersion.String()
}

// convertOutlierPolicy converts an OutlierPolicy, and warns of what neither Istio nor Envoy Gateway has.
func (p *pass) convertOutlierPolicy(control string, convert func(*pass, *v1alpha1.OutlierPolicy, *outlier.Settings)) {
	op := &v1alpha1.OutlierPolicy{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(p.document.Object, op)
	var read *outlier.Policy
	if err == nil {
		read, err = outlier.NewPolicy(op)
	}
	switch {
	case err != nil:
		p.fail("", "can't be read: %v", err)
		return
	case op.Namespace == "":
		p.fail("metadata.namespace", "is missing, and targets are named with it; write it")
		return
	case op.Spec.Disabled:
		p.warn("spec.disabled", "the policy is left out: %s has nothing that switches off what is less specific", control)
		return
	case op.Spec.Mode == v1alpha1.Observe:
		p.warn("spec.mode", "the policy is left out: %s can't count without ejecting", control)
		return
	}
	p.result.Policies = append(p.result.Policies, Object{File: p.document.File, Line: p.document.LineOf("") + p.linesBefore, Content: p.document.Object})
	s := &read.Settings
	if longest := s.MaxEjectionTime(); longest != max(defaultMaxEjection, s.BaseEjectionTime()) {
		p.warn("spec.outlierDetection.maxEjectionTime", "is lost: %s has no such field, and Envoy's %s is the longest", control, max(defaultMaxEjection, s.BaseEjectionTime()))
	}
	if s.MaxJitter() > 0 {
		p.warn("spec.outlierDetection.maxEjectionTimeJitter", "is lost: %s has no such field", control)
	}
	if s.MaxEjectionPercent() == 0 {
		p.warn("spec.outlierDetection.maxEjectionPercent", "0 becomes 10: %s takes 0 for Envoy's default", control)
	}
	convert(p, op, s)
}

// connectTimeout is written also where the policy has Envoy's default: Istio's and Envoy Gateway's is 10s.
func connectTimeout(s *outlier.Settings) time.Duration {
	if s.ConnectTimeout != nil {
		return *s.ConnectTimeout
	}
	return defaultConnectTimeout
}

// commonFields are the fields that Istio and Envoy Gateway have under the same name.
func commonFields(s *outlier.Settings) map[string]any {
	d := map[string]any{"interval": durationText(s.SweepInterval()), "baseEjectionTime": durationText(s.BaseEjectionTime())}
	if percent := s.MaxEjectionPercent(); percent > 0 {
		d["maxEjectionPercent"] = int64(percent)
	}
	if s.Split {
		d["splitExternalLocalOriginErrors"], d["consecutiveLocalOriginFailures"] = true, int64(s.LocalOriginThreshold())
	}
	return d
}

func (p *pass) toIstio(op *v1alpha1.OutlierPolicy, s *outlier.Settings) {
	if s.AlwaysEjectOneHost && s.MaxEjectionPercent() < 100 {
		p.warn("spec.outlierDetection.alwaysEjectOneHost", "true is lost: Istio has no such field, and ejects nobody of so few hosts that maxEjectionPercent of them is less than one")
	}
	if s.Split && s.LocalOriginThreshold() == 0 {
		p.warn("spec.outlierDetection.consecutiveLocalOriginFailure", "0 becomes 5: Istio takes 0 for Envoy's default")
	}
	detection := commonFields(s)
	detection["consecutive5xxErrors"] = int64(s.ServerErrorThreshold())
	if s.PanicThreshold > 0 {
		detection["minHealthPercent"] = int64(s.PanicThreshold)
	}
	traffic := map[string]any{"outlierDetection": detection, "connectionPool": map[string]any{"tcp": map[string]any{"connectTimeout": durationText(connectTimeout(s))}}}
	if len(op.Spec.TargetRefs) == 0 {
		p.istioDefault(op, traffic)
	}
	for i, ref := range op.Spec.TargetRefs {
		name := op.Name
		if len(op.Spec.TargetRefs) > 1 {
			name += "-" + ref.Name
		}
		p.istioTarget(fmt.Sprintf("spec.targetRefs[%d]", i), name, op.Namespace, ref, traffic)
	}
}

func (p *pass) istioTarget(path, name, namespace string, ref v1alpha1.OutlierTargetReference, traffic map[string]any) {
	if ref.Kind != "Service" {
		p.warn(path, "%s is left out: in Istio hosts are ejected for a Service, whatever route leads to it", outlier.TargetText(ref))
		return
	}
	if ref.SectionName != "" {
		number, err := strconv.ParseInt(ref.SectionName, 10, 32)
		if err != nil {
			p.warn(path, "%s is left out: Istio names ports by their numbers, and the policy doesn't say which %s has", outlier.TargetText(ref), ref.SectionName)
			return
		}
		port := maps.Clone(traffic)
		port["port"] = map[string]any{"number": number}
		traffic = map[string]any{"portLevelSettings": []any{port}}
	}
	p.destinationRule(path, name, namespace, ref.Name+"."+namespace+".svc.cluster.local", traffic)
}

func (p *pass) istioDefault(op *v1alpha1.OutlierPolicy, traffic map[string]any) {
	if op.Namespace == ownNamespace {
		p.warn("metadata.namespace", "the cluster's default goes to %s, where Istio's rules for all namespaces are unless meshConfig.rootNamespace says otherwise", istioRoot)
		p.destinationRule("", op.Name, istioRoot, "*.svc.cluster.local", traffic)
		return
	}
	p.destinationRule("", op.Name, op.Namespace, "*."+op.Namespace+".svc.cluster.local", traffic)
}

func (p *pass) destinationRule(path, name, namespace, host string, traffic map[string]any) {
	p.object(path, Object{Target: host, Content: map[string]any{
		"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
		"metadata": map[string]any{"name": name, "namespace": namespace}, "spec": map[string]any{"host": host, "trafficPolicy": traffic},
	}})
	p.recordOutcome(path, fmt.Sprintf("became DestinationRule %s/%s; Istio doesn't merge two for one host: where there is one for %s, write this trafficPolicy into it", namespace, name, host))
}

func (p *pass) toEnvoyGateway(op *v1alpha1.OutlierPolicy, s *outlier.Settings) {
	p.warn("spec.outlierDetection", "success rates eject, too: Envoy Gateway leaves them on, and a host far below the others is ejected where five have 100 requests each in an interval")
	detection := commonFields(s)
	detection["consecutive5XxErrors"] = int64(s.ServerErrorThreshold())
	detection["alwaysEjectOneEndpoint"] = s.AlwaysEjectOneHost
	var targets []any
	var names []string
	for i, ref := range op.Spec.TargetRefs {
		at := fmt.Sprintf("spec.targetRefs[%d]", i)
		switch {
		case ref.Group != gatewayGroup:
			p.warn(at, "%s is left out: a BackendTrafficPolicy is for routes and Gateways of Gateway API", outlier.TargetText(ref))
		case ref.Backend != nil:
			p.warn(at, "%s is left out: a BackendTrafficPolicy is for all Services of a route", outlier.TargetText(ref))
		default:
			targets = append(targets, map[string]any{"group": ref.Group, "kind": ref.Kind, "name": ref.Name})
			names = append(names, fmt.Sprintf("%s %s/%s", ref.Kind, op.Namespace, ref.Name))
		}
	}
	if len(op.Spec.TargetRefs) == 0 {
		p.warn("spec.targetRefs", "a default is left out: a BackendTrafficPolicy names a Gateway or a route, and the policy doesn't say which")
	}
	if len(targets) == 0 {
		return
	}
	p.object("", Object{Target: strings.Join(names, ", "), Content: map[string]any{
		"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "BackendTrafficPolicy", "metadata": map[string]any{"name": op.Name, "namespace": op.Namespace},
		"spec": map[string]any{
			"targetRefs":  targets,
			"healthCheck": map[string]any{"passive": detection, "panicThreshold": int64(s.PanicThreshold)},
			"timeout":     map[string]any{"tcp": map[string]any{"connectTimeout": durationText(connectTimeout(s))}},
		},
	}})
	p.recordOutcome("", fmt.Sprintf("became BackendTrafficPolicy %s/%s; of two for one route Envoy Gateway takes the older: where there is one for %s, write healthCheck and timeout into it", op.Namespace, op.Name, strings.Join(names, ", ")))
}

// durationText formats a duration as Envoy Gateway does, in whole numbers, which Istio parses too. Envoy truncates to milliseconds.
func durationText(d time.Duration) string {
	text := ""
	for _, unit := range []struct {
		name string
		is   time.Duration
	}{{"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if n := d / unit.is; n > 0 {
			text, d = text+fmt.Sprint(int64(n))+unit.name, d%unit.is
		}
	}
	return cmp.Or(text, "0s")
}

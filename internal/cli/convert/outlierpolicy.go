package convert

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

const (
	outlierDetection = "outlierDetection"
	outlierPolicy    = "OutlierPolicy"
	httpProxy        = "HTTPProxy"
)

// detectionFields are carried over as they are.
var detectionFields = []string{
	"consecutiveServerErrors", "interval", "baseEjectionTime", "maxEjectionTime", "splitExternalLocalOriginErrors",
	"consecutiveLocalOriginFailure", "maxEjectionPercent", "maxEjectionTimeJitter",
}

// outlierDefaults is the block in Contour's configuration file, as it was designed. The rest of that file is ignored.
var outlierDefaults = source{
	kind:    outlierPolicy,
	keyword: outlierDetection,
	recognizes: func(object map[string]any) bool {
		_, there := object[outlierDetection]
		return there && object["apiVersion"] == nil
	},
	convert: func(p *pass) {
		if spec, ok := p.outlierSpec(outlierDetection, p.document.Object[outlierDetection]); ok {
			p.policy(outlierDetection, outlierPolicy, outlier.DefaultName, ownNamespace, spec)
		}
	},
}

// outlierProxies are HTTPProxies with that design's field in their services.
var outlierProxies = source{
	kind:    outlierPolicy,
	keyword: outlierDetection,
	recognizes: func(object map[string]any) bool {
		version, _ := object["apiVersion"].(string)
		return object["kind"] == httpProxy && strings.HasPrefix(version, "projectcontour.io/")
	},
	convert: convertHTTPProxy,
}

// proxyService is a service entry of an HTTPProxy.
type proxyService struct {
	path, name string
	port       int64
	// spec of its policy; nil when it has no field.
	spec map[string]any
}

func convertHTTPProxy(p *pass) {
	name, namespace, named := p.proxyName()
	services, ok := p.proxyServices()
	if !named || !ok || !p.checkPortsAgree(services) {
		return
	}
	policies := 0
	for i, s := range services {
		sameSpec := func(other proxyService) bool { return reflect.DeepEqual(s.spec, other.spec) }
		if s.spec == nil || slices.ContainsFunc(services[:i], sameSpec) {
			continue
		}
		called := name
		if policies++; policies > 1 {
			called = fmt.Sprintf("%s-%s-%d", name, s.name, s.port)
		}
		spec := maps.Clone(s.spec)
		spec["targetRefs"] = targetsOf(name, s.spec, services[i:])
		p.policy(s.path, outlierPolicy, called, namespace, spec)
	}
	if policies == 0 {
		p.warn("", "no service has %s, so there is nothing to convert", outlierDetection)
		return
	}
	p.warn("", "remove %s from the HTTPProxy: Contour doesn't know it", outlierDetection)
}

// targetsOf are the services of a proxy with the same spec, each once.
func targetsOf(proxy string, spec map[string]any, services []proxyService) (targets []any) {
	for _, s := range services {
		target := any(map[string]any{
			"group": "projectcontour.io", "kind": httpProxy, "name": proxy, "backend": map[string]any{"name": s.name, "port": s.port},
		})
		known := slices.ContainsFunc(targets, func(t any) bool { return reflect.DeepEqual(t, target) })
		if reflect.DeepEqual(spec, s.spec) && !known {
			targets = append(targets, target)
		}
	}
	return targets
}

// proxyName returns a name that the API server would accept, short enough for the suffix of several policies.
func (p *pass) proxyName() (name, namespace string, ok bool) {
	metadata, _ := p.document.Object["metadata"].(map[string]any)
	name, namespace = textOr(metadata["name"], ""), textOr(metadata["namespace"], "")
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 || len(name) > 180 {
		p.fail("metadata.name", "must be a name of at most 180 lower-case letters, digits, - and .")
		return "", "", false
	}
	if wrong := validation.IsDNS1123Label(namespace); namespace != "" && len(wrong) > 0 {
		p.fail("metadata.namespace", "%s", wrong[0])
		return "", "", false
	}
	return name, namespace, true
}

// proxyServices are the services of routes and tcpproxy.
func (p *pass) proxyServices() (all []proxyService, ok bool) {
	ok = true
	spec, _ := p.document.Object["spec"].(map[string]any)
	add := func(path string, list any) {
		services, _ := list.([]any)
		for i, item := range services {
			at := fmt.Sprintf("%s[%d]", path, i)
			entry, _ := item.(map[string]any)
			s, read := p.proxyService(at, entry)
			all, ok = append(all, s), ok && read
		}
	}
	routes, _ := spec["routes"].([]any)
	for i, item := range routes {
		route, _ := item.(map[string]any)
		add(fmt.Sprintf("spec.routes[%d].services", i), route["services"])
	}
	proxy, _ := spec["tcpproxy"].(map[string]any)
	add("spec.tcpproxy.services", proxy["services"])
	return all, ok
}

func (p *pass) proxyService(path string, entry map[string]any) (s proxyService, ok bool) {
	s.path, s.name = path+"."+outlierDetection, textOr(entry["name"], "")
	s.port, ok = entry["port"].(int64)
	if wrong := validation.IsDNS1123Label(s.name); len(wrong) > 0 || !ok {
		p.fail(path, "must be a service with its name and port")
		return s, false
	}
	if value, there := entry[outlierDetection]; there {
		s.spec, ok = p.outlierSpec(s.path, value)
	}
	return s, ok
}

// checkPortsAgree refuses different settings for one Service's port: a policy is for a port in the whole proxy.
func (p *pass) checkPortsAgree(services []proxyService) bool {
	ok := true
	for i, s := range services {
		for _, other := range services[:i] {
			if s.name == other.name && s.port == other.port && !reflect.DeepEqual(s.spec, other.spec) {
				p.fail(s.path, "%s:%d is in %s too, with another one or none; a policy is for a Service's port in the whole proxy: write the same in both",
					s.name, s.port, strings.TrimSuffix(other.path, "."+outlierDetection))
				ok = false
				break
			}
		}
	}
	return ok
}

// outlierSpec converts a block to the fields of a policy's spec. A field without a value is ignored.
func (p *pass) outlierSpec(path string, value any) (spec map[string]any, ok bool) {
	block, isMap := value.(map[string]any)
	if !isMap {
		p.fail(path, "must be a map")
		return nil, false
	}
	p.warnUnknown(path, block, append([]string{"disabled"}, detectionFields...)...)
	spec, detection := map[string]any{}, map[string]any{}
	for _, field := range detectionFields {
		if v, hasField := block[field]; hasField && v != nil {
			detection[field] = v
		}
	}
	disabled := block["disabled"]
	if disabled != nil && disabled != false {
		spec["disabled"] = disabled
	}
	if len(detection) > 0 || spec["disabled"] == nil {
		spec[outlierDetection] = detection
	}
	return spec, true
}

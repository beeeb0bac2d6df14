package convert

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// probeConfigs is dependency-watchdog's configuration of its prober, also as it was named by later and earlier versions.
var probeConfigs = source{
	kind: "ProbeConfig",
	mark: dependents,
	recognizes: func(object map[string]any) bool {
		_, names := object[dependents]
		return names && object["apiVersion"] == nil
	},
	convert: convertProbeConfig,
}

const dependents = "dependentResourceInfos"

// proberFields are carried over, under the names that they have now.
var (
	proberFields = map[string]string{
		"internalKubeConfigSecretName": "internalKubeConfigSecretName", "externalKubeConfigSecretName": "externalKubeConfigSecretName",
		"kubeConfigSecretName": "internalKubeConfigSecretName",
		"probeInterval":        "probeInterval", "initialDelay": "initialDelay", "probeTimeout": "probeTimeout", "successThreshold": "successThreshold",
		"failureThreshold": "failureThreshold", "internalProbeFailureBackoffDuration": "internalProbeFailureBackoffDuration",
		"apiServerProbeFailureBackoffDuration": "internalProbeFailureBackoffDuration", "backoffJitterFactor": "backoffJitterFactor",
	}
	leaseFields = map[string]string{"kcmNodeMonitorGraceDuration": "monitorGraceDuration", "nodeLeaseFailureFraction": "failureFraction"}
)

func convertProbeConfig(p *place) {
	object := p.document.Object
	known := slices.Concat(sortedKeys(proberFields), sortedKeys(leaseFields), []string{dependents, "name", "namespace"})
	p.warnOfOthers("", object, known...)
	spec, ok := p.proberSpec(object)
	name, named := p.named("name", "prober", validation.IsDNS1123Subdomain)
	namespace, placed := p.named("namespace", ownNamespace, validation.IsDNS1123Label)
	if !ok || !named || !placed {
		return
	}
	p.policy("", "ProbeConfig", name, namespace, spec)
	if object["namespace"] == nil {
		p.warn("", "the prober probed every shoot with rights of its own; this config is for Autohealer's own namespace %s. Either write a "+
			"namespaceSelector that selects the namespaces it is about, or move it to its namespace and name there a serviceAccountName that "+
			"may get the two Secrets and update the scale of the dependents", ownNamespace)
	}
}

// proberSpec carries fields over, under their new names.
func (p *place) proberSpec(object map[string]any) (spec map[string]any, ok bool) {
	spec, leases, ok := map[string]any{}, map[string]any{}, true
	for _, old := range sortedKeys(proberFields) {
		value, there := object[old]
		if _, twice := object[proberFields[old]]; there && twice && old != proberFields[old] {
			p.fail(old, "%s says it already; keep one of them", proberFields[old])
			ok = false
		} else if there {
			spec[proberFields[old]] = value
		}
	}
	for _, old := range sortedKeys(leaseFields) {
		if value, there := object[old]; there {
			leases[leaseFields[old]] = value
		}
	}
	if len(leases) > 0 {
		spec["nodeLeases"] = leases
	}
	ok = p.twoSecrets(spec) && ok
	p.fitTimeout(spec)
	infos, listed := p.convertDependents(object[dependents])
	spec[dependents] = infos
	return spec, ok && listed
}

// named reads a name, which the API server must take, too.
func (p *place) named(field, fallback string, problems func(string) []string) (name string, ok bool) {
	value := p.document.Object[field]
	if value == nil || value == "" {
		return fallback, true
	}
	name, isText := value.(string)
	if !isText {
		p.fail(field, "must be a string")
		return "", false
	}
	if wrong := problems(name); len(wrong) > 0 {
		p.fail(field, "%s", wrong[0])
		return "", false
	}
	return name, true
}

// twoSecrets asks for both kubeconfigs. Later versions of the prober have but one, and look at leases by it.
func (p *place) twoSecrets(spec map[string]any) bool {
	ok := true
	for _, field := range []string{"internalKubeConfigSecretName", "externalKubeConfigSecretName"} {
		if text, isText := spec[field].(string); !isText || text == "" {
			p.fail("", "%s is missing; a ProbeConfig compares the way inside with the one that nodes take, so it needs a Secret for each", field)
			ok = false
		}
	}
	return ok
}

// fitTimeout leaves out a probeTimeout that isn't less than the interval, as the prober's own default of 30s.
func (p *place) fitTimeout(spec map[string]any) {
	timeout, err := time.ParseDuration(textOr(spec["probeTimeout"], ""))
	interval, intervalErr := time.ParseDuration(textOr(spec["probeInterval"], "10s"))
	if err == nil && intervalErr == nil && timeout >= interval {
		p.warn("probeTimeout", "%s is not less than probeInterval %s, and is left out for its default: 5s, or half of an interval shorter than 10s", timeout, interval)
		delete(spec, "probeTimeout")
	}
}

func (p *place) convertDependents(value any) (infos []any, ok bool) {
	list, isList := value.([]any)
	if !isList || len(list) == 0 {
		p.fail(dependents, "must be a list with at least one object")
		return nil, false
	}
	ok = true
	for i, item := range list {
		path := fmt.Sprintf("%s[%d]", dependents, i)
		entry, isMap := item.(map[string]any)
		if !isMap {
			p.fail(path, "must be a map with ref, scaleUp and scaleDown")
			ok = false
			continue
		}
		p.warnOfOthers(path, entry, "ref", "optional", "shouldExist", "scaleUp", "scaleDown")
		info := map[string]any{"ref": entry["ref"]}
		if optional, there := entry["optional"]; there {
			info["optional"] = optional
		} else if must, isBool := entry["shouldExist"].(bool); isBool {
			info["optional"] = !must
		}
		for _, way := range []string{"scaleUp", "scaleDown"} {
			info[way] = p.convertScale(path+"."+way, entry[way])
		}
		infos = append(infos, info)
	}
	return infos, ok
}

// convertScale leaves out replicas: what is scaled down gets back what it had.
func (p *place) convertScale(path string, value any) any {
	entry, isMap := value.(map[string]any)
	if !isMap {
		return value // the schema says what is wrong
	}
	p.warnOfOthers(path, entry, "level", "initialDelay", "timeout", "replicas")
	scale := map[string]any{}
	for _, field := range []string{"level", "initialDelay", "timeout"} {
		if v, there := entry[field]; there {
			scale[field] = v
		}
	}
	if _, there := entry["replicas"]; there {
		p.warn(path+".replicas", "is left out: what is scaled down goes to 0, and gets back the number that it had")
	}
	return scale
}

func textOr(value any, fallback string) string {
	if text, isText := value.(string); isText && text != "" {
		return text
	}
	return fallback
}

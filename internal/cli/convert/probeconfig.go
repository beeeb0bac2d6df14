package convert

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// probeConfigs is dependency-watchdog's configuration of its prober, with the field names of all its versions.
var probeConfigs = source{
	kind:    "ProbeConfig",
	keyword: dependents,
	recognizes: func(object map[string]any) bool {
		return hasWatchdogField(object, dependents, oneSecret, internalSecret, externalSecret)
	},
	convert: convertProbeConfig,
}

const (
	dependents     = "dependentResourceInfos"
	oneSecret      = "kubeConfigSecretName"
	internalSecret = "internalKubeConfigSecretName"
	externalSecret = "externalKubeConfigSecretName"
	grace          = "kcmNodeMonitorGraceDuration"
	fraction       = "nodeLeaseFailureFraction"
)

// proberFields are copied. Of two names for one field the older one, or that of another version, comes second.
var proberFields = []struct{ old, path string }{
	{internalSecret, "spec.internalKubeConfigSecretName"}, {oneSecret, "spec.internalKubeConfigSecretName"},
	{externalSecret, "spec.externalKubeConfigSecretName"},
	{"probeInterval", "spec.probeInterval"}, {"initialDelay", "spec.initialDelay"}, {"probeTimeout", "spec.probeTimeout"},
	{"successThreshold", "spec.successThreshold"}, {"failureThreshold", "spec.failureThreshold"},
	{"internalProbeFailureBackoffDuration", "spec.internalProbeFailureBackoffDuration"},
	{"apiServerProbeFailureBackoffDuration", "spec.internalProbeFailureBackoffDuration"},
	{"backoffJitterFactor", "spec.backoffJitterFactor"},
}

func convertProbeConfig(p *pass) {
	known := []string{dependents, "name", "namespace", grace, fraction}
	for _, field := range proberFields {
		known = append(known, field.old)
	}
	f := p.fields("", p.document.Object, known...)
	spec, metadata := map[string]any{}, map[string]any{"name": "prober", "namespace": ownNamespace}
	f.readLeases(spec)
	f.adjustIntervals()
	for _, field := range proberFields {
		f.copyTo(field.old, spec, field.path)
	}
	f.requireBothSecrets(spec)
	spec[dependents] = f.convertDependents()
	f.copyName("name", metadata, validation.IsDNS1123Subdomain)
	f.copyName("namespace", metadata, validation.IsDNS1123Label)
	if p.result.Failed() { // then nothing is written at all
		return
	}
	p.policy("", "ProbeConfig", metadata["name"].(string), metadata["namespace"].(string), spec)
	if f.values["namespace"] == nil {
		p.warn("", "the prober probed every shoot with rights of its own; this config is for Autohealer's own namespace %s. Either write a "+
			"namespaceSelector that selects the namespaces it is about, or move it to its namespace and name there a serviceAccountName that "+
			"may get the two Secrets and update the scale of the dependents", ownNamespace)
	}
}

// copyName copies a name, which the API server must accept.
func (f *fields) copyName(field string, metadata map[string]any, problems func(string) []string) {
	value := f.values[field]
	if value == nil || value == "" {
		return
	}
	name, isText := value.(string)
	if !isText {
		f.p.fail(f.pathOf(field), "must be a string")
		return
	}
	if wrong := problems(name); len(wrong) > 0 {
		f.p.fail(f.pathOf(field), "%s", wrong[0])
		return
	}
	delete(metadata, field)
	f.copyTo(field, metadata, "metadata."+field)
}

// usesLeasesOnly says whether this is for a prober with one kubeconfig, which checks only the nodes' leases.
func (f *fields) usesLeasesOnly() bool {
	return f.values[oneSecret] != nil && f.values[externalSecret] == nil
}

// readLeases copies the fields for leases, with that prober's defaults, since it always checked leases.
func (f *fields) readLeases(spec map[string]any) {
	if !f.usesLeasesOnly() && f.values[grace] == nil && f.values[fraction] == nil {
		return
	}
	f.setDefault(grace, "40s")
	f.setDefault(fraction, 0.6)
	leases := map[string]any{}
	f.copyTo(grace, leases, "spec.nodeLeases.monitorGraceDuration")
	f.copyTo(fraction, leases, "spec.nodeLeases.failureFraction")
	spec["nodeLeases"] = leases
}

// adjustIntervals changes what a ProbeConfig doesn't allow: a probeInterval that is too long for its leases, and a probeTimeout that isn't
// less than probeInterval, as the prober's own default of 30s.
func (f *fields) adjustIntervals() {
	interval, ok := durationOr(f.values["probeInterval"], "10s")
	most, leases := durationOr(f.values[grace], "")
	if most /= 4; ok && leases && most > 0 && interval > most {
		f.p.warn(f.pathOf("probeInterval"), "%s is more than a quarter of nodeLeases.monitorGraceDuration, and is %s now: leases count as expired at "+
			"three quarters, and the last one is all the time there is", interval, most)
		interval, f.values["probeInterval"] = most, most.String()
	}
	if timeout, there := durationOr(f.values["probeTimeout"], ""); ok && there && timeout >= interval {
		f.p.warn(f.pathOf("probeTimeout"), "%s is not less than probeInterval %s, and is left out for its default: 5s, or half of an interval shorter than 10s", timeout, interval)
		delete(f.values, "probeTimeout")
	}
}

// requireBothSecrets requires both kubeconfigs, and sets a name for the second where the prober had only one.
func (f *fields) requireBothSecrets(spec map[string]any) {
	const why = "a ProbeConfig compares the way inside with the one that nodes take, so it needs a Secret for each"
	if f.usesLeasesOnly() {
		external := fmt.Sprintf("%v-external", f.values[oneSecret])
		spec[externalSecret], spec["annotateMeltdownProtection"] = external, true // such a prober sets the annotation
		f.p.warn(f.pathOf(oneSecret), "the prober had no kubeconfig for the way that nodes take; %s. Make %s, beside the other: the same kubeconfig, "+
			"with the address that nodes use as its server", why, external)
	}
	for _, field := range []string{internalSecret, externalSecret} {
		if strings.TrimSpace(textOr(spec[field], "")) == "" {
			f.p.fail("", "%s is missing; %s", field, why)
		}
	}
}

func (f *fields) convertDependents() (infos []any) {
	list, isList := f.values[dependents].([]any)
	if !isList || len(list) == 0 {
		f.p.fail(f.pathOf(dependents), "must be a list with at least one object")
	}
	for i, item := range list {
		path := fmt.Sprintf("%s[%d]", f.pathOf(dependents), i)
		entry, isMap := item.(map[string]any)
		if !isMap {
			f.p.fail(path, "must be a map with ref, scaleUp and scaleDown")
			continue
		}
		infos = append(infos, f.p.dependent(path, fmt.Sprintf("spec.%s[%d]", dependents, i), entry))
	}
	return infos
}

func (p *pass) dependent(path, to string, entry map[string]any) map[string]any {
	f := p.fields(path, entry, "ref", "optional", "shouldExist", "scaleUp", "scaleDown")
	info := map[string]any{}
	f.copyMap("ref", info, to, "apiVersion", "kind", "name")
	f.copyMap("scaleUp", info, to, "level", "initialDelay", "timeout")
	f.copyMap("scaleDown", info, to, "level", "initialDelay", "timeout")
	if must, isBool := f.values["shouldExist"].(bool); isBool { // what it was called before
		f.values["shouldExist"] = !must
	}
	f.copyTo("optional", info, to+".optional")
	f.copyTo("shouldExist", info, to+".optional")
	return info
}

// copyMap copies a map's fields except for replicas: what is scaled down gets back the number that it had.
func (f *fields) copyMap(name string, to map[string]any, path string, names ...string) {
	entry, isMap := f.values[name].(map[string]any)
	if !isMap {
		f.p.fail(f.pathOf(name), "must be a map with %s", names[0])
		return
	}
	inner, became := f.p.fields(f.pathOf(name), entry, append(names, "replicas")...), map[string]any{}
	if names[0] == "level" {
		inner.setDefault("level", int64(0))
	}
	for _, field := range names {
		inner.copyTo(field, became, path+"."+name+"."+field)
	}
	if inner.keys["replicas"] != "" {
		f.p.warn(inner.pathOf("replicas"), "is left out: what is scaled down goes to 0, and gets back the number that it had")
	}
	to[name] = became
}

// durationOr reads a duration, or the one that it is by default.
func durationOr(value any, fallback string) (d time.Duration, ok bool) {
	d, err := time.ParseDuration(textOr(value, fallback))
	return d, err == nil
}

func textOr(value any, fallback string) string {
	if text, isText := value.(string); isText && text != "" {
		return text
	}
	return fallback
}

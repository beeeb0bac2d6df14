package convert

import "fmt"

// weederConfigs is dependency-watchdog's configuration of its weeder: a WeederConfig's spec as it is, but for its name and
// namespace.
var weederConfigs = source{
	kind:       "WeederConfig",
	mark:       services,
	recognizes: func(object map[string]any) bool { return watchdogHas(object, services) },
	convert:    convertWeederConfig,
}

const services = "servicesAndDependantSelectors"

func convertWeederConfig(p *place) {
	f := p.fields("", p.document.Object, "watchDuration", services)
	all, isMap := f.values[services].(map[string]any)
	if !isMap || len(all) == 0 {
		p.fail(f.at(services), "must be a map with at least one Service")
		return
	}
	spec, converted := map[string]any{}, map[string]any{}
	f.becomes("watchDuration", spec, "spec.watchDuration")
	for _, name := range sortedKeys(all) {
		path := fmt.Sprintf("%s[%s]", f.at(services), name)
		entry, isMap := all[name].(map[string]any)
		if !isMap {
			p.fail(path, "must be a map with podSelectors")
			continue
		}
		service, selectors := p.fields(path, entry, "podSelectors"), map[string]any{}
		if _, isList := service.values["podSelectors"].([]any); !isList {
			p.fail(service.at("podSelectors"), "must be a list of label selectors")
			continue
		}
		service.becomes("podSelectors", selectors, fmt.Sprintf("spec.%s[%s].podSelectors", services, name))
		converted[name] = selectors
	}
	spec[services] = converted
	if p.result.Failed() { // then nothing is written at all
		return
	}
	p.policy("", "WeederConfig", "weeder", ownNamespace, spec)
	p.warn("", "the weeder acted on every pod of its namespace with rights of its own; this config is for Autohealer's own namespace %s. "+
		"Either write a namespaceSelector that selects the namespaces it is about, or move it to its namespace and name there a "+
		"serviceAccountName that may delete pods", ownNamespace)
}

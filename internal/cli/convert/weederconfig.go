package convert

import (
	"fmt"
)

// weederConfigs is dependency-watchdog's configuration of its weeder: a WeederConfig's spec as it is, but for its name and
// namespace.
var weederConfigs = source{
	kind: "WeederConfig",
	mark: services,
	recognizes: func(object map[string]any) bool {
		_, names := object[services]
		return names && object["apiVersion"] == nil
	},
	convert: convertWeederConfig,
}

const services = "servicesAndDependantSelectors"

func convertWeederConfig(p *place) {
	object := p.document.Object
	p.warnOfOthers("", object, "watchDuration", services)
	all, isMap := object[services].(map[string]any)
	if !isMap || len(all) == 0 {
		p.fail(services, "must be a map with at least one Service")
		return
	}
	spec, ok := map[string]any{}, true
	if duration, there := object["watchDuration"]; there {
		spec["watchDuration"] = duration
	}
	converted := map[string]any{}
	for _, name := range sortedKeys(all) {
		path := fmt.Sprintf("%s[%s]", services, name)
		entry, isMap := all[name].(map[string]any)
		if !isMap {
			p.fail(path, "must be a map with podSelectors")
			ok = false
			continue
		}
		if _, isList := entry["podSelectors"].([]any); !isList {
			p.fail(path+".podSelectors", "must be a list of label selectors")
			ok = false
			continue
		}
		p.warnOfOthers(path, entry, "podSelectors")
		converted[name] = map[string]any{"podSelectors": entry["podSelectors"]}
	}
	spec[services] = converted
	if !ok {
		return
	}
	p.policy("", "WeederConfig", "weeder", ownNamespace, spec)
	p.warn("", "the weeder acted on every pod of its namespace with rights of its own; this config is for Autohealer's own namespace %s. "+
		"Either write a namespaceSelector that selects the namespaces it is about, or move it to its namespace and name there a "+
		"serviceAccountName that may delete pods", ownNamespace)
}

// ownNamespace is where Autohealer is installed.
const ownNamespace = "autohealer-system"

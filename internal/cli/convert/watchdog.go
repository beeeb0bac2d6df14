package convert

import (
	"fmt"
	"slices"
	"strings"
)

// ownNamespace is where Autohealer is installed.
const ownNamespace = "autohealer-system"

// hasWatchdogField says whether a document has one of these fields of dependency-watchdog's configuration.
func hasWatchdogField(object map[string]any, names ...string) bool {
	return object["apiVersion"] == nil && slices.ContainsFunc(sortedKeys(object), func(key string) bool { return fieldOf(key, names) != "" })
}

// fieldOf is the name of the field that a key is for, "" where it is for none: dependency-watchdog takes keys in any case.
func fieldOf(key string, names []string) string {
	if i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, key) }); i >= 0 {
		return names[i]
	}
	return ""
}

// fields are those of a map in dependency-watchdog's configuration, by their proper names. What is null isn't there.
type fields struct {
	p      *pass
	path   string
	values map[string]any
	// keys are the names as they are written.
	keys map[string]string
}

// fields reads a map of which these fields are known, and warns of the others.
func (p *pass) fields(path string, object map[string]any, names ...string) *fields {
	f := &fields{p: p, path: path, values: map[string]any{}, keys: map[string]string{}}
	for _, key := range sortedKeys(object) {
		name := fieldOf(key, names)
		switch {
		case name == "":
			p.warn(strings.TrimPrefix(path+"."+key, "."), "has no counterpart, and is left out")
		case f.keys[name] != "":
			p.fail(f.pathOf(name), "%s and %s are one field; remove one of them", f.keys[name], key)
		default:
			f.keys[name] = key
			if object[key] != nil {
				f.values[name] = object[key]
			}
		}
	}
	return f
}

// pathOf is a field's path.
func (f *fields) pathOf(name string) string {
	if key := f.keys[name]; key != "" {
		name = key
	}
	return strings.TrimPrefix(f.path+"."+name, ".")
}

// setDefault sets a missing field to dependency-watchdog's default.
func (f *fields) setDefault(name string, value any) {
	if f.values[name] == nil {
		f.values[name] = value
		delete(f.keys, name)
	}
}

// copyTo copies a field to this path of the policy, whose last element is its key in a map, and records that.
func (f *fields) copyTo(name string, to map[string]any, path string) {
	value, there := f.values[name]
	if !there {
		return
	}
	key := path[strings.LastIndexByte(path, '.')+1:]
	if _, twice := to[key]; twice {
		f.p.fail(f.pathOf(name), "%s says it already; keep one of them", key)
		return
	}
	to[key] = value
	message := "becomes " + path
	if f.keys[name] == "" {
		message = "isn't there, and its default " + message
	}
	switch value.(type) {
	case map[string]any, []any:
	default:
		message += fmt.Sprintf(": %v", value)
	}
	at := f.pathOf(name)
	f.p.recordOutcome(at, at+": "+message)
}

// weederConfigs is dependency-watchdog's configuration of its weeder: a WeederConfig's spec as it is, but for its name and
// namespace.
var weederConfigs = source{
	kind:       "WeederConfig",
	keyword:    services,
	recognizes: func(object map[string]any) bool { return hasWatchdogField(object, services) },
	convert:    convertWeederConfig,
}

const services = "servicesAndDependantSelectors"

func convertWeederConfig(p *pass) {
	f := p.fields("", p.document.Object, "watchDuration", services)
	all, isMap := f.values[services].(map[string]any)
	if !isMap || len(all) == 0 {
		p.fail(f.pathOf(services), "must be a map with at least one Service")
		return
	}
	spec, converted := map[string]any{}, map[string]any{}
	f.copyTo("watchDuration", spec, "spec.watchDuration")
	for _, name := range sortedKeys(all) {
		path := fmt.Sprintf("%s[%s]", f.pathOf(services), name)
		entry, isMap := all[name].(map[string]any)
		if !isMap {
			p.fail(path, "must be a map with podSelectors")
			continue
		}
		service, selectors := p.fields(path, entry, "podSelectors"), map[string]any{}
		if _, isList := service.values["podSelectors"].([]any); !isList {
			p.fail(service.pathOf("podSelectors"), "must be a list of label selectors")
			continue
		}
		service.copyTo("podSelectors", selectors, fmt.Sprintf("spec.%s[%s].podSelectors", services, name))
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

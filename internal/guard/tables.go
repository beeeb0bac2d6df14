package guard

import (
	"slices"
	"strings"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

// either stands for the healthy status of a type that one Guardrail declares to be healthy at True and another at False.
const either = "either"

// conditionTables are the planner's own, so that rules and planner can't disagree. What Guardrails declare makes healthy
// longer.
func conditionTables(w world) []table {
	healthy := map[string]string{}
	for conditionType, statuses := range w.policy.ConditionTypes {
		healthy[conditionType] = either
		if len(statuses) == 1 {
			healthy[conditionType] = strings.ToLower(string(statuses[0]))
		}
	}
	var obsolete, sticky, logMonitors []string
	for _, k := range condition.KnownTypes() {
		healthy[k.Type] = strings.ToLower(string(k.Healthy))
		if k.Obsolete {
			obsolete = append(obsolete, k.Type)
		}
		if k.Sticky {
			sticky = append(sticky, k.Type)
		}
		if k.LogMonitor {
			logMonitors = append(logMonitors, k.Type)
		}
	}
	return []table{
		{name: "healthy", pairs: healthy, grows: true},
		{name: "obsolete", list: obsolete},
		{name: "sticky", list: sticky},
		{name: "logMonitors", list: logMonitors},
		{name: "reservedDomains", list: condition.ReservedDomains},
		{name: "reservedKeys", list: condition.ReservedKeys},
	}
}

// reservedNames are no names of Guardrails: their rules' ids would look like built-in ones. Kinds that are still to come
// are reserved already.
func reservedNames(w world) []string {
	names := []string{"guard", "healthcheckregistration", "outlierpolicy", "probeconfig", "weederconfig"}
	for kind := range w.namespaced {
		names = append(names, strings.ToLower(kind))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// kindTable has those of the kinds that are judged, with their scopes.
func kindTable(name string, w world, of func(kind string) bool) table {
	t := table{name: name, pairs: map[string]string{}}
	for kind, namespaced := range w.namespaced {
		if !of(kind) {
			continue
		}
		t.pairs[kind] = string(extv1.ClusterScoped)
		if namespaced {
			t.pairs[kind] = string(extv1.NamespaceScoped)
		}
	}
	return t
}

func every(string) bool { return true }

func guardrailTables(w world) []table {
	builtin := table{name: "builtinTypes"}
	for _, k := range condition.KnownTypes() {
		builtin.list = append(builtin.list, k.Type)
	}
	return []table{kindTable("kinds", w, every), {name: "reservedNames", list: reservedNames(w)}, builtin}
}

func exceptionTables(w world) []table { return []table{kindTable("policies", w, acts)} }

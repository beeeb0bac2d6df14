package guard

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

// As many as the schemas allow.
const (
	mostConditions = 16
	mostServices   = 64
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
		{name: "actedOnKeys", pairs: condition.ActedOnKeys()},
		{name: "sharedKeys", pairs: condition.SharedKeys()},
		orderTable(mostConditions),
	}
}

// reservedNames are no names of Guardrails: their rules' ids would look like built-in ones.
func reservedNames(w world) []string {
	names := []string{"guard"}
	for kind := range w.namespaced {
		names = append(names, strings.ToLower(kind))
	}
	slices.Sort(names)
	return names
}

// kindsOf are the kinds that are judged and for which this holds, in their order.
func kindsOf(w world, of func(kind string) bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(w.namespaced)), func(kind string) bool { return !of(kind) })
}

func guardrailTables(w world) []table {
	builtin := table{name: "builtinTypes"}
	for _, k := range condition.KnownTypes() {
		builtin.list = append(builtin.list, k.Type)
	}
	return []table{{name: "kinds", list: kindsOf(w, func(string) bool { return true })}, {name: "reservedNames", list: reservedNames(w)}, builtin}
}

func exceptionTables(w world) []table {
	return []table{
		{name: "policies", list: kindsOf(w, acts)},
		{name: "namespaced", list: kindsOf(w, func(kind string) bool { return w.namespaced[kind] })},
	}
}

// orderTable has the ranks that a map's keys can have, as texts: the keys of the map by which a rule puts them in order. Kubernetes
// has had sort() since 1.34 only.
func orderTable(most int) table {
	t := table{name: "order"}
	for i := range most {
		t.list = append(t.list, strconv.Itoa(i))
	}
	return t
}

func weederTables(world) []table { return []table{orderTable(mostServices)} }

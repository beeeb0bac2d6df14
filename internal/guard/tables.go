package guard

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// As many as the schemas allow.
const (
	maxConditions = 16
	maxServices   = 64
)

// either stands for the healthy status of a type that one Guardrail declares to be healthy at True and another at False.
const either = "either"

// conditionTables are the planner's own, so that rules and planner can't disagree. What Guardrails declare makes healthy
// longer.
func conditionTables(policy guardrail.Policy) []table {
	healthy := map[string]string{}
	for conditionType, statuses := range policy.ConditionTypes {
		healthy[conditionType] = either
		if len(statuses) == 1 {
			healthy[conditionType] = strings.ToLower(string(statuses[0]))
		}
	}
	var obsolete, sticky, logMonitors, slowHeartbeats []string
	for _, k := range ecosystem.Types() {
		healthy[k.Type] = strings.ToLower(string(k.Healthy))
		if k.Obsolete {
			obsolete = append(obsolete, k.Type)
		}
		if k.Sticky {
			sticky = append(sticky, k.Type)
		}
		if k.SlowHeartbeat() {
			slowHeartbeats = append(slowHeartbeats, k.Type)
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
		{name: "slowHeartbeats", list: slowHeartbeats},
		{name: "actedOnKeys", pairs: ecosystem.ActedOnKeys()},
		{name: "sharedKeys", pairs: ecosystem.SharedKeys()},
		orderTable(maxConditions),
	}
}

// kindsOf are the names of the kinds for which this holds, sorted.
func kindsOf(holds func(*kinds.Kind) bool) []string {
	all := slices.DeleteFunc(slices.Clone(kinds.All), func(k *kinds.Kind) bool { return !holds(k) })
	return slices.Sorted(slices.Values(kinds.Names(all)))
}

func guardrailTables(guardrail.Policy) []table {
	all := kindsOf(func(*kinds.Kind) bool { return true })
	reserved := []string{"guard"} // rules' ids would look like built-in ones
	for _, kind := range all {
		reserved = append(reserved, strings.ToLower(kind))
	}
	slices.Sort(reserved)
	return []table{{name: "kinds", list: all}, {name: "reservedNames", list: reserved}, {name: "builtinTypes", list: ecosystem.TypeNames()}}
}

func exceptionTables(guardrail.Policy) []table {
	return []table{
		{name: "policies", list: kindsOf(func(k *kinds.Kind) bool { return !k.RulesOver })},
		{name: "namespaced", list: kindsOf(func(k *kinds.Kind) bool { return k.Namespaced })},
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

func weederTables(guardrail.Policy) []table { return []table{orderTable(maxServices)} }

// table is a variable whose value is known beforehand. Rules get the value as it is now; the generated policy carries the
// built-in one as a literal.
type table struct {
	name string
	// list or pairs, never both.
	list  []string
	pairs map[string]string
	// grows: Guardrails make it longer.
	grows bool
}

// grownLength bounds a text in a table that Guardrails make longer, as a condition type is bounded; grownItems bounds what
// the cost estimate takes for its size. What evaluation really costs is counted, too.
const (
	grownLength = 316
	grownItems  = 256
)

// variable declares the table with its literal.
func (t table) variable() Variable {
	v := Variable{Name: t.name, MaxItems: int64(len(t.pairs) + len(t.list)), Generated: true}
	for _, text := range slices.Concat(t.list, slices.Collect(maps.Keys(t.pairs)), slices.Collect(maps.Values(t.pairs))) {
		v.MaxLength = max(v.MaxLength, int64(len(text)))
	}
	if t.grows {
		v.MaxItems, v.MaxLength = grownItems, grownLength
	}
	var items []string
	if t.pairs != nil {
		v.Type = typeMap
		for _, key := range slices.Sorted(maps.Keys(t.pairs)) {
			items = append(items, fmt.Sprintf("'%s': '%s'", key, t.pairs[key]))
		}
		v.Expression = "{" + strings.Join(items, ", ") + "}"
		return v
	}
	v.Type = typeList
	for _, text := range t.list {
		items = append(items, "'"+text+"'")
	}
	v.Expression = "[" + strings.Join(items, ", ") + "]"
	return v
}

// value is the table for CEL.
func (t table) value() ref.Val {
	if t.pairs != nil {
		return types.NewStringStringMap(types.DefaultTypeAdapter, t.pairs)
	}
	values := make([]ref.Val, len(t.list))
	for i, text := range t.list {
		values[i] = types.String(text)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, values)
}

package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

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

package guard

import (
	"fmt"
	"strings"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

// conditionTables are tables that the planner has too: written out as CEL literals, rules and planner can't disagree.
func conditionTables() []Variable {
	var healthy, obsolete, sticky, logMonitors []string
	for _, k := range condition.KnownTypes() {
		healthy = append(healthy, fmt.Sprintf("'%s': '%s'", k.Type, strings.ToLower(string(k.Healthy))))
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
	return []Variable{
		{
			Name: "healthy", Type: "map(string, string)", MaxItems: int64(len(healthy)), MaxLength: 40,
			Expression: "{" + strings.Join(healthy, ", ") + "}",
		},
		listVariable("obsolete", obsolete),
		listVariable("sticky", sticky),
		listVariable("logMonitors", logMonitors),
		listVariable("reservedDomains", condition.ReservedDomains),
		listVariable("reservedKeys", condition.ReservedKeys),
	}
}

func listVariable(name string, texts []string) Variable {
	return Variable{
		Name: name, Type: "list(string)", MaxItems: int64(len(texts)), MaxLength: 40,
		Expression: "['" + strings.Join(texts, "', '") + "']",
	}
}

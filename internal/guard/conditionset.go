package guard

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

const kindConditionSet = "ConditionSet"

// generatedVariables are tables that the planner has too: written out as CEL literals, rules and planner can't disagree.
func generatedVariables(kind string) []Variable {
	if kind != kindConditionSet {
		return nil
	}
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

// preview asks the planner what an object would do now.
func preview(kind string, object map[string]any, facts Facts, limits limit.Limits, now time.Time) (map[string]any, error) {
	if kind != kindConditionSet {
		return nil, fmt.Errorf("kind %s has no plan", kind)
	}
	set := &v1alpha1.ConditionSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, set); err != nil {
		return nil, fmt.Errorf("read ConditionSet: %w", err)
	}
	return planValue(facts.PreviewConditionSet(set, limits, now)), nil
}

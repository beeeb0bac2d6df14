package guard

import (
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// The kinds that bring more than a CRD and a catalogue.
const (
	kindConditionSet       = "ConditionSet"
	kindGuardrail          = "Guardrail"
	kindGuardrailException = "GuardrailException"
)

// kindInfo is what a kind brings to the engine beside its CRD and its catalogue. A kind without one has rules over the
// object alone.
type kindInfo struct {
	// plan is the type of what its planner says; nil when it has none.
	plan reflect.Type
	// tables are lists and maps that rules read as variables.
	tables []Variable
}

func builtinKinds() map[string]kindInfo {
	return map[string]kindInfo{
		kindConditionSet: {plan: reflect.TypeFor[condition.Preview](), tables: conditionTables()},
	}
}

// Planner asks what an object would do if it were in force now.
type Planner struct {
	plan reflect.Type
	ask  func(object map[string]any, limits limit.Limits, now time.Time) (any, error)
}

// PlannerOf makes a Planner of a function over a kind's Go type. An object that can't be read as one gives an error, and
// so do the rules over its plan.
func PlannerOf[T, P any](ask func(object *T, limits limit.Limits, now time.Time) P) Planner {
	return Planner{
		plan: reflect.TypeFor[P](),
		ask: func(content map[string]any, limits limit.Limits, now time.Time) (any, error) {
			object := new(T)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, object); err != nil {
				return nil, fmt.Errorf("read %T: %w", object, err)
			}
			return ask(object, limits, now), nil
		},
	}
}

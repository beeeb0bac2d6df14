package guard

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/domain/weed"
)

// The kinds that bring more than a CRD and a catalogue.
const (
	kindConditionSet       = "ConditionSet"
	kindWeederConfig       = "WeederConfig"
	kindProbeConfig        = "ProbeConfig"
	kindOutlierPolicy      = "OutlierPolicy"
	kindRegistration       = "HealthCheckRegistration"
	kindGuardrail          = "Guardrail"
	kindGuardrailException = "GuardrailException"
)

// kindInfo is what a kind brings to the engine beside its CRD and its catalogue. A kind without one has rules over the
// object alone.
type kindInfo struct {
	// live is the type of the part of plan that asks what the cluster is like; nil when there is none.
	live reflect.Type
	// known is the type of the part that follows from the object and the rules in force: rules over it need no facts, and
	// hold at run time.
	known reflect.Type
	// askLive and askKnown are for kinds whose planner is the engine itself. Others' planners come with the options.
	askLive, askKnown func(*evaluation) (any, error)
	// about are the kinds whose stored objects askLive looks at.
	about func(object judged) []string
	// tables are lists and maps that rules read as variables.
	tables func(world) []table
}

// world is what tables are made from.
type world struct {
	// namespaced says of each kind that is judged whether its objects have namespaces.
	namespaced map[string]bool
	policy     guardrail.Policy
}

func infoOf(kind string) kindInfo {
	switch kind {
	case kindConditionSet:
		return kindInfo{known: reflect.TypeFor[condition.Terms](), askKnown: termsOfSet, live: reflect.TypeFor[condition.Forecast](), tables: conditionTables}
	case kindWeederConfig:
		return kindInfo{known: reflect.TypeFor[weed.Terms](), askKnown: termsOfWeeder, live: reflect.TypeFor[weed.Forecast](), tables: weederTables}
	case kindProbeConfig:
		return kindInfo{known: reflect.TypeFor[probe.Terms](), askKnown: termsOfProber, live: reflect.TypeFor[probe.Forecast]()}
	case kindOutlierPolicy:
		return kindInfo{live: reflect.TypeFor[outlier.Forecast]()}
	case kindRegistration:
		return kindInfo{known: reflect.TypeFor[registration.Terms](), askKnown: termsOfRegistration, live: reflect.TypeFor[registration.Forecast]()}
	case kindGuardrail:
		return kindInfo{
			known: reflect.TypeFor[guardrail.Terms](), askKnown: termsOfGuardrail,
			live: reflect.TypeFor[guardrail.Forecast](), askLive: forecastRefusals,
			about: ruledKinds, tables: guardrailTables,
		}
	case kindGuardrailException:
		return kindInfo{
			known: reflect.TypeFor[guardrail.ExceptionTerms](), askKnown: termsOfException,
			live: reflect.TypeFor[guardrail.ExceptionForecast](), askLive: forecastException,
			about: targetKind, tables: exceptionTables,
		}
	}
	return kindInfo{}
}

// Planner asks what an object would do if it were in force now.
type Planner struct {
	plan   reflect.Type
	ask    func(ctx context.Context, object judged, limits limit.Limits, now time.Time) (any, error)
	synced func() bool
}

// When gives a Planner that is asked while this holds, whether or not the facts are complete: what it looks at may be
// known before or after all else.
func (p Planner) When(synced func() bool) Planner {
	p.synced = synced
	return p
}

// PlannerOf makes a Planner of a function over a kind's Go type. An object that can't be read as one gives an error, and
// so do the rules over its plan.
func PlannerOf[T, P any](ask func(object *T, limits limit.Limits, now time.Time) P) Planner {
	return PlannerThatReads(func(_ context.Context, object *T, limits limit.Limits, now time.Time) (P, error) {
		return ask(object, limits, now), nil
	})
}

// ErrNotKnown is the error of a Planner that doesn't know what the object is about; rules over its plan count as rules
// without facts then. After any other error they count as rules that can't be evaluated.
var ErrNotKnown = errors.New("what is known of the cluster doesn't cover this object")

// PlannerThatReads makes a Planner of a function that may have to read single objects from the API server, within ctx.
func PlannerThatReads[T, P any](ask func(ctx context.Context, object *T, limits limit.Limits, now time.Time) (P, error)) Planner {
	return Planner{
		plan: reflect.TypeFor[P](),
		ask: func(ctx context.Context, judged judged, limits limit.Limits, now time.Time) (any, error) {
			object, err := read[T](judged)
			if err != nil {
				return nil, err
			}
			return ask(ctx, object, limits, now)
		},
	}
}

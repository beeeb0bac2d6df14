package guard

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"

	decl "k8s.io/apiserver/pkg/cel"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// The kinds that the engine itself knows: their rules are about rules.
const (
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
	known    reflect.Type
	askKnown func(*evaluation) (any, error)
	// askLive is for kinds whose planner is the engine itself. Others' planners come with the options.
	askLive func(*evaluation) (any, error)
	// about are the kinds whose stored objects askLive looks at.
	about func(object judged) []string
	// tables are lists and maps that rules read as variables.
	tables func(guardrail.Policy) []table
}

func infoOf(name string) kindInfo {
	info := map[string]kindInfo{
		"ConditionSet":         {tables: conditionTables},
		"WeederConfig":         {tables: weederTables},
		kindGuardrail:          {askKnown: termsOfGuardrail, askLive: forecastRefusals, about: ruledKinds, tables: guardrailTables},
		kindGuardrailException: {askKnown: termsOfException, askLive: forecastException, about: targetKind, tables: exceptionTables},
	}[name]
	k := kinds.Named(name)
	if k == nil {
		return info
	}
	info.live = k.Forecast
	if k.Terms != nil {
		info.known = k.Terms.Type
	}
	if k.Terms != nil && info.askKnown == nil {
		info.askKnown = termsOf(k)
	}
	return info
}

// termsOf reads what an object says by itself, and what an update changes of it.
func termsOf(k *kinds.Kind) func(*evaluation) (any, error) {
	return func(e *evaluation) (any, error) {
		is, old := e.object.typed, e.oldObject.typed
		if reflect.TypeOf(is) != reflect.TypeOf(k.Object) {
			return nil, fmt.Errorf("it is no %s", k.Name())
		}
		if e.oldObject.content != nil && reflect.TypeOf(old) != reflect.TypeOf(k.Object) {
			old = k.New() // which can't be read, either
		}
		return k.Terms.Of(is, old, kinds.Setting{Requested: e.request != nil, OwnNamespace: e.guard.opts.OwnNamespace}), nil
	}
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

// Facts is what is known of the cluster, kept by informers: nothing is listed while a request waits.
type Facts interface {
	// Synced says whether every informer behind the facts has synced.
	Synced() bool
	// Age is the time since the facts were last known to be current.
	Age(now time.Time) time.Duration
	// Nodes counts those of which limits take a share: neither control plane nor being deleted.
	Nodes() int
}

// Stored finds stored objects of our own kinds in caches.
type Stored interface {
	// Synced says whether the cache of a kind is filled.
	Synced(ctx context.Context, kind string) bool
	// Get gives an object, nil when there is none.
	Get(ctx context.Context, kind, namespace, name string) (client.Object, error)
	// All are the objects of a kind, in the order of their names, so that equal questions get equal answers. They are the cache's own: nobody may change them.
	All(ctx context.Context, kind string) (iter.Seq[client.Object], error)
}

// factsType declares what rules see as facts.
func factsType() *decl.DeclType {
	return declare("Facts", map[string]*decl.DeclType{"synced": decl.BoolType, "ageSeconds": decl.IntType, "nodes": decl.IntType})
}

// declare makes a type of which each field is there.
func declare(name string, types map[string]*decl.DeclType) *decl.DeclType {
	fields := map[string]*decl.DeclField{}
	for field, t := range types {
		fields[field] = decl.NewDeclField(field, t, true, nil, nil)
	}
	return decl.NewObjectType(name, fields)
}

func stringType(length int64) *decl.DeclType {
	t := *decl.StringType
	t.MaxElements = length
	return &t
}

// limitsType declares what rules see as limits: those in force, Guardrails' included. A cap is a share and a number, of
// which both hold; one that nobody set is 100 percent, and 2147483647 nodes.
func limitsType() *decl.DeclType {
	capType := declare("Cap", map[string]*decl.DeclType{"percent": decl.IntType, "nodes": decl.IntType})
	return declare("Limits", map[string]*decl.DeclType{
		"maxTaintedNodes": capType, "maxEvictingNodes": capType, "maxScaledDownTargets": capType, "maxTargetsFailingTogether": capType,
		"maxPodDeletionsPerMinute": decl.IntType, "breakerPercent": decl.IntType, "breakerMin": decl.IntType,
	})
}

// limitsValue gives the limits to CEL.
func limitsValue(l limit.Limits) map[string]any {
	return map[string]any{
		"maxTaintedNodes":           capValue(l.MaxTaintedNodes),
		"maxEvictingNodes":          capValue(l.MaxEvictingNodes),
		"maxPodDeletionsPerMinute":  int64(l.MaxPodDeletionsPerMinute),
		"maxScaledDownTargets":      capValue(l.MaxScaledDownTargets),
		"maxTargetsFailingTogether": capValue(l.MaxFailingTogether),
		"breakerPercent":            int64(l.BreakerPercent),
		"breakerMin":                int64(l.BreakerMin),
	}
}

func capValue(c limit.Cap) map[string]any {
	percent, nodes := c.Strictest()
	return map[string]any{"percent": int64(percent), "nodes": int64(nodes)}
}

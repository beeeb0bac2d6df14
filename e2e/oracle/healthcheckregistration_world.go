package oracle

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// revised is what had a name from a time on; nil is nothing.
type revised struct {
	at time.Time
	is *thing
}

// registrations are all that ever were, in one order.
func (s *subjects) registrations() iter.Seq2[types.UID, *Policy] {
	return func(yield func(types.UID, *Policy) bool) {
		for _, uid := range slices.Sorted(maps.Keys(s.world.Policies)) {
			if p := s.world.Policies[uid]; p.Resource == (HealthCheckRegistrations{}).Policies() && !yield(uid, p) {
				return
			}
		}
	}
}

// asOf is what had a name at a moment; at the zero time, what has it now.
func (s *subjects) asOf(key thingKey, at time.Time) *thing {
	for _, r := range slices.Backward(s.past[key.kind][key.name]) {
		if at.IsZero() || !r.at.After(at) {
			return r.is
		}
	}
	return nil
}

func (s *subjects) namespaceOf(key thingKey, at time.Time) *thing {
	return s.asOf(thingKey{namespaceKind.gvk(), types.NamespacedName{Name: key.name.Namespace}}, at)
}

// over asks at each moment at which the manager's view of these kinds may be. What is told here later than a write, and came before, counts.
func (s *subjects) over(at time.Time, kinds []schema.GroupVersionKind, is func(time.Time) bool) (ever, always bool) {
	moments := []time.Time{at.Add(-s.options.Lag)}
	for _, kind := range kinds {
		for _, change := range slices.Backward(s.changes[kind]) {
			if !change.After(moments[0]) {
				break
			}
			moments = append(moments, change)
		}
	}
	always = true
	for _, m := range moments {
		yes := is(m)
		ever, always = ever || yes, always && yes
	}
	return ever, always
}

// wellness is what can be known of a check from here.
type wellness int

const (
	unknowable wellness = iota
	well
	unwell
)

// look makes a check of a target at a moment.
func (s *subjects) look(c check, target *thing, at time.Time) wellness {
	if target == nil {
		return unknowable
	}
	if c.When != "" {
		switch asks, ok := ask[bool](s, c.When, target, nil); {
		case !ok:
			return unknowable
		case !asks:
			return well
		}
	}
	found, ok := s.lookedAt(c, target, at)
	switch {
	case !ok:
		return unknowable
	case len(found) == 0 && c.OnMissing == "Skip":
		return well
	case len(found) == 0:
		return unwell
	}
	worst := well
	for _, object := range found {
		switch is := s.wellnessOf(c, target, object); is {
		case unwell:
			return unwell
		case unknowable:
			worst = is
		}
	}
	return worst
}

// lookedAt are the objects that a check looks at; not ok where that isn't known.
func (s *subjects) lookedAt(c check, target *thing, at time.Time) (found []*thing, ok bool) {
	kind, follows := s.kindOf(c)
	namespace, named := target.GetNamespace(), follows
	if follows && c.Object.Namespace != "" {
		namespace, named = ask[string](s, c.Object.Namespace, target, nil)
	}
	switch {
	case !named:
		return nil, false
	case c.Object.Name == "":
		return s.selected(c, target, kind.gvk(), namespace, at)
	}
	name, ok := ask[string](s, c.Object.Name, target, nil)
	for _, in := range []string{namespace, ""} { // a kind without namespaces is found from anywhere
		if t := s.asOf(thingKey{kind.gvk(), types.NamespacedName{Namespace: in, Name: name}}, at); t != nil && len(found) == 0 {
			found = append(found, t)
		}
	}
	return found, ok
}

// selected are the objects that a check selects by labels, and chooses by where.
func (s *subjects) selected(c check, target *thing, kind schema.GroupVersionKind, namespace string, at time.Time) (found []*thing, ok bool) {
	for name := range s.past[kind] {
		t, elsewhere := s.asOf(thingKey{kind, name}, at), namespace != "" && name.Namespace != "" && name.Namespace != namespace
		if t == nil || elsewhere || !matches(c.Object.Selector, t.GetLabels()) {
			continue
		}
		chosen, knows := true, true
		if c.Object.Where != "" {
			chosen, knows = ask[bool](s, c.Object.Where, target, t)
		}
		if !knows {
			return nil, false
		}
		if chosen {
			found = append(found, t)
		}
	}
	return found, true
}

// kindOf is what a check looks at, if it is followed here.
func (s *subjects) kindOf(c check) (Followed, bool) {
	if c.Object == nil || c.Cluster == "Shoot" {
		return Followed{}, false
	}
	all := s.kinds.followed()
	i := slices.IndexFunc(all, func(f Followed) bool {
		return f.GroupVersion().String() == c.Object.APIVersion && f.Kind == c.Object.Kind
	})
	if i < 0 {
		return Followed{}, false
	}
	return all[i], true
}

func (s *subjects) wellnessOf(c check, target, object *thing) wellness {
	switch kind := object.GetKind(); {
	case c.Evaluate.CEL != nil:
		return s.byExpressions(c, target, object)
	case object.GetDeletionTimestamp() != nil:
		return unwell
	case c.Evaluate.Status != nil:
		switch computed, err := status.Compute(object.DeepCopy()); {
		case err != nil || computed.Status == status.UnknownStatus:
			return unknowable
		case computed.Status == status.CurrentStatus:
			return well
		}
		return unwell
	case kind == "Deployment":
		return object.deployment()
	case kind == "ManagedResource":
		return object.managedResource()
	}
	return unknowable
}

// byExpressions: the first that is true of failed, progressing and healthy decides.
func (s *subjects) byExpressions(c check, target, object *thing) wellness {
	for _, asked := range []struct {
		text string
		is   wellness
	}{{c.Evaluate.CEL.Failed, unwell}, {c.Evaluate.CEL.Progressing, unwell}, {c.Evaluate.CEL.Healthy, well}} {
		if asked.text == "" {
			continue
		}
		switch is, ok := ask[bool](s, asked.text, target, object); {
		case !ok:
			return unknowable
		case is:
			return asked.is
		}
	}
	return unwell
}

func (t *thing) behind() bool {
	observed, _, _ := unstructured.NestedInt64(t.Object, "status", "observedGeneration")
	return observed < t.GetGeneration()
}

// deployment goes by its controller's word. One that is paused is left open.
func (t *thing) deployment() wellness {
	paused, _, _ := unstructured.NestedBool(t.Object, "spec", "paused")
	wanted, found, _ := unstructured.NestedInt64(t.Object, "spec", "replicas")
	if !found {
		wanted = 1
	}
	has, _, _ := unstructured.NestedInt64(t.Object, "status", "availableReplicas")
	available, rollout, failure := t.condition("Available").status(), t.condition("Progressing").status(), t.condition("ReplicaFailure").status()
	switch {
	case t.behind(), failure == "True":
		return unwell
	case paused:
		return unknowable
	case rollout == "False", available == "False" && has < wanted:
		return unwell
	case available == "True":
		return well
	}
	return unknowable
}

// managedResource goes by its controller's word, too. One whose resources progress may do so for too long.
func (t *thing) managedResource() wellness {
	applied, healthy := t.condition("ResourcesApplied").status(), t.condition("ResourcesHealthy").status()
	switch {
	case t.behind(), applied != "True", healthy != "True":
		return unwell
	case t.condition("ResourcesProgressing").status() == "True":
		return unknowable
	}
	return well
}

// ask evaluates an expression; not ok where that fails.
func ask[T any](s *subjects, text string, target, object *thing) (answer T, ok bool) {
	program, known := s.programs[text]
	if !known {
		if ast, issues := s.language.Compile(text); issues.Err() == nil {
			program, _ = s.language.Program(ast)
		}
		s.programs[text] = program
	}
	if program == nil {
		return answer, false
	}
	out, _, err := program.Eval(map[string]any{"target": target.Object, "object": cmp.Or(object, target).Object})
	if err != nil {
		return answer, false
	}
	answer, ok = out.Value().(T)
	return answer, ok
}

// newLanguage knows what the expressions of Kubernetes may use.
func newLanguage() *cel.Env {
	variables := environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: []cel.EnvOption{cel.Variable("target", cel.DynType), cel.Variable("object", cel.DynType)},
	}
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 34)).Extend(variables)
	if err != nil { // a mistake in the program, not in its input
		panic(err)
	}
	return set.NewExpressionsEnv()
}

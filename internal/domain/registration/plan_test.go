package registration

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// planner is about a Worker that has conditions X, Y and Old of ours, which are True.
type planner struct {
	TargetInput
	said  []CheckResults
	asked []string
	// open are the places of deciders whose breaker is.
	open map[int]bool
}

func newPlanner() *planner {
	p := &planner{open: map[int]bool{}}
	var conditions []any
	for _, t := range []string{"X", "Y", "Old"} {
		conditions = append(conditions, map[string]any{"type": t, "status": "True", "reason": health.ReasonSuccessful, "message": "(1/1) Health checks successful"})
	}
	p.Target = &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "w"}, "status": map[string]any{"conditions": conditions}}}
	p.Target.SetAnnotations(map[string]string{v1alpha1.AnnotationOwnedConditions: "X,Y,Old"})
	p.Layout = health.Layout{Shape: health.Gardener}
	p.AllowFalse = func(place int, t string, _, counts bool) bool {
		p.asked = append(p.asked, fmt.Sprintf("%s of %s counts=%t", t, p.Registrations[place].Name, counts))
		return !p.open[place]
	}
	return p
}

// by adds a decider that decides some types, and what its checks say: status False of those that fail.
func (p *planner) by(name string, state lifecycle.State, decides []string, failing ...string) *ActiveRegistration {
	r := &Registration{Name: name, UID: types.UID(name)}
	results := map[string][]health.Result{}
	for _, t := range decides {
		r.Checks = append(r.Checks, &Check{Name: "c", ConditionType: t})
		is := health.Result{Check: "c", Status: health.True}
		if slices.Contains(failing, t) {
			is = health.Result{Check: "c", Status: health.False, Detail: "it is bad"}
		}
		results[t] = append(results[t], is)
	}
	d := ActiveRegistration{Registration: r, State: state, Reason: name + " may not"}
	p.Registrations = append(p.Registrations, d)
	p.said = append(p.said, d.RunChecks(p.Target, func() (map[string][]health.Result, []string) { return results, nil }))
	return &p.Registrations[len(p.Registrations)-1]
}

// is tells of a plan: what is written or removed, and in which shape, what is kept, and which claims go.
func (p *planner) is() string {
	plan := p.Plan(p.said, time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC))
	var steps []string
	for _, s := range plan.Steps {
		if s.Remove {
			steps = append(steps, "-"+s.Condition.Type)
		} else {
			steps = append(steps, fmt.Sprintf("%s=%s %s", s.Condition.Type, s.Condition.Status, s.Shape))
		}
	}
	kept := slices.Sorted(maps.Keys(plan.Unchanged))
	return fmt.Sprint(steps, kept, plan.ReleaseClaims)
}

func TestWhatBecomesOfATarget(t *testing.T) {
	xy, x := []string{"X", "Y"}, []string{"X"}
	for name, c := range map[string]struct {
		given func(p *planner)
		want  string
		asked []string
	}{
		"all is well, and nobody decides Old": {func(p *planner) { p.by("a", lifecycle.Active, xy) }, "[-Old] [] []", nil},
		"one fails":                           {func(p *planner) { p.by("a", lifecycle.Active, xy, "X") }, "[X=False Gardener -Old] [] []", []string{"X of a counts=true"}},
		"its breaker is open": {func(p *planner) { p.by("a", lifecycle.Active, xy, "X"); p.open[0] = true }, "[X=Unknown Gardener -Old] [] []",
			[]string{"X of a counts=true"}},
		"one that finds nothing isn't asked": {func(p *planner) {
			p.by("a", lifecycle.Active, x, "X")
			p.by("b", lifecycle.Active, xy)
			p.open[1] = true
		}, "[X=False Gardener -Old] [] []", []string{"X of a counts=true"}},
		"both find something, and each breaker counts": {func(p *planner) {
			p.by("a", lifecycle.Active, x, "X")
			p.by("b", lifecycle.Active, xy, "Y")
			p.open[0] = true
		}, "[X=Unknown Gardener Y=False Gardener -Old] [] []", []string{"X of a counts=true", "X of b counts=true", "Y of b counts=true"}},
		"it is paused":           {func(p *planner) { p.by("a", lifecycle.Paused, xy, "X") }, "[-Old] [X Y] []", []string{"X of a counts=false"}},
		"another one is frozen":  {func(p *planner) { p.by("a", lifecycle.Active, x, "X"); p.by("b", lifecycle.Frozen, xy) }, "[-Old] [X Y] []", nil},
		"it can't be read":       {func(p *planner) { p.by("a", lifecycle.Unreadable, nil).Registration = nil }, "[] [Old X Y] []", nil},
		"it only observes":       {func(p *planner) { p.by("a", lifecycle.Observing, xy, "X") }, "[-Old -X -Y] [] []", []string{"X of a counts=true"}},
		"it is being deleted":    {func(p *planner) { p.by("a", lifecycle.Deleted, xy, "X") }, "[-Old -X -Y] [] []", nil},
		"something isn't read":   {func(p *planner) { p.by("a", lifecycle.Active, xy, "X", "Y"); p.said[0].NotSynced = x }, "[Y=False Gardener -Old] [X] []", []string{"Y of a counts=true"}},
		"another may decide Old": {func(p *planner) { p.by("a", lifecycle.Active, xy); p.RegistrationsUnknown = true }, "[] [] []", nil},
		"it wants its own shape": {func(p *planner) { p.by("a", lifecycle.Active, xy, "X").Output = v1alpha1.OutputConditions }, "[X=False Conditions -Old] [] []",
			[]string{"X of a counts=true"}},
		"the kind takes no conditions": {func(p *planner) { p.by("a", lifecycle.Active, xy, "X"); p.Layout.Problem = "none" }, "[-Old] [X Y] []", nil},
		"nor those that are told elsewhere": {func(p *planner) {
			p.by("a", lifecycle.Active, xy, "X").Output = v1alpha1.OutputRegistrationOnly
			p.Layout.Problem = "none"
		}, "[-Old] [X Y] []", []string{"X of a counts=true"}},
		"it asks for a removal":               {func(p *planner) { p.removes("a", lifecycle.Active, x, "Y") }, "[-Old -Y] [] []", nil},
		"and may not":                         {func(p *planner) { p.removes("a", lifecycle.Refused, x, "Theirs") }, "[-Old -Y] [X] []", nil},
		"and may":                             {func(p *planner) { p.removes("a", lifecycle.Active, x, "Theirs") }, "[-Old -Theirs -Y] [] []", nil},
		"and another decides it":              {func(p *planner) { p.removes("a", lifecycle.Active, x, "Y"); p.by("b", lifecycle.Active, []string{"Y"}) }, "[-Old] [] []", nil},
		"and another that is frozen":          {func(p *planner) { p.removes("a", lifecycle.Active, x, "Y"); p.by("b", lifecycle.Frozen, []string{"Y"}) }, "[-Old] [Y] []", nil},
		"somebody else's condition is its":    {func(p *planner) { p.claims("Y"); p.by("a", lifecycle.Active, xy, "X") }, "[] [X] []", nil},
		"a claim is in vain":                  {func(p *planner) { p.claims("X,Gone"); p.by("a", lifecycle.Active, x) }, "[] [] [Gone]", nil},
		"a claim of what may be another's is": {func(p *planner) { p.claims("X,Gone"); p.by("a", lifecycle.Active, x); p.RegistrationsUnknown = true }, "[] [] []", nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlanner()
			c.given(p)
			if is := p.is(); is != c.want {
				t.Errorf("it plans %s, want %s", is, c.want)
			}
			if slices.Sort(p.asked); !slices.Equal(p.asked, c.asked) {
				t.Errorf("it asks breakers %q, want %q", p.asked, c.asked)
			}
		})
	}
}

// removes has a decider that wants a type gone. Theirs is a condition of the library's.
func (p *planner) removes(name string, state lifecycle.State, decides []string, conditionType string) {
	list, _, _ := unstructured.NestedSlice(p.Target.Object, "status", "conditions")
	if conditionType == "Theirs" {
		list = append(list, map[string]any{"type": "Theirs", "status": "True", "reason": health.ReasonSuccessful, "message": "(1/1) Health checks successful"})
	}
	p.Target.Object["status"] = map[string]any{"conditions": list}
	p.by(name, state, decides).Remove = []string{conditionType}
}

func (p *planner) claims(types string) {
	p.Target.SetAnnotations(map[string]string{v1alpha1.AnnotationOwnedConditions: types})
}

func TestWhoMayDoNoMoreLetsHeal(t *testing.T) {
	p := newPlanner()
	conditions := p.Target.Object["status"].(map[string]any)["conditions"].([]any)
	for _, c := range conditions[:2] {
		c.(map[string]any)["status"], c.(map[string]any)["reason"], c.(map[string]any)["message"] = "False", health.ReasonUnsuccessful, "(0/1) Health checks successful: 1) c: it is bad"
	}
	p.by("a", lifecycle.Paused, []string{"X", "Y"})
	if is, want := p.is(), "[X=True Gardener Y=True Gardener -Old] [] []"; is != want {
		t.Errorf("it plans %s, want %s", is, want)
	}
}

func TestWhySomethingIsKept(t *testing.T) {
	p := newPlanner()
	p.by("a", lifecycle.Paused, []string{"X"}, "X")
	p.by("b", lifecycle.Frozen, []string{"Y"})
	p.by("c", lifecycle.Active, []string{"Old"})
	p.said[2] = CheckResults{Suspended: true}
	want := map[string]string{
		"X": "a may not", "Y": "HealthCheckRegistration b decides it, too, and b may not",
		"Old": "HealthCheckRegistration c, which decides it, too, doesn't check this while its suspendWhen is true",
	}
	if kept := p.Plan(p.said, time.Time{}).Unchanged; !maps.Equal(kept, want) {
		t.Errorf("it says %q", kept)
	}
}

func TestChecksThatSeveralHaveAreToldApartAlsoWhereNothingIsWritten(t *testing.T) {
	p := newPlanner()
	p.Layout.Problem = "none"
	p.by("a", lifecycle.Active, []string{"X"}, "X")
	p.by("b", lifecycle.Active, []string{"X"})
	plan := p.Plan(p.said, time.Time{})
	if message, want := plan.Unwritten[0].Verdicts["X"].Message, "(0/1) Health checks successful: 1) a/c: it is bad"; message != want {
		t.Errorf("it says %q, want %q", message, want)
	}
}

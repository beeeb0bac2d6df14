package registration

import (
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// TargetForecast is what a registration would make of one target's conditions.
type TargetForecast struct {
	Namespace, Name string
	// Suspended: suspendWhen is true, so its conditions stay as they are.
	Suspended bool
	// Problem says why suspendWhen couldn't be evaluated; "" when it could.
	Problem string
	// State is the registration's state where it makes no checks at all, and Why is the reason; "" where it makes them.
	State      lifecycle.State
	Why        string
	Conditions []ConditionForecast
}

// ConditionForecast is what would become of one condition.
type ConditionForecast struct {
	Type string
	// Now is its status on the target, "" when there is none; Since is when that began.
	Now   health.Status
	Since time.Time
	// Verdict is what its checks say. Its status is "" while checks that aren't made here could change it.
	Verdict health.Verdict
	// Results of the checks that were made, by name; NotEvaluated are the names of the others. At is what each looks at.
	Results      []health.Result
	NotEvaluated []string
	At           map[string]string
	// Foreign: it is there, and someone else's, so it isn't written.
	Foreign bool
	// Held: its checks say False, and the breaker doesn't trust it.
	Held bool
	// Unchanged says why it stays as it is, whatever its checks say; "" when it doesn't.
	Unchanged string
	// Removed: nothing decides it any more, or it is asked to go.
	Removed bool
	// Changes: it would become another one. Writes: and that is written.
	Changes, Writes bool
}

// Fails says whether the condition would turn False.
func (c *ConditionForecast) Fails() bool {
	return c.Verdict.Status == health.False && c.Now != health.False && !c.Foreign && !c.Held && c.Unchanged == ""
}

// Faulty says whether an expression of one of its checks can't be evaluated for the target, which makes it Unknown.
func (c *ConditionForecast) Faulty() bool {
	return c.Verdict.Status == health.Unknown && slices.ContainsFunc(c.Results, func(r health.Result) bool { return r.Faulty })
}

// AllHealthy says that there is nothing to report of the target: its conditions are True, and would stay so.
func (t *TargetForecast) AllHealthy() bool {
	for i := range t.Conditions {
		if c := &t.Conditions[i]; c.Foreign || c.Unchanged != "" || c.Verdict.Status != health.True {
			return false
		}
	}
	return t.Problem == "" && !t.Suspended
}

// Worst is the worst status that one of the conditions would have, "" when none is known.
func (t *TargetForecast) Worst() (worst health.Status) {
	for i := range t.Conditions {
		if s := t.Conditions[i].Verdict.Status; health.CompareStatus(s, worst) < 0 {
			worst = s
		}
	}
	return worst
}

// Forecast tells what would become of the target's conditions by the first of its registrations: by the same plan as the controller's.
func (c *TargetInput) Forecast(now time.Time) TargetForecast {
	f := TargetForecast{Namespace: c.Target.GetNamespace(), Name: c.Target.GetName()}
	r := &c.Registrations[0]
	if r.State.IsFrozen() || r.State == lifecycle.Deleted {
		f.State, f.Why = r.State, r.Reason
		return f
	}
	m := forecastRun{TargetInput: c, now: now, notEvaluated: map[string][]string{}, at: map[string]map[string]string{}, results: make([]CheckResults, len(c.Registrations))}
	m.runAll()
	if f.Suspended, f.Problem = m.results[0].Suspended, m.results[0].Problem; f.Suspended {
		return f
	}
	p := c.Plan(m.results, now)
	for _, t := range r.ConditionTypes() {
		f.Conditions = append(f.Conditions, m.condition(&p, t))
	}
	for _, step := range p.Steps {
		if is := step.Condition; step.Remove && r.Writing() {
			f.Conditions = append(f.Conditions, ConditionForecast{Type: is.Type, Now: is.Status, Since: is.LastTransition, Removed: true, Changes: true, Writes: true})
		}
	}
	return f
}

// forecastRun makes the checks of a forecast.
type forecastRun struct {
	*TargetInput
	now     time.Time
	results []CheckResults
	// notEvaluated are the names of a condition type's checks that aren't made here, and at is what each of its checks looks at.
	notEvaluated map[string][]string
	at           map[string]map[string]string
}

// runAll has the checks made of all registrations whose conditions the first one's are.
func (m *forecastRun) runAll() {
	for i := range m.Registrations {
		m.Registrations[i] = m.Registrations[i].OnTarget(m.Target, m.now)
	}
	for i := range m.Registrations {
		if i == 0 || m.Registrations[0].Writing() && m.Registrations[i].Writing() { // one that isn't written is decided by itself
			m.run(i)
		}
	}
	for t := range m.notEvaluated {
		if m.inconclusive(t) {
			m.results[0].NotSynced = append(m.results[0].NotSynced, t)
		}
	}
}

// run makes the checks of the registration at an index.
func (m *forecastRun) run(index int) {
	d := &m.Registrations[index]
	incomplete := false
	m.results[index] = d.RunChecks(m.Target, func() (results map[string][]health.Result, _ []string) {
		results = map[string][]health.Result{}
		for _, check := range d.Checks {
			result, made := m.runCheck(d, check)
			if results[check.ConditionType] = append(results[check.ConditionType], result...); !made {
				incomplete = true
			}
		}
		return results, nil
	})
	m.results[index].Failing = m.results[index].Failing || incomplete
}

// runCheck makes one check, if it can be made here. One of a registration that names the kind in another version is for what isn't read here.
func (m *forecastRun) runCheck(d *ActiveRegistration, check *Check) (result []health.Result, made bool) {
	t, name := check.ConditionType, m.checkName(d, check.ConditionType, check.Name)
	if d.Kind == m.Registrations[0].Kind {
		if m.at[t] == nil {
			m.at[t] = map[string]string{}
		}
		m.at[t][name] = check.at(m.Target, m.Finder)
		switch result, err := check.Result(m.Target, m.Finder, m.now); {
		case err == nil:
			return []health.Result{result}, true
		case !errors.Is(err, ErrNotEvaluated):
			return []health.Result{check.Failed(err)}, true
		}
	}
	m.notEvaluated[t] = append(m.notEvaluated[t], name)
	return nil, false
}

// inconclusive says whether the checks of a condition type that aren't made here could change what the others say: a False one makes it False,
// whatever the rest say.
func (m *forecastRun) inconclusive(conditionType string) bool {
	var all []health.Result
	for i := range m.results {
		all = append(all, m.results[i].Results[conditionType]...)
	}
	return len(m.notEvaluated[conditionType]) > 0 && m.verdict(conditionType, all).Status != health.False
}

func (m *forecastRun) verdict(conditionType string, results []health.Result) health.Verdict {
	return health.Aggregate(results, health.Find(m.Target, conditionType).Past(), m.now)
}

// condition is what the plan says of one condition.
func (m *forecastRun) condition(p *TargetPlan, conditionType string) ConditionForecast {
	r := &m.Registrations[0]
	f := ConditionForecast{Type: conditionType, NotEvaluated: m.notEvaluated[conditionType], At: m.at[conditionType]}
	if before := health.Find(m.Target, conditionType); before != nil {
		f.Now, f.Since = before.Status, before.LastTransition
	}
	f.Foreign = r.Output != v1alpha1.OutputRegistrationOnly && m.foreign(conditionType)
	plan, written := &p.Plan, true
	f.Results = p.Results[conditionType]
	if alone, is := p.Unwritten[0]; is {
		plan, written, f.Results = &alone, false, m.withPrefixes(r, m.results[0].Results)[conditionType]
	} else {
		f.Unchanged = p.Unchanged[conditionType]
	}
	if m.inconclusive(conditionType) {
		return f
	}
	planned := false
	if f.Verdict, planned = plan.Verdicts[conditionType]; !planned {
		f.Verdict = m.verdict(conditionType, f.Results)
	}
	f.Held = f.Unchanged == "" && f.Verdict.Reason == health.ReasonInDoubt
	f.Changes = slices.ContainsFunc(plan.Steps, func(s health.Step) bool { return s.Condition.Type == conditionType })
	f.Writes = f.Changes && written
	return f
}

// ConditionTypes are those that the checks decide, sorted.
func (r *Registration) ConditionTypes() []string {
	types := sets.New[string]()
	for _, c := range r.Checks {
		types.Insert(c.ConditionType)
	}
	return sets.List(types)
}

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
	// Problem says why suspendWhen can't be told; "" when it can.
	Problem string
	// Stands is the registration's state where it makes no checks at all, and Why says so; "" where it makes them.
	Stands     lifecycle.State
	Why        string
	Conditions []ConditionForecast
}

// ConditionForecast is what would become of one condition.
type ConditionForecast struct {
	Type string
	// Now is its status on the target, "" when there is none; Since is when that began.
	Now   health.Status
	Since time.Time
	// Would is what its checks say. Its status is "" while checks that aren't made here could change it.
	Would health.Verdict
	// Results of the checks that were made, by name; NotMade are the names of the others. At is what each looks at.
	Results []health.Result
	NotMade []string
	At      map[string]string
	// Foreign: it is there, and someone else's, so it isn't written.
	Foreign bool
	// Held: its checks say False, and the breaker doesn't believe it.
	Held bool
	// Kept says why it stays as it is, whatever its checks say; "" when it doesn't.
	Kept string
	// Removed: nothing decides it any more, or it is asked to go.
	Removed bool
	// Changes: it would become another one. Writes: and that is written.
	Changes, Writes bool
}

// Fails says whether the condition would turn False.
func (c *ConditionForecast) Fails() bool {
	return c.Would.Status == health.False && c.Now != health.False && !c.Foreign && !c.Held && c.Kept == ""
}

// Faulty says whether an expression of one of its checks can't be evaluated for the target, which makes it Unknown.
func (c *ConditionForecast) Faulty() bool {
	return c.Would.Status == health.Unknown && slices.ContainsFunc(c.Results, func(r health.Result) bool { return r.Faulty })
}

// Quiet says that there is nothing to tell of the target: its conditions are True, and would stay so.
func (t *TargetForecast) Quiet() bool {
	for i := range t.Conditions {
		if c := &t.Conditions[i]; c.Foreign || c.Kept != "" || c.Would.Status != health.True {
			return false
		}
	}
	return t.Problem == "" && !t.Suspended
}

// Worst is the worst status that one of the conditions would have, "" when none is known.
func (t *TargetForecast) Worst() (worst health.Status) {
	for i := range t.Conditions {
		if s := t.Conditions[i].Would.Status; s != "" && (worst == "" || Worse(s, worst)) {
			worst = s
		}
	}
	return worst
}

// Worse orders statuses for people: False, Unknown, Progressing, True.
func Worse(a, b health.Status) bool {
	return slices.Index(fromWorst, a) < slices.Index(fromWorst, b)
}

var fromWorst = []health.Status{health.False, health.Unknown, health.Progressing, health.True, ""}

// Forecast tells what would become of the target's conditions by the first of its deciders: by the same plan as the controller's.
func (c *Circumstances) Forecast(now time.Time) TargetForecast {
	f := TargetForecast{Namespace: c.Target.GetNamespace(), Name: c.Target.GetName()}
	r := &c.Deciders[0]
	if r.State.IsFrozen() || r.State == lifecycle.Deleted {
		f.Stands, f.Why = r.State, r.Why
		return f
	}
	m := making{Circumstances: c, now: now, notMade: map[string][]string{}, at: map[string]map[string]string{}, said: make([]Said, len(c.Deciders))}
	m.ask()
	if f.Suspended, f.Problem = m.said[0].Suspended, m.said[0].Problem; f.Suspended {
		return f
	}
	p := c.Plan(m.said, now)
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

// making makes the checks of a forecast.
type making struct {
	*Circumstances
	now  time.Time
	said []Said
	// notMade are the names of a condition type's checks that aren't made here, and at is what each of its checks looks at.
	notMade map[string][]string
	at      map[string]map[string]string
}

// ask has the checks made of all deciders whose conditions the first one's are.
func (m *making) ask() {
	for i := range m.Deciders {
		m.Deciders[i] = m.Deciders[i].On(m.Target, m.now)
	}
	for i := range m.Deciders {
		if i == 0 || m.Deciders[0].Writing() && m.Deciders[i].Writing() { // one that isn't written is decided by itself
			m.say(i)
		}
	}
	for t := range m.notMade {
		if m.open(t) {
			m.said[0].Unread = append(m.said[0].Unread, t)
		}
	}
}

// say makes the checks of the decider at a place.
func (m *making) say(place int) {
	d := &m.Deciders[place]
	left := false
	m.said[place] = d.Say(m.Target, func() (results map[string][]health.Result, _ []string) {
		results = map[string][]health.Result{}
		for _, check := range d.Checks {
			result, made := m.make(d, check)
			if results[check.ConditionType] = append(results[check.ConditionType], result...); !made {
				left = true
			}
		}
		return results, nil
	})
	m.said[place].Failing = m.said[place].Failing || left
}

// make makes one check, if it can be made here. One of a decider that names the kind in another version is for what isn't read here.
func (m *making) make(d *Decider, check *Check) (result []health.Result, made bool) {
	t, name := check.ConditionType, m.called(d, check.ConditionType, check.Name)
	if d.Kind == m.Deciders[0].Kind {
		if m.at[t] == nil {
			m.at[t] = map[string]string{}
		}
		m.at[t][name] = check.at(m.Target, m.There)
		switch result, err := check.Result(m.Target, m.There, m.now); {
		case err == nil:
			return []health.Result{result}, true
		case !errors.Is(err, ErrNotLooked):
			return []health.Result{check.Failed(err)}, true
		}
	}
	m.notMade[t] = append(m.notMade[t], name)
	return nil, false
}

// open says whether the checks of a condition type that aren't made here could change what the others say: a False one makes it False,
// whatever the rest say.
func (m *making) open(conditionType string) bool {
	var all []health.Result
	for i := range m.said {
		all = append(all, m.said[i].Results[conditionType]...)
	}
	return len(m.notMade[conditionType]) > 0 && m.verdict(conditionType, all).Status != health.False
}

func (m *making) verdict(conditionType string, results []health.Result) health.Verdict {
	return health.Aggregate(results, health.Find(m.Target, conditionType).Past(), m.now)
}

// condition tells of one condition what the plan says.
func (m *making) condition(p *TargetPlan, conditionType string) ConditionForecast {
	r := &m.Deciders[0]
	f := ConditionForecast{Type: conditionType, NotMade: m.notMade[conditionType], At: m.at[conditionType]}
	if before := health.Find(m.Target, conditionType); before != nil {
		f.Now, f.Since = before.Status, before.LastTransition
	}
	f.Foreign = r.Output != v1alpha1.OutputRegistrationOnly && m.foreign(conditionType)
	plan, written := &p.Plan, true
	f.Results = p.Results[conditionType]
	if alone, is := p.Alone[0]; is {
		plan, written, f.Results = &alone, false, m.named(r, m.said[0].Results)[conditionType]
	} else {
		f.Kept = p.Kept[conditionType]
	}
	if m.open(conditionType) {
		return f
	}
	planned := false
	if f.Would, planned = plan.Verdicts[conditionType]; !planned {
		f.Would = m.verdict(conditionType, f.Results)
	}
	f.Held = f.Kept == "" && f.Would.Reason == health.ReasonInDoubt
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

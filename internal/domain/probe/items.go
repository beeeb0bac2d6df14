package probe

import (
	"slices"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Items are what a config would do once the outer side of its targets failed, and once it recovered: what the planner that
// the manager asks says step by step, if each object takes its replicas at once.
type Items struct {
	// Targets that were looked at.
	Targets []TargetForecast
	// Restores are the objects that a stored config of its name scaled down, and that this one would scale up at once,
	// healthy or not. No more are known than its status says.
	Restores []v1alpha1.ScaledDependent
}

// TargetForecast is what would become of one target.
type TargetForecast struct {
	Namespace string `json:"namespace"`
	// Down and Up in their order.
	Down []LevelForecast `json:"down"`
	Up   []LevelForecast `json:"up"`
	// Findings say what would not be scaled, and why.
	Findings []Finding `json:"not"`
}

// LevelForecast is what is scaled together.
type LevelForecast struct {
	Level   int      `json:"level"`
	Changes []Change `json:"changes"`
}

// Change of the replicas that are asked for.
type Change struct {
	Ref
	From int32 `json:"from"`
	To   int32 `json:"to"`
}

// Simulation is from where a forecast looks ahead.
type Simulation struct {
	Now time.Time
	// Scaled are the objects that a stored config of its name scaled down, as its status says.
	Scaled []v1alpha1.ScaledDependent
}

func (a *Simulation) restores(c *Config, namespaces []string) []v1alpha1.ScaledDependent {
	return slices.DeleteFunc(slices.Clone(a.Scaled), func(s v1alpha1.ScaledDependent) bool {
		names := slices.ContainsFunc(c.Dependents, func(d Dependent) bool { return d.Ref == Ref(s.Ref) })
		return !c.Observe && names && slices.Contains(namespaces, s.Namespace)
	})
}

func (a *Simulation) target(c *Config, namespace string, facts []DependentFacts) TargetForecast {
	in := Scaling{Config: c, Want: Down, Now: a.Now}
	for i, f := range facts {
		o := Object{Missing: f.Missing, Unscalable: f.Unscalable, Replicas: f.Replicas, Current: f.Replicas, Hold: f.Hold, Ignore: f.Ignore}
		for _, s := range a.Scaled {
			if s.Namespace == namespace && Ref(s.Ref) == c.Dependents[i].Ref {
				o.Record = &Record{Replicas: s.PreviousReplicas, Owner: c.UID, Policy: c.Key().String(), Since: s.Since}
			}
		}
		in.Objects = append(in.Objects, o)
	}
	in.ProtectionSince = ProtectionStart(c, in.Objects, Protection{}, a.Now)
	t := TargetForecast{Namespace: namespace}
	t.Down, t.Findings = in.simulate()
	in.Want, in.Flow = Up, Flow{}
	t.Up, _ = in.simulate()
	return t
}

// simulate goes through a flow to its end, as if each write were carried out at once. It leaves the objects as they are then.
func (in *Scaling) simulate() (levels []LevelForecast, findings []Finding) {
	levels = []LevelForecast{}
	for {
		plan := PlanScaling(*in)
		in.Flow, findings = plan.Flow, append([]Finding{}, plan.Findings...)
		switch {
		case len(plan.Acts) > 0:
			if n := len(levels); n == 0 || levels[n-1].Level != plan.Flow.Level {
				levels = append(levels, LevelForecast{Level: plan.Flow.Level})
			}
			last := &levels[len(levels)-1]
			for _, act := range plan.Acts {
				last.Changes = append(last.Changes, in.apply(act))
			}
		case plan.Done || !plan.RequeueAt.After(in.Now):
			return levels, findings
		default: // an object's initial delay
			in.Now = plan.RequeueAt
		}
	}
}

// apply does to the objects what an act does.
func (in *Scaling) apply(act Act) Change {
	i := slices.IndexFunc(in.Config.Dependents, func(d Dependent) bool { return d.Ref == act.Ref })
	o := &in.Objects[i]
	change := Change{Ref: act.Ref, From: o.Replicas}
	switch act.Step {
	case StepScaleDown, StepScaleDownAgain:
		o.Record, o.Replicas = act.Record, 0
	case StepScaleUp:
		o.Record, o.Replicas = nil, act.Record.Replicas
	default:
		o.Record = nil
	}
	o.Current, change.To = o.Replicas, o.Replicas
	return change
}

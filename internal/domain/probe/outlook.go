package probe

import (
	"slices"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Outlook is what a config would do once the outer side of its targets failed, and once it recovered: what the planner that
// the manager asks says step by step, if each object takes its replicas at once.
type Outlook struct {
	Targets []TargetOutlook
	// GivesBack are the objects that a stored config of its name scaled down, and that this one would scale up at once,
	// healthy or not. No more are known than its status tells.
	GivesBack []v1alpha1.ScaledDependent
}

// TargetOutlook is what would become of one target.
type TargetOutlook struct {
	Namespace string
	// Down and Up in their order.
	Down, Up []LevelOutlook
	// Findings say what would not be scaled, and why.
	Findings []Finding
}

// LevelOutlook is what is scaled together.
type LevelOutlook struct {
	Level   int
	Changes []Change
}

// Change of the replicas that are asked for.
type Change struct {
	Ref      Ref
	From, To int32
}

// OutlookOf looks ahead in targets that a world knows. Scaled are the objects that a stored config of its name scaled down,
// as its status tells.
func OutlookOf(c *Config, world World, scaled []v1alpha1.ScaledDependent, now time.Time) Outlook {
	namespaces := []string{c.Namespace}
	if c.Namespaces != nil {
		namespaces = world.Namespaces(c.Namespaces)
	}
	var o Outlook
	for _, namespace := range namespaces {
		if facts := world.Target(c, namespace); len(facts.Dependents) == len(c.Dependents) {
			o.Targets = append(o.Targets, lookAhead(c, namespace, facts.Dependents, scaled, now))
		}
	}
	for _, s := range scaled {
		if c.Observe || !slices.Contains(namespaces, s.Namespace) || !slices.ContainsFunc(c.Dependents, func(d Dependent) bool { return d.Ref == Ref(s.Ref) }) {
			o.GivesBack = append(o.GivesBack, s)
		}
	}
	return o
}

func lookAhead(c *Config, namespace string, facts []DependentFacts, scaled []v1alpha1.ScaledDependent, now time.Time) TargetOutlook {
	in := Scaling{Config: c, Want: Down, Now: now}
	for i, f := range facts {
		o := Object{Missing: f.Missing, Unscalable: f.Unscalable, Replicas: f.Replicas, Current: f.Replicas, Hold: f.Hold, Ignore: f.Ignore}
		for _, s := range scaled {
			if s.Namespace == namespace && Ref(s.Ref) == c.Dependents[i].Ref {
				o.Record = &Record{Replicas: s.PreviousReplicas, Owner: c.UID, Policy: c.Key().String(), Since: s.Since}
			}
		}
		in.Objects = append(in.Objects, o)
	}
	in.Episode = Episode(c, in.Objects, Protection{}, now)
	t := TargetOutlook{Namespace: namespace}
	t.Down, t.Findings = in.rehearse()
	in.Want, in.Flow = Up, Flow{}
	t.Up, _ = in.rehearse()
	return t
}

// rehearse goes through a flow to its end, as if each write were carried out at once. It leaves the objects as they are then.
func (in *Scaling) rehearse() (levels []LevelOutlook, findings []Finding) {
	for {
		plan := PlanScaling(*in)
		in.Flow, findings = plan.Flow, plan.Findings
		switch {
		case len(plan.Acts) > 0:
			if n := len(levels); n == 0 || levels[n-1].Level != plan.Flow.Level {
				levels = append(levels, LevelOutlook{Level: plan.Flow.Level})
			}
			last := &levels[len(levels)-1]
			for _, act := range plan.Acts {
				last.Changes = append(last.Changes, in.carryOut(act))
			}
		case plan.Done || !plan.LookAgain.After(in.Now):
			return levels, findings
		default: // an object's initial delay
			in.Now = plan.LookAgain
		}
	}
}

// carryOut does to the objects what an act does.
func (in *Scaling) carryOut(act Act) Change {
	i := slices.IndexFunc(in.Config.Dependents, func(d Dependent) bool { return d.Ref == act.Ref })
	o := &in.Objects[i]
	change := Change{Ref: act.Ref, From: o.Replicas}
	switch act.Step {
	case Take, Lower:
		o.Record, o.Replicas = act.Record, 0
	case Raise:
		o.Record, o.Replicas = nil, act.Record.Replicas
	default:
		o.Record = nil
	}
	o.Current, change.To = o.Replicas, o.Replicas
	return change
}

package probe

import (
	"cmp"
	"slices"
)

// Undo plans to give back to one object what its record says was taken, whatever ProbeConfigs say: for people who do it by
// hand, with no manager or even no policies left. It gives the config for which it was taken, as far as the record tells.
func Undo(namespace string, ref Ref, o Object, hibernated bool) (*Config, Plan) {
	c := &Config{Namespace: namespace}
	if o.Record != nil {
		c = o.Record.Config()
	}
	c.Dependents = []Dependent{{Ref: ref}}
	plan := PlanScaling(Scaling{Config: c, Objects: []Object{o}, Withdrawn: true, Hibernated: hibernated})
	for i := range plan.Acts {
		if o.Copied {
			plan.Acts[i].Step = StepRemoveRecord
		}
	}
	return c, plan
}

// restoreAll undoes everything at once.
func (in *Scaling) restoreAll() Plan {
	p := Plan{Done: true, Flow: Flow{Direction: Up, ScaledUp: map[Ref]int32{}}}
	for i, d := range in.Config.Dependents {
		s := in.restore(&p, d.Ref, in.Objects[i])
		p.Done = p.Done && !s.blocked && s.Step == StepNone
	}
	p.Blocked = !p.Done && len(p.Acts) == 0
	slices.SortFunc(p.Acts, func(a, b Act) int { return cmp.Compare(a.Ref.String(), b.Ref.String()) })
	return p
}

// restore plans to give back at once what was taken from an object.
func (in *Scaling) restore(p *Plan, ref Ref, o Object) Verdict {
	s := o.up(in.Config, 0)
	if s.Step == StepScaleUp && in.Hibernated {
		s.Step = StepRemoveRecord
	}
	if s.Step != StepNone {
		p.Acts = append(p.Acts, in.act(ref, o, s.Step))
	}
	if s.Reason != "" {
		p.Findings = append(p.Findings, s.finding(ref))
	}
	if s.unrestored {
		p.Unrestored = append(p.Unrestored, s.finding(ref))
	}
	return s
}

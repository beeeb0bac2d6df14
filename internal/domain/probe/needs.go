package probe

// standing says what an object needs in the direction.
func (in *Scaling) standing(i int, raised map[Ref]int32) standing {
	if in.Want == Up {
		return in.up(i, raised)
	}
	return in.down(i)
}

// down says what an object needs to be scaled down, if people don't ask to leave it alone.
func (in *Scaling) down(i int) standing {
	s := in.downUnheld(i)
	if h := in.Objects[i].Hold; (s.step == Take || s.step == Lower) && h.Holds(in.Now, in.Server) {
		return alone(HeldByAnnotation, "%s", h.Says(in.Now))
	}
	return s
}

func (in *Scaling) downUnheld(i int) standing {
	o := &in.Objects[i]
	if o.Missing && !in.Config.Dependents[i].Optional {
		return alone(DependentMissing, "there is no such object, and it is not optional")
	}
	if s, ok := o.common(in.Config); ok {
		return s
	}
	r := o.Record
	switch {
	case o.Ignore:
		return alone(AskedToIgnore, "it is annotated to be left alone")
	case r == nil && o.Replicas == 0:
		return settled
	case r == nil:
		return needs(Take)
	case o.Replicas == 0:
		return standing{settled: o.Current == 0}
	default:
		return in.downAgain(o)
	}
}

// downAgain says what an object with replicas needs that has a record.
func (in *Scaling) downAgain(o *Object) standing {
	switch r := o.Record; {
	case !r.Since.Time.Equal(in.Episode): // left by an earlier protection that died between two writes
		return needs(Take)
	case r.untaken(o) && r.Replicas == o.Replicas: // we died before they were taken
		return needs(Lower)
	case r.untaken(o): // and someone else scaled it just then
		return needs(Take)
	default:
		return alone(ScaledByOthers, "someone scaled it to %d after it was scaled down", o.Replicas)
	}
}

// up says what an object needs to get back what was taken.
func (in *Scaling) up(i int, raised map[Ref]int32) standing {
	o := &in.Objects[i]
	if o.Unread != "" && !o.Owes(in.Config) { // nothing was ever taken from it
		return settled
	}
	if s, ok := o.common(in.Config); ok {
		return s
	}
	switch {
	case o.Record == nil:
		back, ours := raised[in.Config.Dependents[i].Ref]
		return standing{settled: !ours || o.Replicas != back || o.Current >= back}
	case o.Ignore:
		return kept(AskedToIgnore, "it is annotated to be left alone; %d replicas were taken from it", o.Record.Replicas)
	case o.Replicas != 0: // we died before the record was removed, or someone else scaled it
		return needs(Release)
	default:
		return needs(Raise)
	}
}

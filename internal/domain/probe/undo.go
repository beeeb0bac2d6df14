package probe

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
			plan.Acts[i].Step = Release
		}
	}
	return c, plan
}

package oracle

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json" // keeps integers integers
)

// policy takes in a revision of a policy.
func (j *judging) policy(r revision) {
	p := j.world.Policies[r.uid]
	if r.unseen { // a write to status: a new generation would have been logged whole
		return
	}
	if r.object == nil {
		if p != nil && p.Gone.IsZero() {
			p.Gone = r.at
		}
		return
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(r.object, &object.Object); err != nil {
		j.broke(Blind, r.at, r.version, r.name, fmt.Sprintf("its JSON can't be read: %v", err))
		return
	}
	if p == nil {
		p = &Policy{Resource: r.resource, Name: object.GetName()}
		j.world.Policies[r.uid] = p
	}
	p.Latest = object
	if object.GetDeletionTimestamp() != nil && p.Gone.IsZero() {
		p.Gone = r.at
	}
	last := len(p.Specs) - 1
	if last >= 0 && p.Specs[last].Generation == object.GetGeneration() {
		return
	}
	if last >= 0 {
		p.Specs[last].Until = r.at
	}
	p.Specs = append(p.Specs, Spec{Generation: object.GetGeneration(), Object: object})
}

// hear takes in what a reader found.
func (j *judging) hear(name string, c Change, f Finding) {
	for _, b := range f.Broken {
		j.broke(b.Invariant, c.At, c.Version, name, b.Text)
	}
	for _, act := range f.Acts {
		if reason := j.unfounded(act, c.At); reason != "" {
			j.broke(Validated, c.At, c.Version, name, act.What+": "+reason)
		}
		for _, z := range j.freezes {
			if c.At.After(z.from.Add(j.options.DoubtGrace)) && (z.to.IsZero() || c.At.Before(z.to)) {
				j.broke(Doubt, c.At, c.Version, name, fmt.Sprintf("%s %s after %s froze", act.What, c.At.Sub(z.from), z.input))
			}
		}
	}
}

// unfounded says why an act's policy doesn't allow it; "" if it does.
func (j *judging) unfounded(act Act, at time.Time) string {
	p := j.world.Policies[act.Policy]
	if p == nil {
		return fmt.Sprintf("there is no policy with UID %q", act.Policy)
	}
	spec, found := p.Spec(act.Generation)
	if !found {
		return fmt.Sprintf("%s never had generation %d", p.Name, act.Generation)
	}
	if !p.Gone.IsZero() && at.Sub(p.Gone) > j.options.Lag {
		return fmt.Sprintf("%s was deleted %s before", p.Name, at.Sub(p.Gone))
	}
	if !spec.Until.IsZero() && at.Sub(spec.Until) > j.options.Lag {
		return fmt.Sprintf("generation %d of %s was replaced %s before", act.Generation, p.Name, at.Sub(spec.Until))
	}
	if mode, _, _ := unstructured.NestedString(spec.Object.Object, "spec", "mode"); mode == "Observe" {
		return p.Name + " only observes"
	}
	if by := j.world.paused(at, j.options.Lag); by != "" {
		return "Guardrail " + by + " pauses all new acts"
	}
	if err := j.options.Admissible(spec.Object); err != nil {
		return fmt.Sprintf("%s is refused: %v", p.Name, err)
	}
	return ""
}

package oracle

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
	p.take(object, r.at)
	for i, kind := range j.kinds {
		if noter, notes := j.readers[i].(Noter); notes && kind.Policies() == r.resource {
			noter.Note(r.at, r.uid, p)
		}
	}
}

// take takes in the policy as it is from now on.
func (p *Policy) take(object *unstructured.Unstructured, at time.Time) {
	p.Latest = object
	if object.GetDeletionTimestamp() != nil && p.Gone.IsZero() {
		p.Gone = at
	}
	last := len(p.Specs) - 1
	if last >= 0 && p.Specs[last].Generation == object.GetGeneration() {
		return
	}
	if last >= 0 {
		p.Specs[last].Until = at
	}
	p.Specs = append(p.Specs, Spec{Generation: object.GetGeneration(), Object: object})
}

// span is a time; until is zero while it lasts.
type span struct{ from, until time.Time }

// refusalsOf finds when the policies' own status said that the rules refuse them. The replay needs to look ahead: an act may
// come right before the status says that nothing forbids it any more.
func refusalsOf(revisions []revision, isPolicy func(schema.GroupVersionResource) bool) map[types.UID][]span {
	refusals := map[types.UID][]span{}
	for _, r := range revisions {
		object := &unstructured.Unstructured{}
		if r.object == nil || !isPolicy(r.resource) || json.Unmarshal(r.object, &object.Object) != nil {
			continue
		}
		spans := refusals[r.uid]
		lasts := len(spans) > 0 && spans[len(spans)-1].until.IsZero()
		switch refused := refuses(object); {
		case refused && !lasts:
			refusals[r.uid] = append(spans, span{from: r.at})
		case !refused && lasts:
			spans[len(spans)-1].until = r.at
		}
	}
	return refusals
}

// refuses says whether the status tells that the rules refuse this very generation.
func refuses(policy *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(policy.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		c, _ := condition.(map[string]any)
		return c["type"] == "Accepted" && c["status"] == "False" && c["observedGeneration"] == policy.GetGeneration()
	})
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
	if mode, _, _ := unstructured.NestedString(spec.Object.Object, "spec", "mode"); mode == "Observe" && !act.Observing {
		return p.Name + " only observes"
	}
	if by := j.world.paused(at, j.options.Lag); by != "" {
		return "Guardrail " + by + " pauses all new acts"
	}
	if err := j.options.Admissible(spec.Object); err != nil {
		return fmt.Sprintf("%s is refused: %v", p.Name, err)
	}
	if since := j.saidRefused(act.Policy, at); since > 0 {
		return fmt.Sprintf("the status of %s had said for %s that it is refused", p.Name, since)
	}
	return ""
}

// saidRefused is for how long a policy's status had said that it is refused, when the manager had no reason to think otherwise;
// else zero. While that may still come it is too early to tell: the next Check will.
func (j *judging) saidRefused(policy types.UID, at time.Time) time.Duration {
	for _, s := range j.refusals[policy] {
		if s.until.IsZero() {
			s.until = j.now
		}
		if at.Sub(s.from) > j.options.Lag && s.until.Sub(at) > j.options.Lag {
			return at.Sub(s.from)
		}
	}
	return 0
}

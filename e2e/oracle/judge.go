package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json" // keeps integers integers
)

// ourGroup is the API group of all kinds of policies.
const ourGroup = "autohealer.resourcestack.com"

// judging is one replay of the past.
type judging struct {
	options  Options
	freezes  []freeze
	starts   map[schema.GroupVersionResource]uint64
	readers  []Reader
	kinds    []Kind
	writers  map[revisionKey][]write
	world    World
	rails    map[types.UID]rail
	objects  map[objectKey]*state
	verdicts []Violation
}

// state is what a foreign object is at some point of the replay.
type state struct {
	name   string
	object []byte
	views  []View // one a kind; nil for kinds that it doesn't concern
}

// judge replays the past and gives every violation, up to now.
func judge(p past, o Options, freezes []freeze, now time.Time) []Violation {
	j := &judging{
		options: o, freezes: freezes, starts: p.starts, kinds: o.Kinds,
		writers: map[revisionKey][]write{}, world: World{Policies: map[types.UID]*Policy{}}, objects: map[objectKey]*state{},
		rails: map[types.UID]rail{},
	}
	j.world.Rules = []Rules{merged(nil, o, time.Time{})}
	for _, kind := range o.Kinds {
		j.readers = append(j.readers, kind.Begin(o))
	}
	for _, w := range p.writes {
		if j.inView(w) {
			j.writers[w.revisionKey] = append(j.writers[w.revisionKey], w)
		} else if w.ours && w.resource.Group != ourGroup {
			j.broke(Validated, w.at, w.version, w.name, fmt.Sprintf("%s %s by the manager, which no policy asks for", w.verb, w.subresource))
		}
	}
	for _, r := range j.withUnseen(p.revisions) {
		switch {
		case r.resource == guardrails:
			j.ruling(r)
		case j.isPolicy(r.resource):
			j.policy(r)
		default:
			j.foreign(r)
		}
	}
	j.overdue(now)
	slices.SortStableFunc(j.verdicts, func(a, b Violation) int { return a.At.Compare(b.At) })
	return j.verdicts
}

func (j *judging) broke(invariant Invariant, at time.Time, version uint64, object, text string) {
	j.verdicts = append(j.verdicts, Violation{Invariant: invariant, At: at, Version: version, Object: object, Text: text})
}

func (j *judging) isPolicy(resource schema.GroupVersionResource) bool {
	return slices.ContainsFunc(j.kinds, func(k Kind) bool { return k.Policies() == resource })
}

// inView: the write made a revision of something that is followed.
func (j *judging) inView(w write) bool {
	_, followed := j.starts[w.resource]
	return followed && w.version != 0 && w.verb != "delete" && w.verb != "deletecollection"
}

// withUnseen adds the revisions that only the audit log knows: made while the watch was down, by a client that asked for
// the metadata of the result only.
func (j *judging) withUnseen(revisions []revision) []revision {
	seen := map[revisionKey]bool{}
	for _, r := range revisions {
		seen[r.revisionKey] = true
	}
	for key, writes := range j.writers {
		if !seen[key] && key.version > j.starts[key.resource] {
			revisions = append(revisions, revision{revisionKey: key, name: writes[0].name, at: writes[0].at, unseen: true})
		}
	}
	slices.SortFunc(revisions, func(a, b revision) int { return cmp.Compare(a.version, b.version) })
	return revisions
}

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

// foreign takes in a revision of an object that isn't a policy.
func (j *judging) foreign(r revision) {
	writers := j.writers[r.revisionKey]
	before := j.objects[r.objectKey]
	if before != nil {
		r.name = before.name
	}
	if r.unseen {
		r.object = j.reconstruct(r, before, writers[0])
		if r.object == nil {
			return
		}
	}
	after := j.read(r)
	j.tell(r, writers, before, after)
	if r.version > j.starts[r.resource] {
		j.repeated(r.name, writers)
	}
	if after == nil {
		delete(j.objects, r.objectKey)
	} else {
		j.objects[r.objectKey] = after
	}
}

// tell tells every kind of a change.
func (j *judging) tell(r revision, writers []write, before, after *state) {
	judged := r.version > j.starts[r.resource]
	unclaimed := judged && len(writers) > 0 && writers[0].ours
	for i, reader := range j.readers {
		c := Change{At: r.at, Version: r.version, Before: before.view(i), After: after.view(i)}
		if c.Before == nil && c.After == nil {
			continue
		}
		switch {
		case len(writers) > 0:
			c.Ours, c.Subresource, c.At = writers[0].ours, writers[0].subresource, writers[0].at
		case c.Before != nil && c.After != nil:
			c.Ours = reader.OnlyOurs(c.Before, c.After)
		}
		c.Ours = c.Ours && judged
		f := reader.Read(&j.world, c)
		j.hear(r.name, c, f)
		j.undone(r.name, c)
		unclaimed = unclaimed && f.NotMine
	}
	if unclaimed {
		j.broke(Validated, r.at, r.version, r.name, "a change by the manager that no policy asks for")
	}
}

// repeated: writes that gave the version of an earlier one changed nothing.
func (j *judging) repeated(name string, writes []write) {
	for i, w := range writes {
		if i > 0 && w.ours {
			j.broke(Once, w.at, w.version, name, fmt.Sprintf("%s by the manager that changed nothing", w.verb))
		}
	}
}

// reconstruct makes the object that a write left and no watch told of, from the write's own JSON Patch.
func (j *judging) reconstruct(r revision, before *state, w write) []byte {
	if before != nil && w.ours {
		if patch, err := jsonpatch.DecodePatch(w.request); err == nil {
			if after, err := patch.Apply(before.object); err == nil {
				return after
			}
		}
	}
	if w.ours {
		j.broke(Blind, r.at, r.version, r.name, "what the manager's write left was neither watched nor logged")
	}
	return nil
}

func (j *judging) read(r revision) *state {
	if r.object == nil {
		return nil
	}
	s := &state{name: r.name, object: r.object, views: make([]View, len(j.readers))}
	for i, kind := range j.kinds {
		if !slices.Contains(kind.Foreign(), r.resource) {
			continue
		}
		view, err := j.readers[i].View(r.object)
		if err != nil {
			j.broke(Blind, r.at, r.version, r.name, fmt.Sprintf("it can't be read: %v", err))
			continue
		}
		s.views[i] = view
	}
	return s
}

func (s *state) view(i int) View {
	if s == nil {
		return nil
	}
	return s.views[i]
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

// undone judges records that go: those of a deleted policy must have gone in time.
func (j *judging) undone(name string, c Change) {
	if c.Before == nil || c.After == nil {
		return
	}
	for _, uid := range c.Before.Records() {
		p := j.world.Policies[uid]
		if p != nil && !p.Gone.IsZero() && c.At.Sub(p.Gone) > j.options.UndoWithin && !slices.Contains(c.After.Records(), uid) {
			j.broke(Undone, c.At, c.Version, name, fmt.Sprintf("what %s did was undone only %s after its deletion", p.Name, c.At.Sub(p.Gone)))
		}
	}
}

// overdue judges the records that are still there.
func (j *judging) overdue(now time.Time) {
	states := slices.SortedFunc(maps.Values(j.objects), func(a, b *state) int { return cmp.Compare(a.name, b.name) })
	for _, s := range states {
		for _, view := range s.views {
			if view == nil {
				continue
			}
			for _, uid := range view.Records() {
				p := j.world.Policies[uid]
				if p != nil && !p.Gone.IsZero() && now.Sub(p.Gone) > j.options.UndoWithin {
					j.broke(Undone, now, 0, s.name, fmt.Sprintf("what %s did isn't undone %s after its deletion", p.Name, now.Sub(p.Gone)))
				}
			}
		}
	}
}

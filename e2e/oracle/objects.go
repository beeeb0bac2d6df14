package oracle

import (
	"fmt"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

// state is what a foreign object is at some point of the replay.
type state struct {
	name   string
	object []byte
	views  []View // one a kind; nil for kinds that it doesn't concern
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
		if r.object == nil && !writers[0].removes() {
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
			c.Verb, c.Request = writers[0].verb, writers[0].request
		case c.Before != nil && c.After != nil:
			c.Ours = reader.OnlyOurs(c.Before, c.After)
		}
		c.Ours = c.Ours && judged
		j.thawed(r.name, c)
		f := reader.Read(&j.world, c)
		j.hear(r.name, c, f)
		j.undone(r.name, c)
		unclaimed = unclaimed && f.NotMine
	}
	if unclaimed {
		j.broke(Validated, r.at, r.version, r.name, "a change by the manager that no policy asks for")
	}
}

// thawed: nobody writes while everything is frozen.
func (j *judging) thawed(name string, c Change) {
	if by := j.world.frozen(c.At, j.options.Lag); c.Ours && by != "" {
		j.broke(Frozen, c.At, c.Version, name, "a write by the manager while Guardrail "+by+" freezes everything")
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
	if w.removes() {
		return nil
	}
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

package oracle

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// ourGroup is the API group of all kinds of policies.
const ourGroup = "autohealer.resourcestack.com"

// judging is one replay of the past.
type judging struct {
	options  Options
	freezes  []freeze
	now      time.Time
	refusals map[types.UID][]span
	starts   map[schema.GroupVersionResource]uint64
	readers  []Reader
	kinds    []Kind
	writers  map[revisionKey][]write
	world    World
	rails    map[types.UID]rail
	objects  map[objectKey]*state
	verdicts []Violation
}

// judge replays the past and gives every violation, up to now.
func judge(p past, o Options, freezes, cuts []freeze, now time.Time) []Violation {
	j := &judging{
		options: o, freezes: freezes, now: now, starts: p.starts, kinds: o.Kinds,
		writers: map[revisionKey][]write{}, world: World{Policies: map[types.UID]*Policy{}, cuts: cuts, proven: proofsOf(p.revisions, now)}, objects: map[objectKey]*state{},
		rails: map[types.UID]rail{},
	}
	j.world.Rules = []Rules{merged(nil, o, time.Time{})}
	for _, kind := range o.Kinds {
		j.readers = append(j.readers, kind.Begin(o))
	}
	j.refusals = refusalsOf(p.revisions, j.isPolicy)
	j.sign(p)
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

// sign files the writes under the revisions that they made.
func (j *judging) sign(p past) {
	ends := endsOf(p.revisions)
	for _, w := range p.writes {
		if w.ours && w.removes() && w.version == 0 && w.uid != "" && j.starts[w.resource] != 0 { // its answer doesn't say which version it made
			if w.version = ends[w.objectKey]; w.version == 0 {
				continue // not seen yet: the next look judges it
			}
		}
		if j.inView(w) {
			j.writers[w.revisionKey] = append(j.writers[w.revisionKey], w)
		} else if w.ours && w.resource.Group != ourGroup {
			j.broke(Validated, w.at, w.version, w.name, fmt.Sprintf("%s %s by the manager, which no policy asks for", w.verb, w.subresource))
		}
	}
}

func (j *judging) broke(invariant Invariant, at time.Time, version uint64, object, text string) {
	j.verdicts = append(j.verdicts, Violation{Invariant: invariant, At: at, Version: version, Object: object, Text: text})
}

func (j *judging) isPolicy(resource schema.GroupVersionResource) bool {
	return slices.ContainsFunc(j.kinds, func(k Kind) bool { return k.Policies() == resource })
}

// inView: the write made a revision of something that is followed. Of deletions only the manager's are judged.
func (j *judging) inView(w write) bool {
	_, followed := j.starts[w.resource]
	return followed && w.version != 0 && (w.ours || w.verb != "delete") && w.verb != "deletecollection"
}

// endsOf gives the version at which each object's end began: the first at which it is gone or is being deleted.
func endsOf(revisions []revision) map[objectKey]uint64 {
	ends := map[objectKey]uint64{}
	for _, r := range revisions {
		if ends[r.objectKey] == 0 && (r.object == nil || bytes.Contains(r.object, []byte(`"deletionTimestamp"`))) {
			ends[r.objectKey] = r.version
		}
	}
	return ends
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
	slices.SortStableFunc(revisions, func(a, b revision) int { return cmp.Compare(a.version, b.version) })
	return revisions
}

package oracle

import (
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

package oracle

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Kind plugs one kind of policy into the oracle.
type Kind interface {
	// Policies is the resource of the kind itself.
	Policies() schema.GroupVersionResource
	// Foreign are the resources whose objects the kind changes or counts.
	Foreign() []schema.GroupVersionResource
	// Trim drops from a foreign object what View doesn't read; thousands of revisions are kept.
	Trim(object *unstructured.Unstructured)
	// Begin gives the reader of one replay.
	Begin(o Options) Reader
}

// Reader follows one replay of everything that happened, from the first event to the last.
type Reader interface {
	// View reads a foreign object, given as JSON.
	View(object []byte) (View, error)
	// OnlyOurs says that nobody but the manager makes such a change. It stands in for an audit line that a killed API
	// server didn't write.
	OnlyOurs(before, after View) bool
	// Read takes in a change of a foreign object, ours or another's, and says what a write of ours did and broke.
	Read(w *World, c Change) Finding
}

// Noter is a Reader that also reads what the statuses of its policies tell. It hears of every revision.
type Noter interface {
	Note(at time.Time, uid types.UID, p *Policy)
}

// View is what a Reader reads of one revision of an object.
type View interface {
	// Records are the policies for which the object says that something was done.
	Records() []types.UID
}

// Change is one revision of a foreign object, and the one before.
type Change struct {
	At      time.Time
	Version uint64
	// Before is nil for a new object, After for one that is gone.
	Before, After View
	// Ours: the manager wrote it. Subresource is what it wrote to, "" for the object itself.
	Ours        bool
	Subresource string
	// Verb and Request, the body, are of the manager's write: empty when another's, or when no audit line tells of it.
	Verb    string
	Request []byte
}

// Finding is what a Reader says of a change.
type Finding struct {
	// Acts are what a write of ours did for policies. A write of ours without acts that breaks nothing undoes something.
	Acts []Act
	// Broken are the invariants of the kind that the change broke.
	Broken []Broken
	// NotMine: a write of ours that this kind has nothing to do with.
	NotMine bool
}

// Broken is one invariant with what broke it.
type Broken struct {
	Invariant Invariant
	Text      string
}

// Act is something harmful that a write of ours did for a policy at one generation.
type Act struct {
	Policy     types.UID
	Generation int64
	// What was done, as "taint example.com/broken:NoExecute".
	What string
	// Observing: it only has something counted, which a policy in mode Observe does, too.
	Observing bool
}

// World is what else was so at a change.
type World struct {
	Policies map[types.UID]*Policy
	// Rules are what all Guardrails said, one after the other; the first are the built-in ones.
	Rules []Rules
	// cuts are the times in which nodes were cut off, by the namespaces from which their clusters are probed.
	cuts []freeze
	// proven are the kubeconfigs that worked.
	proven proofs
}

// cutOff says whether the nodes of the cluster that is probed from a namespace were cut off all the time.
func (w *World) cutOff(namespace string, from, to time.Time) bool {
	return slices.ContainsFunc(w.cuts, func(cut freeze) bool {
		return cut.input == namespace && cut.from.Before(from) && (cut.to.IsZero() || to.Before(cut.to))
	})
}

// Policy is an object of one of our kinds, with all that it ever said.
type Policy struct {
	Resource schema.GroupVersionResource
	Name     string
	Specs    []Spec // in order
	// Latest is the object with its status.
	Latest *unstructured.Unstructured
	// Gone is when it was deleted or its deletion was asked for; zero while neither.
	Gone time.Time
}

// Spec is one generation of a policy.
type Spec struct {
	Generation int64
	Object     *unstructured.Unstructured
	// Until is when the next generation took its place; zero for the latest.
	Until time.Time
}

// InForce are the specs that the manager may have acted for at a moment, the newest first: the latest, and those before that
// its view, which may be behind, may still have.
func (p *Policy) InForce(at time.Time, lag time.Duration) []Spec {
	var specs []Spec
	for _, spec := range slices.Backward(p.Specs) {
		if spec.Until.IsZero() || at.Sub(spec.Until) <= lag {
			specs = append(specs, spec)
		}
	}
	return specs
}

// Spec finds a generation.
func (p *Policy) Spec(generation int64) (Spec, bool) {
	for _, spec := range p.Specs {
		if spec.Generation == generation {
			return spec, true
		}
	}
	return Spec{}, false
}

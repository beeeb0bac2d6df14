package conditionset

import (
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

// Trouble remembers for which nodes of which sets the last write failed, for the sets' status.
type Trouble struct {
	// hit is told of each set whose trouble began or ended.
	hit func(set string)

	mu sync.Mutex
	of map[types.UID]*troubled
}

type troubled struct {
	set   string
	nodes map[string]error
	// partly: for some other node a write came about meanwhile, so it isn't the set's own trouble.
	partly bool
}

// troubles is one set's trouble.
type troubles struct {
	nodes  int
	sample string // one of the nodes
	err    error  // its error
	partly bool
}

// failed takes in that a plan's write failed. That someone else wrote first is none.
func (t *Trouble) failed(plan condition.Plan, err error) {
	if isStale(err) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, step := range plan.Steps {
		of := t.of[step.Set]
		if of == nil {
			of = &troubled{set: step.SetName, nodes: map[string]error{}}
			if t.of == nil {
				t.of = map[types.UID]*troubled{}
			}
			t.of[step.Set] = of
			t.tell(of)
		}
		of.nodes[plan.Node.Name] = err
	}
}

// written takes in that a plan's write came about.
func (t *Trouble) written(plan condition.Plan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, step := range plan.Steps {
		if of := t.of[step.Set]; of != nil && !of.partly {
			of.partly = true
			t.tell(of)
		}
	}
	t.end(plan.Node.Name)
}

// settled takes in that there is nothing to be done for a node, or that it is gone.
func (t *Trouble) settled(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(node)
}

// end needs t.mu.
func (t *Trouble) end(node string) {
	for uid, of := range t.of {
		if _, ok := of.nodes[node]; !ok {
			continue
		}
		if delete(of.nodes, node); len(of.nodes) == 0 {
			delete(t.of, uid)
			t.tell(of)
		}
	}
}

func (t *Trouble) tell(of *troubled) {
	if t.hit != nil {
		t.hit(of.set)
	}
}

func (t *Trouble) get(set types.UID) *troubles {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.of[set]
	if of == nil {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(of.nodes)))
	return &troubles{nodes: len(of.nodes), sample: first, err: of.nodes[first], partly: of.partly}
}

func (t *Trouble) forget(set types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, set)
}

// forbidden says that nothing at all may be written: a human must give the permission.
func (t *troubles) forbidden() bool { return t != nil && !t.partly && apierrors.IsForbidden(t.err) }

// retrying says that nothing was written lately.
func (t *troubles) retrying() bool { return t != nil && !t.partly && !apierrors.IsForbidden(t.err) }

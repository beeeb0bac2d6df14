package conditionset

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

// Trouble remembers for which sets the last write failed, for their status.
type Trouble struct {
	mu  sync.Mutex
	of  map[types.UID]error
	hit func(set string)
}

// note takes in how a plan's write ended; nil ends the trouble of the plan's sets.
func (t *Trouble) note(plan condition.Plan, err error) {
	if isStale(err) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, step := range plan.Steps {
		was, had := t.of[step.Set]
		if err == nil {
			delete(t.of, step.Set)
		} else {
			if t.of == nil {
				t.of = map[types.UID]error{}
			}
			t.of[step.Set] = err
		}
		if t.hit != nil && (had != (err != nil) || had && apierrors.IsForbidden(was) != apierrors.IsForbidden(err)) {
			t.hit(step.SetName)
		}
	}
}

func (t *Trouble) get(set types.UID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[set]
}

func (t *Trouble) forget(set types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, set)
}

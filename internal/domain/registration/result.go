package registration

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

// ErrNotLooked is a Finder's error for what it doesn't look at: it says nothing about the cluster.
var ErrNotLooked = errors.New("it isn't looked at here")

// Finder finds what the checks of one target look at.
type Finder interface {
	// Objects gives those that a check looks at; none where they don't exist.
	Objects(check *Check, ref Ref) ([]*unstructured.Unstructured, error)
	// Nodes gives those of the target's shoot.
	Nodes() ([]*corev1.Node, error)
}

// Result makes the check of a target, with what there is. The error says why it can't be made.
func (c *Check) Result(target *unstructured.Unstructured, there Finder, now time.Time) (health.Result, error) {
	if asks, err := c.Asks(target); err != nil || !asks {
		if err != nil {
			return c.Failed(err), nil
		}
		return c.told(health.Result{Status: health.True}), nil
	}
	if c.Nodes {
		nodes, err := there.Nodes()
		if err != nil {
			return health.Result{}, err
		}
		return c.JudgeNodes(target, nodes), nil
	}
	ref, err := c.Ref(target)
	if err != nil {
		return health.Result{}, err
	}
	objects, err := there.Objects(c, ref)
	if err != nil {
		return health.Result{}, fmt.Errorf("read %s: %w", c.called(ref), err)
	}
	return c.JudgeObjects(ref, target, objects, now), nil
}

package guard

import (
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Lifted is a rule that an exception keeps from refusing an object.
type Lifted struct {
	Rule string
	// Exception is the GuardrailException's name.
	Exception string
	// Until when.
	Until time.Time
}

// SetExceptions puts these exceptions in force, in place of all former ones.
func (g *Guard) SetExceptions(all []*v1alpha1.GuardrailException) {
	targets := make([]Target, len(all))
	for i, x := range all {
		targets[i] = Target(x.Spec.TargetRef)
	}
	g.announce(Change{Targets: targets})
}

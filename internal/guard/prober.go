package guard

import (
	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// termsOfProber reads what a ProbeConfig says by itself: more than CEL could do within its costs.
func termsOfProber(e *evaluation) (any, error) {
	pc, err := read[v1alpha1.ProbeConfig](e.object)
	if err != nil {
		return nil, err
	}
	return probe.TermsOf(pc, e.guard.opts.OwnNamespace), nil
}

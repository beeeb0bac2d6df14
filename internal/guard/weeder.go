package guard

import (
	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weed"
)

// termsOfWeeder reads what a WeederConfig says by itself: more than CEL could do within its costs.
func termsOfWeeder(e *evaluation) (any, error) {
	wc, err := read[v1alpha1.WeederConfig](e.object)
	if err != nil {
		return nil, err
	}
	return weed.TermsOf(wc, e.guard.opts.OwnNamespace), nil
}

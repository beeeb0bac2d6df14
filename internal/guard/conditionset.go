package guard

import (
	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
)

// termsOfSet reads what a ConditionSet says by itself, and what an update changes of it: more than CEL could do within its
// costs.
func termsOfSet(e *evaluation) (any, error) {
	cs, err := read[v1alpha1.ConditionSet](e.object)
	if err != nil {
		return nil, err
	}
	old, err := read[v1alpha1.ConditionSet](e.oldObject)
	if err != nil {
		old = &v1alpha1.ConditionSet{} // which can't be read, either
	}
	return condition.TermsOf(cs, old), nil
}

package outlier

import "github.com/resourcestack/autohealer/internal/domain/lifecycle"

// EffectivePolicy returns the policy that is in force for a cluster in a lifecycle state, where wanted is the policy that holds and before
// was in force; nil is none. The cluster's endpoints are updated in any state.
func EffectivePolicy(state lifecycle.State, wanted, before *Policy) *Policy {
	switch {
	case state == lifecycle.Active || wanted.sameRevision(before):
		return wanted
	case state.IsFrozen():
		return before
	case !wanted.Detects():
		return wanted
	case before.Detects() && before.UID == wanted.UID: // it was changed since
		return before
	}
	return nil
}

// sameRevision says whether two policies are the same generation of one, or detect nothing.
func (p *Policy) sameRevision(other *Policy) bool {
	if !p.Detects() || !other.Detects() {
		return p.Detects() == other.Detects()
	}
	return p.UID == other.UID && p.Generation == other.Generation
}

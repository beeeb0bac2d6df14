package outlier

import "github.com/resourcestack/autohealer/internal/domain/lifecycle"

// Under gives the policy by which a cluster's hosts are judged in a state, where wanted is to hold and before did; nil is
// none. The cluster's endpoints are followed in any.
func Under(state lifecycle.State, wanted, before *Policy) *Policy {
	switch {
	case state == lifecycle.Active || wanted.same(before):
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

// same says whether two policies have Envoy do the same.
func (p *Policy) same(other *Policy) bool {
	if !p.Detects() || !other.Detects() {
		return p.Detects() == other.Detects()
	}
	return p.UID == other.UID && p.Generation == other.Generation
}

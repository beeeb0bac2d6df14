package outlier

// Stance is what may be done for policies now.
type Stance int

// The stances, each stricter than the one before.
const (
	// Acting: whatever policies want.
	Acting Stance = iota
	// Paused: nothing new; what stopped holding is taken back.
	Paused
	// Frozen: everything stays as it is.
	Frozen
)

// Under gives the policy by which a cluster's hosts are judged in a stance, where wanted is to hold and before did; nil is
// none. The cluster's endpoints are followed in any.
func Under(stance Stance, wanted, before *Policy) *Policy {
	switch {
	case stance == Acting || wanted.same(before):
		return wanted
	case stance == Frozen:
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

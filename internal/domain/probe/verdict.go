package probe

// Verdict is what the planner says of one object once its level's turn comes.
type Verdict struct {
	// Step that would be written; None for nothing.
	Step Step
	// Reason and Message say what was found in its way; "" when nothing was, or there is nothing to do.
	Reason  Reason
	Message string
}

// Verdict is on the i-th of the objects.
func (in *Scaling) Verdict(i int) Verdict {
	s := in.standing(i, nil)
	return Verdict{Step: s.step, Reason: s.reason, Message: s.message}
}

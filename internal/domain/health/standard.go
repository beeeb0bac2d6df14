package health

import "fmt"

// standing is a condition of an object under check, whatever its Go type.
type standing struct{ status, reason, message string }

// wanted asks that a condition is True. Missing means not yet; Gardener's own may themselves be Progressing.
func wanted(kind, conditionType string, s *standing) Result {
	switch {
	case s == nil:
		return progressing(fmt.Sprintf("%s has no condition %s yet", kind, conditionType))
	case s.status == string(True):
		return healthy()
	}
	detail := fmt.Sprintf("condition %s of %s is %s", conditionType, kind, s.status)
	if s.reason != "" {
		detail += " (" + s.reason + ")"
	}
	if s.message != "" {
		detail += ": " + s.message
	}
	switch s.status {
	case string(Unknown):
		return unknown(detail)
	case string(Progressing):
		return progressing(detail)
	}
	return unhealthy(detail)
}

// seen asks that the object's controller has seen its latest spec; before, its status tells of an older one.
func seen(kind string, generation, observed int64) Result {
	if observed >= generation {
		return healthy()
	}
	return progressing(fmt.Sprintf("%s was changed, and its status is of generation %d instead of %d", kind, observed, generation))
}

// firstOf gives the first result that isn't True; True when all are.
func firstOf(results ...Result) Result {
	for _, r := range results {
		if r.Status != True {
			return r
		}
	}
	return healthy()
}

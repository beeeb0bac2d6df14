package health

import (
	"fmt"
	"time"
)

// OnMissing says what follows when the object under check doesn't exist.
type OnMissing string

const (
	// MissingFails makes it False.
	MissingFails OnMissing = "False"
	// MissingProgresses makes it Progressing, for the check's time-out.
	MissingProgresses OnMissing = "Progressing"
	// MissingPasses leaves the check out: it counts as successful.
	MissingPasses OnMissing = "Skip"
)

// Missing is the result for an object that is known not to exist. That a cache or index lacks it isn't knowledge: a live
// read must say so.
func Missing(on OnMissing, kind, name string, timeout time.Duration) Result {
	return NothingFound(on, fmt.Sprintf("%s %s doesn't exist", kind, name), timeout)
}

// NothingFound is the same where any of several would do; the detail says what was looked for.
func NothingFound(on OnMissing, detail string, timeout time.Duration) Result {
	switch on {
	case MissingPasses:
		return healthy()
	case MissingProgresses:
		r := progressing(detail)
		r.Timeout = timeout
		return r
	}
	return unhealthy(detail)
}

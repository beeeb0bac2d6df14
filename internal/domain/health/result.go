package health

import "time"

// Status is what a check, or all checks of a condition type together, say. The names are those that Gardener's conditions have.
type Status string

const (
	// True: healthy.
	True Status = "True"
	// False: unhealthy.
	False Status = "False"
	// Unknown: the check itself failed, which says nothing about what it looks at.
	Unknown Status = "Unknown"
	// Progressing: not healthy yet, for a reason that is expected and passes.
	Progressing Status = "Progressing"
)

// Result is what one check says.
type Result struct {
	// Check is its name; in a condition type that several registrations feed, with the registration's in front.
	Check  string `json:"name"`
	Status Status `json:"status"`
	// Detail is for people, in one sentence. It is never read by a machine.
	Detail string `json:"detail,omitempty"`
	// Codes classify what is wrong, such as ERR_CONFIGURATION_PROBLEM.
	Codes []string `json:"codes,omitempty"`
	// Timeout is how long Progressing is believed. A Progressing result without one counts as False: nothing would ever end it.
	Timeout time.Duration `json:"-"`
}

// Error is the result of a check that could not be made.
func Error(err error) Result { return Result{Status: Unknown, Detail: err.Error()} }

func healthy() Result { return Result{Status: True} }

func unhealthy(detail string) Result { return Result{Status: False, Detail: detail} }

func unknown(detail string) Result { return Result{Status: Unknown, Detail: detail} }

func progressing(detail string) Result { return Result{Status: Progressing, Detail: detail} }

// settled is the result with what follows from it alone: an open-ended Progressing is False, and so is a status that isn't any.
func (r Result) settled() Result {
	switch {
	case r.Status == True, r.Status == False, r.Status == Unknown:
	case r.Status == Progressing && r.Timeout > 0:
	case r.Status == Progressing:
		r.Status = False
	default:
		r.Detail = "the check gave status " + quoteShort(string(r.Status)) + ", which is none"
		r.Status = Unknown
	}
	return r
}

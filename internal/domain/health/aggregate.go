package health

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Reasons of the conditions, those that Gardener's library gives.
const (
	ReasonSuccessful   = "HealthCheckSuccessful"
	ReasonUnsuccessful = "HealthCheckUnsuccessful"
	ReasonProgressing  = "HealthCheckProgressing"
	ReasonCheckError   = "ConditionCheckError"
)

const noResult = "no check gave a result"

// History is what counts of a condition's past. The zero value: it has none.
type History struct {
	// Failed: it was False, and not True since. Progressing doesn't excuse it any more.
	Failed bool
	// New: it was never True. What was never well didn't turn bad.
	New bool
	// Doubted: it failed, which wasn't trusted, and it was neither True nor trusted to be False since.
	Doubted bool
	// Since is when Progressing began, in whole seconds; zero when it didn't, or was followed by True.
	Since time.Time
}

// Verdict is what all checks of one condition type say together.
type Verdict struct {
	Status  Status
	Reason  string
	Message string
	// Codes of all checks that aren't True, sorted, each once.
	Codes []string
	// History that the next verdict needs; Next keeps it in the condition.
	History History
	// RequeueAt is when Progressing turns False without news; zero when time alone changes nothing.
	RequeueAt time.Time
}

// Aggregate makes one verdict of the results of all checks that are about a condition type. Any False makes it False: what another check
// can't know doesn't make that better. So does any Progressing after a failure, or once the smallest of the timeouts is over since it began. Else any
// error makes it Unknown; else any Progressing makes it Progressing; else it is True. What is False stays so until it is True. Without any result it is Unknown.
func Aggregate(results []Result, past History, now time.Time) Verdict {
	all := make([]Result, len(results))
	for i, r := range results {
		all[i] = r.normalized()
	}
	slices.SortStableFunc(all, func(a, b Result) int { return strings.Compare(a.Check, b.Check) })
	groups := map[Status][]Result{}
	for _, r := range all {
		groups[r.Status] = append(groups[r.Status], r)
	}
	rest := slices.Concat(groups[False], groups[Unknown], groups[Progressing])
	v := Verdict{Codes: codes(rest), Message: counted(len(groups[True]), len(all))}
	for _, r := range groups[True] {
		if r.Note != "" {
			rest = append(rest, Result{Check: r.Check, Detail: r.Note})
		}
	}
	if len(rest) > 0 {
		v.Message += ": " + numbered(rest)
	}
	since, deadline := progress(groups[Progressing], past, now)
	switch {
	case len(all) == 0:
		v.Status, v.Reason, v.Message, v.History = Unknown, ReasonCheckError, noResult, past
	case len(groups[False]) > 0:
		v.fail()
	case len(groups[Progressing]) > 0 && !now.Before(deadline):
		v.progressTimedOut()
	case len(groups[Unknown]) > 0:
		v.Status, v.Reason, v.History, v.RequeueAt = Unknown, ReasonCheckError, past, deadline
		v.History.Since = since
	case len(groups[Progressing]) > 0:
		v.Status, v.Reason, v.History, v.RequeueAt = Progressing, ReasonProgressing, History{Since: since, New: past.New, Doubted: past.Doubted}, deadline
	default:
		v.Status, v.Reason = True, ReasonSuccessful
	}
	return v
}

// InDoubt says whether the checks said False, which wasn't trusted, and nothing since says that it is over: not that they can't be made, nor
// that something progresses.
func (v *Verdict) InDoubt() bool { return v.Reason == ReasonInDoubt || v.History.Doubted }

func (v *Verdict) fail() {
	v.Status, v.Reason, v.History = False, ReasonUnsuccessful, History{Failed: true}
}

// progress says when it began, and until when it is trusted: not at all after a failure.
func progress(results []Result, past History, now time.Time) (since, deadline time.Time) {
	since = past.Since
	if len(results) == 0 || past.Failed {
		return since, time.Time{}
	}
	// Rounded up, because a condition has no fractions and False may come late, never early. A start that lies ahead
	// comes from a clock that was wrong.
	if next := now.Add(time.Second - 1).Truncate(time.Second); since.IsZero() || since.After(next) {
		since = next
	}
	timeout := slices.MinFunc(results, func(a, b Result) int { return cmp.Compare(a.Timeout, b.Timeout) }).Timeout
	return since, since.Add(timeout)
}

// progressTimedOut has one text for both causes, so that what turned False by the timeout isn't written once more at the next look.
func (v *Verdict) progressTimedOut() {
	v.fail()
	v.Message += "; progressing for too long, or after a failure"
}

func codes(results []Result) []string {
	var all []string
	for _, r := range results {
		all = append(all, r.Codes...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

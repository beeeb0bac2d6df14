package health

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

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

// worstFirst is the order of statuses for people, and in which one outweighs another; none is the last.
var worstFirst = []Status{False, Unknown, Progressing, True, ""}

// CompareStatus is negative where a is worse than b, and positive where b is.
func CompareStatus(a, b Status) int { return slices.Index(worstFirst, a) - slices.Index(worstFirst, b) }

// Result is what one check says.
type Result struct {
	// Check is its name; in a condition type that several registrations feed, with the registration's in front.
	Check  string `json:"name"`
	Status Status `json:"status"`
	// Detail is for people, in one sentence. It is never read by a machine.
	Detail string `json:"detail,omitempty"`
	// Codes classify what is wrong, such as ERR_CONFIGURATION_PROBLEM.
	Codes []string `json:"codes,omitempty"`
	// Timeout is how long Progressing is trusted. A Progressing result without one counts as False: nothing would ever end it.
	Timeout time.Duration `json:"-"`
	// Note is what people are to know although it is True.
	Note string `json:"note,omitempty"`
	// Faulty: the check itself is, an expression of it can't be evaluated.
	Faulty bool `json:"-"`
	// OnlyAtStart: what is new is like that, and nothing is wrong with it.
	OnlyAtStart bool `json:"-"`
}

// Error is the result of a check that could not be made.
func Error(err error) Result { return Result{Status: Unknown, Detail: err.Error()} }

// Faulty is the result of a check that can't be made for what it is.
func Faulty(err error) Result { return Result{Status: Unknown, Detail: err.Error(), Faulty: true} }

func healthy() Result { return Result{Status: True} }

func unhealthy(detail string) Result { return Result{Status: False, Detail: detail} }

func unknown(detail string) Result { return Result{Status: Unknown, Detail: detail} }

// atStart: what is False is Progressing while the object is new.
func (r Result) atStart() Result {
	r.OnlyAtStart = true
	return r
}

func progressing(detail string) Result { return Result{Status: Progressing, Detail: detail} }

// normalized is the result with what follows from it alone: an open-ended Progressing is False, and so is a status that isn't any.
func (r Result) normalized() Result {
	switch {
	case r.Status == True, r.Status == False, r.Status == Unknown:
	case r.Status == Progressing && r.Timeout > 0:
	case r.Status == Progressing:
		r.Status = False
	default:
		r.Detail = "the check gave status " + quoteShort(string(r.Status)) + ", which is none of True, False, Progressing and Unknown"
		r.Status = Unknown
	}
	return r
}

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

const (
	// maxDetail bounds what one check may say in a condition, in bytes. Details have parts that others wrote.
	maxDetail = 512
	// maxDetails bounds how many checks a message reports: twenty of them are 10 KiB, and metav1.Condition takes 32.
	maxDetails = 20
)

// counted begins each message, as Gardener's do.
func counted(successful, all int) string {
	return fmt.Sprintf("(%d/%d) Health checks successful", successful, all)
}

// numbered lists results, which are sorted.
func numbered(results []Result) string {
	var text strings.Builder
	for i, r := range results[:min(len(results), maxDetails)] {
		if i > 0 {
			text.WriteString("; ")
		}
		fmt.Fprintf(&text, "%d) ", i+1)
		if r.Check != "" {
			text.WriteString(r.Check + ": ")
		}
		text.WriteString(oneLine(r.Detail))
	}
	if more := len(results) - maxDetails; more > 0 {
		fmt.Fprintf(&text, "; and %d more", more)
	}
	return text.String()
}

// oneLine is the text without line breaks and control characters, and not too long.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
	if text == "" {
		return "no details"
	}
	return Shortened(text, maxDetail)
}

// Shortened is a text of at most so many bytes, which ends with … where something is left out.
func Shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	cut := most - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

func quoteShort(text string) string { return strconv.Quote(Shortened(text, 64)) }

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

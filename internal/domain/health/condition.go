package health

import (
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Shape is how a condition is written.
type Shape string

const (
	// Gardener has lastUpdateTime, codes, and Progressing as a status.
	Gardener Shape = "Gardener"
	// Conditions is metav1.Condition: Progressing is Unknown there, and known by its reason.
	Conditions Shape = "Conditions"
)

// Condition on a target, in either shape.
type Condition struct {
	Type    string
	Status  Status
	Reason  string
	Message string
	// Codes are written in Gardener's shape alone.
	Codes []string
	// LastTransition is when Status changed.
	LastTransition time.Time
	// LastUpdate is when Status, Reason, Message or Codes changed. Only Gardener's shape has it.
	LastUpdate time.Time
	// ObservedGeneration of the target. Only metav1.Condition has it.
	ObservedGeneration int64
}

// Next is the condition that follows from a verdict, and whether it has to be written: previous is the one on the target, nil for none.
func Next(previous *Condition, conditionType string, v Verdict, layout Layout, generation int64, now time.Time) (next Condition, changed bool) {
	next = newCondition(conditionType, v, layout, generation, now)
	if previous == nil {
		return next, true
	}
	if previous.Status == next.Status && !previous.LastTransition.IsZero() {
		next.LastTransition = previous.LastTransition
	}
	same := previous.SameContent(&next)
	if same && !previous.LastUpdate.IsZero() && !next.LastUpdate.IsZero() {
		next.LastUpdate = previous.LastUpdate
	}
	// A schema without the field prunes it: then a condition without one would be written again and again.
	seen := previous.ObservedGeneration == 0 || previous.ObservedGeneration == next.ObservedGeneration
	return next, !same || !seen
}

// newCondition has what the layout supports.
func newCondition(conditionType string, v Verdict, layout Layout, generation int64, now time.Time) Condition {
	c := Condition{
		Type: conditionType, Status: v.Status, Reason: v.Reason, Message: v.History.messagePrefix(v.Status) + v.Message,
		LastTransition: now,
	}
	if !layout.Unsupported.LastUpdateTime {
		c.LastUpdate = now
	}
	switch {
	case layout.Shape == Conditions && !layout.Unsupported.ObservedGeneration:
		c.ObservedGeneration = generation
	case layout.Shape != Conditions && !layout.Unsupported.Codes:
		c.Codes = v.Codes
	}
	if layout.Shape == Conditions && v.Status == Progressing {
		c.Status = Unknown
	}
	return c
}

// SameContent says whether both tell the same of the target, whenever that was; none tells nothing.
func (c *Condition) SameContent(other *Condition) bool {
	return c != nil && c.Status == other.Status && c.Reason == other.Reason && c.Message == other.Message && slices.Equal(c.Codes, other.Codes)
}

// Equal says whether both are the same in all they tell; nil is only equal to nil.
func (c *Condition) Equal(other *Condition) bool {
	if c == nil || other == nil {
		return c == other
	}
	return c.Type == other.Type && c.SameContent(other) && c.LastTransition.Equal(other.LastTransition) && c.LastUpdate.Equal(other.LastUpdate) &&
		c.ObservedGeneration == other.ObservedGeneration
}

// The start of Progressing must outlive a restart and a passing Unknown, and a condition has no field for it: in
// metav1.Condition not even Unknown and Progressing differ in lastTransitionTime. So the message begins with it, where it is
// written with the condition and people read it, too. Details of checks can't forge it: they never begin a message.
const (
	neverTrue        = "Not seen healthy yet. "
	wasDoubted       = "Unsuccessful before, which was in doubt. "
	progressingSince = "Progressing since "
	beforeUnknown    = "Unsuccessful, then unknown: "
	thenUnknown      = ", then unknown: "
	thenMore         = ": "
)

// messagePrefix is how the message of a condition with this status begins.
func (h History) messagePrefix(status Status) (text string) {
	switch open := status == Progressing || status == Unknown; {
	case open && h.New:
		text = neverTrue
	case open && h.Doubted:
		text = wasDoubted
	}
	switch {
	case status == Progressing:
		text += progressingSince + h.Since.UTC().Format(time.RFC3339) + thenMore
	case status == Unknown && h.Failed:
		text = beforeUnknown
	case status == Unknown && !h.Since.IsZero():
		text += progressingSince + h.Since.UTC().Format(time.RFC3339) + thenUnknown
	}
	return text
}

// writtenPrefix is how messagePrefix is read: whether it is new or doubted, since when it progresses, and whether it failed.
const writtenPrefix = `^(` + neverTrue + `|` + wasDoubted + `)?(?:` + progressingSince + `([0-9TZ:-]{20})(?:` + thenUnknown + `|` + thenMore + `)|(` + beforeUnknown + `))?`

var prefixOf = regexp.MustCompile(writtenPrefix)

// Past is what counts of the condition for the next verdict; of none, that it is new.
func (c *Condition) Past() History {
	switch {
	case c == nil:
		return History{New: true}
	case c.Status == True:
		return History{}
	case c.Status == False:
		return History{Failed: true}
	}
	prefix := prefixOf.FindStringSubmatch(c.Message)
	if c.Status == Unknown && prefix[3] != "" {
		return History{Failed: true}
	}
	since, err := time.Parse(time.RFC3339, prefix[2])
	if err != nil && c.Status == Progressing { // Gardener's own library wrote it, which has it there
		since = c.LastTransition
	}
	return History{Since: since, New: prefix[1] == neverTrue, Doubted: prefix[1] == wasDoubted || c.InDoubt()}
}

// asMap is the condition as JSON has it. Codes, observedGeneration and lastUpdateTime are there only when they say something.
func (c *Condition) asMap(shape Shape) map[string]any {
	o := map[string]any{
		"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
		"lastTransitionTime": c.LastTransition.UTC().Format(time.RFC3339),
	}
	if shape == Conditions {
		if c.ObservedGeneration > 0 {
			o["observedGeneration"] = c.ObservedGeneration
		}
		return o
	}
	if !c.LastUpdate.IsZero() {
		o["lastUpdateTime"] = c.LastUpdate.UTC().Format(time.RFC3339)
	}
	if len(c.Codes) > 0 {
		_ = unstructured.SetNestedStringSlice(o, c.Codes, "codes") // which no field is in the way of
	}
	return o
}

// Find gives the condition of that type on a target, nil when there is none.
func Find(target *unstructured.Unstructured, conditionType string) *Condition {
	_, entry := find(target, conditionType)
	if entry == nil {
		return nil
	}
	c := &Condition{
		Type: conditionType, Status: Status(stringField(entry, "status")), Reason: stringField(entry, "reason"), Message: stringField(entry, "message"),
		LastTransition: timeField(entry, "lastTransitionTime"), LastUpdate: timeField(entry, "lastUpdateTime"),
	}
	c.ObservedGeneration, _, _ = unstructured.NestedInt64(entry, "observedGeneration")
	c.Codes, _, _ = unstructured.NestedStringSlice(entry, "codes")
	return c
}

// find gives the place and the first entry of that type in status.conditions; -1 and nil when there is none.
func find(target *unstructured.Unstructured, conditionType string) (int, map[string]any) {
	list, _ := conditionsOf(target)
	for i, item := range list {
		if entry, ok := item.(map[string]any); ok && stringField(entry, "type") == conditionType {
			return i, entry
		}
	}
	return -1, nil
}

// ConditionTypes are those of an object's conditions, in their order.
func ConditionTypes(object *unstructured.Unstructured) (types []string) {
	list, _ := conditionsOf(object)
	for _, item := range list {
		if entry, ok := item.(map[string]any); ok {
			types = append(types, stringField(entry, "type"))
		}
	}
	return types
}

// conditionsOf is status.conditions as it is, and whether it is a list at all.
func conditionsOf(target *unstructured.Unstructured) ([]any, bool) {
	value, _, err := unstructured.NestedFieldNoCopy(target.Object, "status", "conditions")
	if err != nil {
		return nil, false
	}
	list, ok := value.([]any)
	return list, ok
}

func stringField(entry map[string]any, field string) string {
	value, _, _ := unstructured.NestedString(entry, field)
	return value
}

func timeField(entry map[string]any, field string) time.Time {
	at, _ := time.Parse(time.RFC3339, stringField(entry, field)) // no time is that of nothing
	return at
}

var writtenReasons = sets.New(ReasonSuccessful, ReasonUnsuccessful, ReasonProgressing, ReasonCheckError, ReasonInDoubt)

var writtenMessage = regexp.MustCompile(writtenPrefix + `(?:` + inDoubtPrefix + `)?(?:\([0-9]+/[0-9]+\) Health checks successful(?:: |$)|` + noResult + `$)`)

// WrittenByChecks says whether the condition is of the form that health checks are written in, whoever's they are. One of another form
// was surely written by somebody else. Of none, it is false. The status isn't part of the form: one that somebody changed by hand, to see
// what follows, is put right.
func (c *Condition) WrittenByChecks() bool {
	return c != nil && writtenReasons.Has(c.Reason) && writtenMessage.MatchString(c.Message)
}

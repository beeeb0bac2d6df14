// Package hold reads the annotation by which people keep Autohealer's hands off an object for a while. It is pure: the time
// comes in as an argument.
package hold

import (
	"fmt"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// MaxDuration is how far ahead a hold may reach. One that reaches further is still in force, and is reported as a mistake: a typo in
// the year would exclude an object from healing for good, unnoticed.
const MaxDuration = 7 * 24 * time.Hour

// Hold is what an object's annotation says. nil is an object without one.
type Hold struct {
	// Text as it was written.
	Text string
	// Until is when it ends; zero when the text is no time.
	Until time.Time
}

// Of reads an object's annotations; nil when none asks for a hold. Text that is no time asks for one all the same.
func Of(annotations map[string]string) *Hold {
	text, there := annotations[v1alpha1.AnnotationHoldUntil]
	if !there {
		return nil
	}
	until, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return &Hold{Text: text}
	}
	return &Hold{Text: text, Until: until}
}

// Same says whether two holds are the same, or both none.
func (h *Hold) Same(other *Hold) bool {
	if h == nil || other == nil {
		return h == other
	}
	return h.Text == other.Text
}

// Active says whether nothing may be done to the object now. Server is the API server's clock, zero while it isn't known: a
// hold is over when neither clock says that it goes on. One that can't be read is never over.
func (h *Hold) Active(now, server time.Time) bool {
	switch {
	case h == nil:
		return false
	case h.Until.IsZero():
		return true
	}
	return now.Before(h.Until) || !server.IsZero() && server.Before(h.Until)
}

// RequeueAt is when, by our own clock, time alone ends the hold; zero when it won't, or did.
func (h *Hold) RequeueAt(now, server time.Time) time.Time {
	switch {
	case h == nil || h.Until.IsZero() || !h.Active(now, server):
		return time.Time{}
	case server.IsZero():
		return h.Until
	}
	return now.Add(max(h.Until.Sub(now), h.Until.Sub(server)))
}

// Fault says what is wrong with a hold, "" when nothing is.
func (h *Hold) Fault(now time.Time) string {
	switch {
	case h == nil:
		return ""
	case h.Until.IsZero():
		return fmt.Sprintf("%.40q is no time such as 2026-11-21T03:00:00Z; correct or remove it", h.Text)
	case h.Until.Sub(now) > MaxDuration:
		return fmt.Sprintf("that is more than %d days ahead; correct it if it is a mistake", int(MaxDuration/(24*time.Hour)))
	}
	return ""
}

// Message describes a hold; it stays the same while the hold does.
func (h *Hold) Message(now time.Time) string {
	if h == nil {
		return ""
	}
	message := "the annotation " + v1alpha1.AnnotationHoldUntil + " keeps Autohealer from it"
	if !h.Until.IsZero() {
		message += " until " + h.Until.UTC().Format(time.RFC3339)
	}
	if fault := h.Fault(now); fault != "" {
		message += ": " + fault
	}
	return message
}

// Text is the annotation's value for a hold that ends then.
func Text(until time.Time) string { return until.UTC().Format(time.RFC3339) }

package health

import (
	"regexp"
	"slices"
)

// writtenAs are the statuses that a condition of each reason is written with, in either shape.
var writtenAs = map[string][]Status{
	ReasonSuccessful:   {True},
	ReasonUnsuccessful: {False},
	ReasonProgressing:  {Progressing, Unknown},
	ReasonCheckError:   {Unknown},
	ReasonInDoubt:      {Unknown},
}

// writtenMessage is how each message begins.
var writtenMessage = regexp.MustCompile(`^(` + progressingSince + `[0-9TZ:-]{20}(` + thenUnknown + `|` + thenMore + `)|` + beforeUnknown + `)?` +
	`(` + notBelieved + `)?(\([0-9]+/[0-9]+\) Health checks successful(: |$)|` + noResult + `$)`)

// ByChecks says whether the condition is of the form that health checks are written in, whoever's they are. One of another form
// was surely written by somebody else. Of none, it is false.
func (c *Condition) ByChecks() bool {
	return c != nil && slices.Contains(writtenAs[c.Reason], c.Status) && writtenMessage.MatchString(c.Message)
}

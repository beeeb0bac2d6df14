package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// ChecksPlan is what a HealthCheckRegistration would do.
type ChecksPlan struct {
	Registration *v1alpha1.HealthCheckRegistration
	// Unknown says what could not be read; then Preview and Outlook are empty.
	Unknown string
	Preview registration.Preview
	Outlook registration.Outlook
}

// acts is how many conditions would be written.
func (c *ChecksPlan) acts(may bool) int {
	if !may || c.Preview.Unwritable != "" {
		return 0
	}
	return c.Outlook.Writes
}

// outcome says in one line what would be done.
func (c *ChecksPlan) outcome(pausedBy []string) string {
	turns := fmt.Sprintf("%d of %s False", c.Outlook.Fails, count(len(c.Outlook.Forecasts), "target"))
	spec := &c.Registration.Spec
	switch {
	case c.Unknown != "":
		return "what it would do is not known"
	case spec.Mode == v1alpha1.Observe:
		return "observes, and writes nothing; would set " + turns
	case spec.Output == v1alpha1.OutputRegistrationOnly:
		return "writes no conditions; would tell of " + turns
	case c.Preview.Unwritable != "":
		return "would write nothing: " + c.Preview.Unwritable
	case len(pausedBy) > 0:
		return "would write nothing: paused by Guardrail " + strings.Join(pausedBy, ", ")
	}
	return fmt.Sprintf("would set %s, and write %s in all", turns, count(c.Outlook.Writes, "condition"))
}

// details are lines of a name and a text.
func (c *ChecksPlan) details() [][2]string {
	if c.Unknown != "" {
		return [][2]string{{"not known", c.Unknown}}
	}
	targets := count(c.Outlook.Targets, "target")
	if looked := len(c.Outlook.Forecasts); looked < c.Outlook.Targets {
		targets += fmt.Sprintf(", of which the first %d were looked at", looked)
	}
	if c.Outlook.More {
		targets += "; there are more objects of the kind"
	}
	lines := [][2]string{{"targets", targets}, {"now", fmt.Sprintf("%d with a condition that is False", c.Outlook.Failing)}}
	if n := c.Outlook.Held; n > 0 {
		lines = append(lines, [2]string{"in doubt", count(n, "target") + " more would be False; the breaker opens before, and they would be Unknown"})
	}
	return lines
}

// ailingShown is of how many targets that aren't healthy everything is told.
const ailingShown = 20

// writeTargets tells of each target what would become of its conditions and why, the worst first. Of those that are healthy and
// stay so it only counts.
func (c *ChecksPlan) writeTargets(out *strings.Builder) {
	shown, quiet := 0, 0
	for i := range c.Outlook.Forecasts {
		f := &c.Outlook.Forecasts[i]
		switch {
		case quietly(f):
			quiet++
		case shown < ailingShown:
			shown++
			writeTarget(out, f)
		}
	}
	if more := len(c.Outlook.Forecasts) - shown - quiet; more > 0 {
		fmt.Fprintf(out, "  … and %s more; -o json has them all\n", count(more, "target"))
	}
	if quiet > 0 {
		fmt.Fprintf(out, "  %s: all conditions True, or as they are\n", count(quiet, "other target"))
	}
}

// quietly: there is nothing to tell of a target.
func quietly(f *registration.TargetForecast) bool {
	for i := range f.Conditions {
		if c := &f.Conditions[i]; c.Foreign || c.Kept != "" || c.Would.Status != health.True {
			return false
		}
	}
	return f.Problem == "" && !f.Suspended
}

func writeTarget(out *strings.Builder, f *registration.TargetForecast) {
	fmt.Fprintf(out, "  Target %s:\n", printable(strings.TrimPrefix(f.Namespace+"/"+f.Name, "/")))
	switch {
	case f.Problem != "":
		fmt.Fprintf(out, "    %s\n", printable("not checked: "+f.Problem))
	case f.Suspended:
		fmt.Fprintln(out, "    not checked: suspendWhen is true, so its conditions stay as they are")
	}
	for i := range f.Conditions {
		for _, line := range f.Conditions[i].Lines() {
			fmt.Fprintf(out, "    %s\n", printable(line))
		}
	}
}

type jsonChecks struct {
	Targets int  `json:"targets"`
	More    bool `json:"more"`
	// WouldFail counts targets with a condition that would turn False, InDoubt those that the breaker wouldn't believe, Failing
	// those with one that is False now.
	WouldFail int    `json:"wouldFail"`
	InDoubt   int    `json:"inDoubt"`
	Failing   int    `json:"failing"`
	Unknown   string `json:"unknown,omitempty"`
	// Forecasts of the targets that were looked at, the worst first.
	Forecasts []jsonForecastOf `json:"forecasts"`
}

type jsonForecastOf struct {
	Namespace  string          `json:"namespace,omitempty"`
	Name       string          `json:"name"`
	Suspended  bool            `json:"suspended,omitempty"`
	Conditions []jsonCondition `json:"conditions"`
}

type jsonCondition struct {
	Type string `json:"type"`
	// Now is "" where there is none, Would where it isn't known.
	Now     string `json:"now"`
	Would   string `json:"would"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Until is when Progressing turns False.
	Until   *time.Time `json:"until,omitempty"`
	Foreign bool       `json:"foreign,omitempty"`
	InDoubt bool       `json:"inDoubt,omitempty"`
	// Kept says why it stays as it is, whatever its checks say.
	Kept    string `json:"kept,omitempty"`
	Removed bool   `json:"removed,omitempty"`
	Writes  bool   `json:"writes"`
	// NotMade are checks that aren't made here.
	NotMade []string    `json:"notMade,omitempty"`
	Checks  []jsonCheck `json:"checks"`
}

type jsonCheck struct {
	Name   string   `json:"name"`
	Status string   `json:"status"`
	Detail string   `json:"detail,omitempty"`
	Codes  []string `json:"codes,omitempty"`
}

func (c *ChecksPlan) json() *jsonChecks {
	o := &c.Outlook
	j := &jsonChecks{Targets: o.Targets, More: o.More, WouldFail: o.Fails, InDoubt: o.Held, Failing: o.Failing, Unknown: c.Unknown, Forecasts: []jsonForecastOf{}}
	for i := range o.Forecasts {
		f := &o.Forecasts[i]
		target := jsonForecastOf{Namespace: f.Namespace, Name: f.Name, Suspended: f.Suspended, Conditions: []jsonCondition{}}
		for k := range f.Conditions {
			target.Conditions = append(target.Conditions, conditionOf(&f.Conditions[k]))
		}
		j.Forecasts = append(j.Forecasts, target)
	}
	return j
}

func conditionOf(c *registration.ConditionForecast) jsonCondition {
	j := jsonCondition{
		Type: c.Type, Now: string(c.Now), Would: string(c.Would.Status), Reason: c.Would.Reason, Message: c.Would.Message,
		Foreign: c.Foreign, InDoubt: c.Held, Kept: c.Kept, Removed: c.Removed, Writes: c.Writes, NotMade: c.NotMade, Checks: []jsonCheck{},
	}
	if !c.Would.LookAgain.IsZero() {
		j.Until = &c.Would.LookAgain
	}
	for _, r := range c.Results {
		j.Checks = append(j.Checks, jsonCheck{Name: r.Check, Status: string(r.Status), Detail: r.Detail, Codes: r.Codes})
	}
	return j
}

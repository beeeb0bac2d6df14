package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// maxUnhealthyShown is of how many targets that aren't healthy everything is shown.
const maxUnhealthyShown = 20

type jsonTarget struct {
	Namespace  string          `json:"namespace,omitempty"`
	Name       string          `json:"name"`
	Suspended  bool            `json:"suspended,omitempty"`
	Conditions []jsonCondition `json:"conditions"`
}

type jsonCondition struct {
	Type string `json:"type"`
	// Now is "" where there is none, Would where it isn't known.
	Now     health.Status `json:"now"`
	Would   health.Status `json:"would"`
	Reason  string        `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
	// Until is when Progressing turns False.
	Until   time.Time `json:"until,omitzero"`
	Foreign bool      `json:"foreign,omitempty"`
	InDoubt bool      `json:"inDoubt,omitempty"`
	// Kept says why it stays as it is, whatever its checks say.
	Kept    string `json:"kept,omitempty"`
	Removed bool   `json:"removed,omitempty"`
	Writes  bool   `json:"writes"`
	// NotMade are checks that aren't made here.
	NotMade []string        `json:"notMade,omitempty"`
	Checks  []health.Result `json:"checks"`
}

func targetsOf(all []registration.TargetForecast) []jsonTarget {
	targets := []jsonTarget{}
	for i := range all {
		target := jsonTarget{all[i].Namespace, all[i].Name, all[i].Suspended, []jsonCondition{}}
		for k := range all[i].Conditions {
			c := &all[i].Conditions[k]
			target.Conditions = append(target.Conditions, jsonCondition{
				c.Type, c.Now, c.Verdict.Status, c.Verdict.Reason, c.Verdict.Message, c.Verdict.RequeueAt,
				c.Foreign, c.Held, c.Unchanged, c.Removed, c.Writes, c.NotEvaluated, append([]health.Result{}, c.Results...),
			})
		}
		targets = append(targets, target)
	}
	return targets
}

// HealthCheckRegistration takes in what a registration would do. Unknown says what could not be read; then the forecast is
// empty.
func (p *Plan) HealthCheckRegistration(hcr *v1alpha1.HealthCheckRegistration, f registration.Forecast, unknown string, pausedBy []string) {
	failing := fmt.Sprintf("%d of %s False", f.WouldFail, sample.Count(len(f.Items.Targets), "target"))
	switch {
	case unknown != "":
		p.outcome = "what it would do is not known"
	case hcr.Spec.Mode == v1alpha1.Observe:
		p.outcome = "observes, and writes nothing; would set " + failing
	case hcr.Spec.Output == v1alpha1.OutputRegistrationOnly:
		p.outcome = "writes no conditions; would report " + failing
	case f.Unwritable != "":
		p.outcome = "would write nothing: " + f.Unwritable
	case len(pausedBy) > 0:
		p.outcome = "would write nothing: paused by Guardrail " + strings.Join(pausedBy, ", ")
	default:
		p.outcome = fmt.Sprintf("would set %s, and write %s in all", failing, sample.Count(f.Items.Writes, "condition"))
	}
	if p.Report.Allowed && len(pausedBy) == 0 && f.Unwritable == "" {
		p.Acts = f.Items.Writes
	}
	asJSON := map[string]any{
		"targets": f.Targets, "more": f.Items.More, "wouldFail": f.WouldFail, "inDoubt": f.WouldBeDoubted, "failing": f.Items.Failing, "forecasts": targetsOf(f.Items.Targets),
	}
	p.json = map[string]any{"checks": asJSON}
	if unknown != "" {
		asJSON["unknown"] = unknown
		p.row("not known", "%s", unknown)
		return
	}
	p.checksRows(f)
	p.checked(f.Items.Targets)
}

func (p *Plan) checksRows(f registration.Forecast) {
	targets := sample.Count(f.Targets, "target")
	if checked := len(f.Items.Targets); checked < f.Targets {
		targets += fmt.Sprintf(", of which the first %d were looked at", checked)
	}
	if f.Items.More {
		targets += "; there are more objects of the kind"
	}
	p.row("targets", "%s", targets)
	p.row("now", "%d with a condition that is False", f.Items.Failing)
	if f.Targets > 0 {
		p.row("rights", "these are yours; to see whether Autohealer has what it needs: kubectl apply --dry-run=server -f %s", p.Report.File)
	}
	if n := f.WouldBeDoubted; n > 0 {
		p.row("in doubt", "%s more would be False; the breaker opens before, and they would be Unknown", sample.Count(n, "target"))
	}
}

// checked tells of each target what would become of its conditions and why, the worst first. Of those that are healthy and
// stay so it only counts.
func (p *Plan) checked(targets []registration.TargetForecast) {
	shown, healthy := 0, 0
	for i := range targets {
		switch t := &targets[i]; {
		case t.AllHealthy():
			healthy++
		case shown < maxUnhealthyShown:
			shown++
			p.target(t)
		}
	}
	p.more(1, len(targets)-shown-healthy, "target", allInJSON)
	if healthy > 0 {
		p.line(1, "%s: all conditions True, or as they are", sample.Count(healthy, "other target"))
	}
}

func (p *Plan) target(t *registration.TargetForecast) {
	p.line(1, "Target %s:", strings.TrimPrefix(t.Namespace+"/"+t.Name, "/"))
	switch {
	case t.Problem != "":
		p.line(2, "not checked: %s", t.Problem)
	case t.Suspended:
		p.line(2, "not checked: suspendWhen is true, so its conditions stay as they are")
	}
	for i := range t.Conditions {
		for _, line := range t.Conditions[i].Lines() {
			p.line(2, "%s", line)
		}
	}
}

package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/guard"
)

// home is where the project's files are on the web.
const home = "https://github.com/resourcestack/autohealer"

// SARIF writes the format that code scanning reads, version 2.1.0. A rule that lacked something to ask is a notification: it is no
// finding, and must not become an alert.
func SARIF(w io.Writer, result Result) error {
	run := sarif.NewRunWithInformationURI("kubectl-autohealer", home)
	run.Tool.Driver.WithVersion(result.Version)
	for _, rule := range rulesOf(result) {
		addRule(run, rule)
	}
	invocation := sarif.NewInvocation().WithExecutionSuccessful(true)
	type skip struct {
		missing guard.Missing
		rule    string
	}
	skipped := map[skip][]*sarif.Location{}
	for _, r := range result.Reports {
		for _, f := range findings(r) {
			run.CreateResultForRule(f.rule).WithLevel(levelOf(f.deny)).
				WithMessage(sarif.NewTextMessage(prefix(kindAndName(r)) + f.message)).
				WithLocations([]*sarif.Location{location(r.File, f.line)})
		}
		for _, s := range r.Skipped {
			if s.Missing != "" {
				key := skip{s.Missing, s.Rule}
				skipped[key] = append(skipped[key], location(r.File, r.Line))
			}
		}
	}
	byRule := func(a, b skip) int { return cmp.Compare(a.rule, b.rule) }
	for _, s := range slices.SortedFunc(maps.Keys(skipped), byRule) {
		invocation.AddToolExecutionNotification(sarif.NewNotification().WithLevel("note").
			WithAssociatedRule(sarif.NewReportingDescriptorReference().WithID(s.rule).WithIndex(run.GetRuleIndex(s.rule))).
			WithMessage(sarif.NewTextMessage(skippedLabel(s.missing) + ": " + s.rule)).
			WithLocations(skipped[s]))
	}
	run.AddInvocation(invocation)
	document := sarif.NewReport()
	document.AddRun(run)
	if err := document.PrettyWrite(w); err != nil {
		return fmt.Errorf("write SARIF: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// rulesOf are the rules of text and schema and all of the catalogue, so that a rule's index doesn't hang on what was found.
func rulesOf(result Result) []guard.Rule {
	rules := []guard.Rule{
		{ID: check.RuleUndecodable, Severity: guard.Deny, Rationale: "Text that is neither YAML nor JSON, or no Kubernetes object, never gets as far as the API server."},
		{ID: check.RuleDuplicateObject, Severity: guard.Warn, Rationale: "Of two objects of one name the one that is applied last replaces the other."},
		{ID: check.RuleDuplicateKey, Severity: guard.Deny, Rationale: "Of a key that is in a map twice only one value is kept, and nobody is told which."},
		{ID: check.RuleKind, Severity: guard.Deny, Rationale: "The API server serves no such kind in this version."},
		{ID: check.RuleUnknownField, Severity: guard.Deny, Rationale: "A field that the schema doesn't know does nothing: most are misspelt."},
		{ID: check.RuleValue, Severity: guard.Deny, Rationale: "The schema of the CustomResourceDefinition refuses the value."},
	}
	for _, r := range result.Rules {
		rules = append(rules, r.Rule)
	}
	known := map[string]bool{}
	for _, r := range rules {
		known[r.ID] = true
	}
	for _, r := range result.Reports { // rules of the engine itself
		for _, f := range findings(r) {
			if !known[f.rule] {
				known[f.rule] = true
				rules = append(rules, guard.Rule{ID: f.rule, Severity: guard.Deny, Rationale: "The rules could not be asked."})
			}
		}
	}
	return rules
}

func addRule(run *sarif.Run, rule guard.Rule) {
	docs := guard.Docs(rule.ID)
	if rule.Expression == "" {
		docs = check.Docs(rule.ID)
	}
	run.AddRule(rule.ID).
		WithDescription(rule.FixedMessage()).
		WithHelpURI(home + "/blob/main/" + docs).
		WithDefaultConfiguration(sarif.NewReportingConfiguration().WithLevel(levelOf(rule.Severity == guard.Deny)))
}

func levelOf(deny bool) string {
	if deny {
		return "error"
	}
	return "warning"
}

func location(file string, line int) *sarif.Location {
	uri := url.URL{Path: file}
	return sarif.NewLocationWithPhysicalLocation(sarif.NewPhysicalLocation().
		WithArtifactLocation(sarif.NewSimpleArtifactLocation(uri.String())).
		WithRegion(sarif.NewRegion().WithStartLine(max(1, line))))
}

package report

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/url"
	"slices"

	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/guard"
)

// home is where the project's files are on the web.
const home = "https://github.com/resourcestack/autohealer"

// What a SARIF log has of what the standard knows: what code scanning reads. Libraries write each optional property of each result,
// three times the bytes of what there is to say, and code scanning takes 10 MB.
type (
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		InformationURI string      `json:"informationUri"`
		Version        string      `json:"version"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID                   string    `json:"id"`
		ShortDescription     sarifText `json:"shortDescription"`
		FullDescription      sarifText `json:"fullDescription"`
		Help                 sarifText `json:"help"`
		HelpURI              string    `json:"helpUri"`
		DefaultConfiguration struct {
			Level string `json:"level"`
		} `json:"defaultConfiguration"`
	}
	sarifInvocation struct {
		ExecutionSuccessful        bool                `json:"executionSuccessful"`
		ToolExecutionNotifications []sarifNotification `json:"toolExecutionNotifications,omitempty"`
	}
	sarifNotification struct {
		AssociatedRule sarifRuleReference `json:"associatedRule"`
		Level          string             `json:"level"`
		Message        sarifText          `json:"message"`
	}
	sarifRuleReference struct {
		ID    string `json:"id"`
		Index int    `json:"index"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		PhysicalLocation struct {
			ArtifactLocation struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
			Region struct {
				StartLine int `json:"startLine"`
			} `json:"region"`
		} `json:"physicalLocation"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
)

// SARIF writes the format that code scanning reads, version 2.1.0. A rule that lacked something to ask is a notification: it is no
// finding, and must not become an alert. All objects for which it lacked the same share one.
func SARIF(w io.Writer, result Result) error {
	tool := sarifTool{sarifDriver{Name: "kubectl-autohealer", InformationURI: home, Version: result.Version}}
	indices := map[string]int{}
	for i, rule := range rulesOf(result) {
		indices[rule.ID] = i
		tool.Driver.Rules = append(tool.Driver.Rules, sarifRuleOf(rule))
	}
	out := &jsonWriter{to: bufio.NewWriter(w)}
	out.text(`{"$schema":"https://json.schemastore.org/sarif-2.1.0.json","version":"2.1.0","runs":[{"tool":`)
	out.value(tool)
	out.text(`,"invocations":`)
	out.value([]sarifInvocation{{ExecutionSuccessful: true, ToolExecutionNotifications: notificationsOf(result, indices)}})
	out.text(`,"results":[`)
	separator := ""
	for _, r := range result.Reports { // one after the other: there may be many
		for _, f := range findings(r) {
			out.text(separator)
			out.value(sarifResult{
				RuleID: f.Rule, RuleIndex: indices[f.Rule], Level: level(f.Severity),
				Message: sarifText{prefix(kindAndName(r)) + f.Message}, Locations: []sarifLocation{location(r.File, f.Line)},
			})
			separator = ","
		}
	}
	out.text("]}]}\n")
	return out.flush()
}

// jsonWriter writes JSON piece by piece, and keeps the first error.
type jsonWriter struct {
	to  *bufio.Writer
	err error
}

func (w *jsonWriter) text(text string) { _, _ = w.to.WriteString(text) } // the error is Flush's as well

func (w *jsonWriter) value(value any) {
	text, err := json.Marshal(value)
	w.err = cmp.Or(w.err, err)
	_, _ = w.to.Write(text)
}

func (w *jsonWriter) flush() error { return cmp.Or(w.err, w.to.Flush()) }

// notificationsOf has one for each rule that lacked something to ask, with the number of objects.
func notificationsOf(result Result, indices map[string]int) []sarifNotification {
	type skip struct {
		rule    string
		missing guard.Missing
	}
	objects := map[skip]int{}
	for _, r := range result.Reports {
		for _, s := range r.Skipped {
			if s.Missing != "" {
				objects[skip{s.Rule, s.Missing}]++
			}
		}
	}
	var notifications []sarifNotification
	for _, s := range slices.SortedFunc(maps.Keys(objects), func(a, b skip) int {
		return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.missing, b.missing))
	}) {
		notifications = append(notifications, sarifNotification{
			AssociatedRule: sarifRuleReference{ID: s.rule, Index: indices[s.rule]}, Level: "note",
			Message: sarifText{skippedLabel(s.missing) + ": " + s.rule + ", for " + sample.Count(objects[s], "object")},
		})
	}
	return notifications
}

// rulesOf are the rules of text and schema and all of the catalogue, so that a rule's index doesn't hang on what was found. A rule
// of a Guardrail comes once, and not for each of its kinds.
func rulesOf(result Result) []guard.Rule {
	var rules []guard.Rule
	known := map[string]bool{}
	add := func(r guard.Rule) {
		if !known[r.ID] {
			known[r.ID] = true
			rules = append(rules, r)
		}
	}
	for _, r := range textRules {
		add(r)
	}
	for _, r := range result.Rules {
		add(r.Rule)
	}
	for _, r := range result.Reports { // rules of the engine itself
		for _, f := range findings(r) {
			add(guard.Rule{ID: f.Rule, Severity: guard.Deny, Rationale: "The rules could not be asked."})
		}
	}
	return rules
}

// textRules are those of text and schema.
var textRules = []guard.Rule{
	{ID: check.RuleUndecodable, Severity: guard.Deny, Rationale: "Text that is neither YAML nor JSON, or no Kubernetes object, never gets as far as the API server."},
	{ID: check.RuleDuplicateObject, Severity: guard.Warn, Rationale: "Of two objects of one name the one that is applied last replaces the other."},
	{ID: check.RuleDuplicateKey, Severity: guard.Deny, Rationale: "Of a key that is in a map twice only one value is kept, and nobody is told which."},
	{ID: check.RuleKind, Severity: guard.Deny, Rationale: "The API server serves no such kind in this version."},
	{ID: check.RuleUnknownField, Severity: guard.Deny, Rationale: "A field that the schema doesn't know does nothing: most are misspelt."},
	{ID: check.RuleValue, Severity: guard.Deny, Rationale: "The schema of the CustomResourceDefinition refuses the value."},
}

// sarifRuleOf describes a rule: code scanning wants all three texts.
func sarifRuleOf(rule guard.Rule) sarifRule {
	docs := guard.Docs(rule.ID)
	if rule.Expression == "" {
		docs = check.Docs(rule.ID)
	}
	text := sarifText{rule.FixedMessage()}
	described := sarifRule{ID: rule.ID, ShortDescription: text, FullDescription: text, Help: text, HelpURI: home + "/blob/main/" + docs}
	described.DefaultConfiguration.Level = level(rule.Severity)
	return described
}

func location(file string, line int) sarifLocation {
	uri := url.URL{Path: file}
	var l sarifLocation
	l.PhysicalLocation.ArtifactLocation.URI = uri.String()
	l.PhysicalLocation.Region.StartLine = max(1, line)
	return l
}

package report

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/url"
	"slices"
	"strings"
	"text/template"
	"unicode"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/display"
	"github.com/resourcestack/autohealer/internal/domain/docs"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/guard"
)

// Text writes for people: one finding a line, as compilers do, and a summary.
func Text(w io.Writer, result Result) error {
	out := bufio.NewWriter(w)
	colorize := display.Colorizer(result.Colors)
	for _, r := range result.Reports {
		for _, f := range findings(r) {
			word := colorize(color(f.Severity), level(f.Severity))
			fmt.Fprintf(out, "%s:%d: %s%s: %s: %s (%s)\n", Printable(r.File), f.Line, prefix(kindAndName(r)), word, f.Rule, Printable(f.Message), f.Docs)
		}
	}
	for _, skipped := range skippedTogether(result) {
		fmt.Fprintf(out, "%s for %s: %s\n", colorize(display.Faint, skipped.label), sample.Count(skipped.objects, "object"), skipped.rules)
	}
	_, _ = out.WriteString(summary(result)) // the error is Flush's as well
	return out.Flush()
}

func color(of guard.Severity) display.Color {
	if of == guard.Deny {
		return display.Red
	}
	return display.Yellow
}

// skippedTogether are the rules that lacked something to ask, with the number of objects about which.
func skippedTogether(result Result) []skippedRules {
	var all []skippedRules
	for _, missing := range missingKinds {
		for _, r := range result.Reports {
			s := skippedRules{label: skippedLabel(missing), rules: strings.Join(skippedFor(r, missing), ", "), objects: 1}
			i := slices.IndexFunc(all, func(other skippedRules) bool { return other.label == s.label && other.rules == s.rules })
			switch {
			case s.rules == "":
			case i < 0:
				all = append(all, s)
			default:
				all[i].objects++
			}
		}
	}
	return all
}

type skippedRules struct {
	label, rules string
	objects      int
}

func prefix(name string) string {
	if name == "" {
		return ""
	}
	return Printable(name) + ": "
}

// Printable keeps a text away from the terminal's controls; further lines of it are indented.
func Printable(text string) string {
	return strings.ReplaceAll(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return unicode.ReplacementChar
		}
		return r
	}, text), "\n", "\n    ")
}

// summary is one line.
func summary(result Result) string {
	refused, warned := 0, 0
	lacking := map[guard.Missing]map[string]bool{guard.MissingFacts: {}, guard.MissingAuthorizer: {}, guard.MissingRequest: {}}
	for _, r := range result.Reports {
		switch {
		case !r.Allowed:
			refused++
		case r.Warns():
			warned++
		}
		for _, s := range r.Skipped {
			if s.Missing != "" {
				lacking[s.Missing][s.Rule] = true
			}
		}
	}
	clauses := []string{fmt.Sprintf("%s checked: %d refused, %d with warnings", sample.Count(len(result.Reports), "object"), refused, warned)}
	hints := map[guard.Missing]string{
		guard.MissingFacts:      "facts (--facts or --live)",
		guard.MissingAuthorizer: "an API server that knows rights (--live)",
		guard.MissingRequest:    "a request that says who asks (kubectl apply --dry-run=server)",
	}
	if result.Facts != "" {
		hints[guard.MissingFacts] = "more facts than these (facts export writes new ones, or --live)"
	}
	for _, missing := range missingKinds {
		if n := len(lacking[missing]); n > 0 {
			clauses = append(clauses, sample.Count(n, "rule")+" skipped for want of "+hints[missing])
		}
	}
	if result.Facts != "" {
		clauses = append(clauses, result.Facts)
	}
	if result.Ignored > 0 {
		clauses = append(clauses, sample.Count(result.Ignored, "document")+" of other API groups ignored")
	}
	if len(result.Reports) == 0 {
		clauses = append(clauses, "nothing here is Autohealer's: is it the right place?")
	}
	return strings.Join(clauses, "; ") + "\n"
}

// sarifLog is a log with what code scanning reads of what the standard knows. Libraries write each optional property of each result,
// three times the bytes of what there is to say, and code scanning takes 10 MB.
var sarifLog = template.Must(template.New("sarif").Funcs(template.FuncMap{"json": asJSON, "level": level, "help": helpURI}).Parse(strings.ReplaceAll(`
{"$schema":"https://json.schemastore.org/sarif-2.1.0.json","version":"2.1.0","runs":[
{"tool":{"driver":{"name":"kubectl-autohealer","informationUri":{{json .Home}},"version":{{json .Version}},"rules":[
{{range $i, $rule := .Rules}}{{if $i}},{{end}}
{{$text := json .FixedMessage}}
{"id":{{json .ID}},"shortDescription":{"text":{{$text}}},"fullDescription":{"text":{{$text}}},"help":{"text":{{$text}}},
"helpUri":{{json (help .)}},"defaultConfiguration":{"level":"{{level .Severity}}"}}
{{end}}]}},
"invocations":[{"executionSuccessful":true
{{with .Skipped}},"toolExecutionNotifications":[
{{range $i, $skip := .}}{{if $i}},{{end}}
{"associatedRule":{"id":{{json .Rule}},"index":{{index $.Indices .Rule}}},"level":"note","message":{"text":{{json .Text}}}}
{{end}}]{{end}}}],
"results":[
{{range $i, $result := .Results}}{{if $i}},{{end}}
{"ruleId":{{json .Rule}},"ruleIndex":{{index $.Indices .Rule}},"level":"{{level .Severity}}","message":{"text":{{json .Text}}},
"locations":[{"physicalLocation":{"artifactLocation":{"uri":{{json .URI}}},"region":{"startLine":{{.Line}}}}}]}
{{end}}]}]}`, "\n", "") + "\n"))

// sarifResult is a violation with its object and the line of its file, or a rule that lacked something to ask.
type sarifResult struct {
	Rule      string
	Severity  guard.Severity
	Text, URI string
	Line      int
}

func asJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// SARIF writes the format that code scanning reads, version 2.1.0. A rule that lacked something to ask is a notification: it is no
// finding, and must not become an alert. All objects for which it lacked the same share one.
func SARIF(w io.Writer, result Result) error {
	rules, indices := rulesOf(result), map[string]int{}
	for i, rule := range rules {
		indices[rule.ID] = i
	}
	results := func(yield func(int, sarifResult) bool) { // one after the other: there may be many
		n := 0
		for _, r := range result.Reports {
			for _, f := range findings(r) {
				file := url.URL{Path: r.File}
				if !yield(n, sarifResult{f.Rule, f.Severity, prefix(kindAndName(r)) + f.Message, file.String(), max(1, f.Line)}) {
					return
				}
				n++
			}
		}
	}
	out := bufio.NewWriter(w)
	err := sarifLog.Execute(out, map[string]any{
		"Home": docs.Project, "Version": result.Version, "Rules": rules, "Indices": indices, "Skipped": skippedByRule(result), "Results": iter.Seq2[int, sarifResult](results),
	})
	return cmp.Or(err, out.Flush())
}

// skippedByRule has one for each rule and what it lacked, with the number of objects.
func skippedByRule(result Result) (skipped []sarifResult) {
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
	for s, n := range objects {
		skipped = append(skipped, sarifResult{Rule: s.rule, Text: skippedLabel(s.missing) + ": " + s.rule + ", for " + sample.Count(n, "object")})
	}
	slices.SortFunc(skipped, func(a, b sarifResult) int { return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Text, b.Text)) })
	return skipped
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
			add(textRule(f.Rule, guard.Deny, "The rules could not be asked."))
		}
	}
	return rules
}

// textRules are those of text and schema.
var textRules = []guard.Rule{
	textRule(check.RuleUndecodable, guard.Deny, "Text that is neither YAML nor JSON, or no Kubernetes object, never gets as far as the API server."),
	textRule(check.RuleDuplicateObject, guard.Warn, "Of two objects of one name the one that is applied last replaces the other."),
	textRule(check.RuleDuplicateKey, guard.Deny, "Of a key that is in a map twice only one value is kept, and which one isn't reported."),
	textRule(check.RuleKind, guard.Deny, "The API server serves no such kind in this version."),
	textRule(check.RuleUnknownField, guard.Deny, "A field that the schema doesn't know does nothing: most are misspelt."),
	textRule(check.RuleValue, guard.Deny, "The schema of the CustomResourceDefinition refuses the value."),
}

func textRule(id string, severity guard.Severity, rationale string) guard.Rule {
	return guard.Rule{ID: id, GuardrailRule: v1alpha1.GuardrailRule{Severity: severity, Rationale: rationale}}
}

// helpURI is where a rule is explained on the web.
func helpURI(rule guard.Rule) string {
	if rule.Expression == "" {
		return check.Docs(rule.ID)
	}
	return guard.Docs(rule.ID)
}

package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/guard"
)

// Result is what a run found.
type Result struct {
	Reports []check.Report
	// Ignored documents are of other API groups.
	Ignored int
	// Facts says what was known of the cluster, "" when nothing was.
	Facts string
	// Version of this program.
	Version string
	// Rules of the catalogue, for formats that list them.
	Rules []guard.RuleInfo
	// FailOnWarning: a warning fails the run.
	FailOnWarning bool
	// Colors: the output is a terminal that wants them.
	Colors bool
}

// Writer writes a result.
type Writer func(io.Writer, Result) error

// Writers by the name of their format.
var Writers = map[string]Writer{"text": Text, "json": JSON, "sarif": SARIF, "junit": JUnit, "github": GitHub}

// Formats are the names, the default first.
func Formats() []string { return []string{"text", "json", "sarif", "junit", "github"} }

// kindAndName is how people name an object.
func kindAndName(r check.Report) string {
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	return strings.TrimSpace(r.Kind + " " + name)
}

// found is one line of what was found.
type found struct {
	rule, message, docs string
	line                int
	deny                bool
}

// findings are an object's violations, and the rules that failed themselves.
func findings(r check.Report) []found {
	var all []found
	for _, v := range r.Violations {
		all = append(all, found{rule: v.Rule, message: v.Message, docs: v.Docs, line: v.Line, deny: v.Severity == guard.Deny})
	}
	for _, s := range r.Skipped {
		if s.Missing == "" {
			all = append(all, found{rule: s.Rule, message: "not checked: " + s.Reason, docs: s.Docs, line: r.Line, deny: s.Severity == guard.Deny})
		}
	}
	return all
}

// skippedFor are the rules that could not be asked for want of something.
func skippedFor(r check.Report, missing guard.Missing) []string {
	var rules []string
	for _, s := range r.Skipped {
		if s.Missing == missing {
			rules = append(rules, s.Rule)
		}
	}
	return rules
}

// wants are what rules may lack, in the order in which it is told.
var wants = []guard.Missing{guard.MissingFacts, guard.MissingAuthorizer, guard.MissingRequest}

// skippedLabel is how every format names it: Skipped(facts), Skipped(authorizer), Skipped(request).
func skippedLabel(missing guard.Missing) string { return fmt.Sprintf("Skipped(%s)", missing) }

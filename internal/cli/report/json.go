package report

import (
	"encoding/json"
	"io"

	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/guard"
)

type jsonReport struct {
	File       string          `json:"file"`
	Line       int             `json:"line"`
	Kind       string          `json:"kind"`
	Namespace  string          `json:"namespace,omitempty"`
	Name       string          `json:"name"`
	Allowed    bool            `json:"allowed"`
	Violations []jsonViolation `json:"violations"`
	Skipped    []jsonSkip      `json:"skipped"`
}

type jsonViolation struct {
	Rule     string         `json:"rule"`
	Severity guard.Severity `json:"severity"`
	Message  string         `json:"message"`
	Field    string         `json:"field,omitempty"`
	Line     int            `json:"line"`
}

type jsonSkip struct {
	Rule     string         `json:"rule"`
	Severity guard.Severity `json:"severity"`
	Reason   string         `json:"reason"`
	// Missing is what wasn't there to ask, facts or authorizer; then the rule refuses nothing here.
	Missing guard.Missing `json:"missing,omitempty"`
}

// JSON writes a list with one entry an object; what was ignored isn't in it.
func JSON(w io.Writer, result Result) error {
	list := make([]jsonReport, 0, len(result.Reports))
	for _, r := range result.Reports {
		j := jsonReport{File: r.File, Line: r.Line, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Allowed: r.Allowed,
			Violations: violationsOf(r), Skipped: []jsonSkip{}}
		for _, s := range r.Skipped {
			j.Skipped = append(j.Skipped, jsonSkip{Rule: s.Rule, Severity: s.Severity, Reason: s.Reason, Missing: s.Missing})
		}
		list = append(list, j)
	}
	return writeJSON(w, list)
}

// violationsOf are an object's violations; never null.
func violationsOf(r check.Report) []jsonViolation {
	violations := []jsonViolation{}
	for _, v := range r.Violations {
		violations = append(violations, jsonViolation{Rule: v.Rule, Severity: v.Severity, Message: v.Message, Field: v.Field, Line: v.Line})
	}
	return violations
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

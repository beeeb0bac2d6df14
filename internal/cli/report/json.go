package report

import (
	"encoding/json"
	"io"

	"github.com/resourcestack/autohealer/internal/cli/check"
)

// JSON writes a list with one entry an object; what was ignored isn't in it.
func JSON(w io.Writer, result Result) error {
	list := append([]check.Report{}, result.Reports...)
	for i := range list {
		list[i].Violations, list[i].Skipped = append([]check.Violation{}, list[i].Violations...), append([]check.Skip{}, list[i].Skipped...) // never null
	}
	return WriteJSON(w, list)
}

// WriteJSON writes a value as people and programs read it.
func WriteJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

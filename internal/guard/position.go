package guard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"

	"github.com/resourcestack/autohealer/internal/domain/celwords"
)

// excerptWidth is how much of a long line an error shows, half of it on either side of the place.
const excerptWidth = 80

// positionError is what is wrong with an expression, with line, column and a caret under the place.
type positionError struct {
	message      string
	line, column int
	excerpt      string
	caret        int
}

// Error is three lines: line, column and cause; the text; the caret.
func (e *positionError) Error() string {
	return fmt.Sprintf("%d:%d: %s\n | %s\n | %s^", e.line, e.column, e.message, e.excerpt, strings.Repeat(".", e.caret))
}

// errorAt is an error at a place, whose column counts from 0.
func errorAt(expression string, at common.Location, format string, args ...any) error {
	e := &positionError{message: fmt.Sprintf(format, args...), line: max(1, at.Line()), column: at.Column() + 1}
	lines := strings.Split(expression, "\n")
	text := []rune(lines[min(e.line, len(lines))-1])
	e.caret = min(max(0, at.Column()), len(text))
	from := max(0, min(e.caret-excerptWidth/2, len(text)-excerptWidth))
	to := min(len(text), from+excerptWidth)
	e.excerpt, e.caret = string(text[from:to]), e.caret-from
	if from > 0 {
		e.excerpt, e.caret = "…"+e.excerpt, e.caret+1
	}
	if to < len(text) {
		e.excerpt += "…"
	}
	return e
}

// errorAtStart is an error of the whole expression.
func errorAtStart(expression, format string, args ...any) error {
	return errorAt(expression, common.NewLocation(1, 0), format, args...)
}

// issuesError is the first error that CEL found, for those who write rules and not CEL's grammar: the others often follow from it.
func (e *environments) issuesError(expression string, issues *cel.Issues) error {
	first := issues.Errors()[0]
	message := celwords.Mistake(first.Message, "a rule may read "+strings.Join(e.names(), ", "))
	if field, undefined := strings.CutPrefix(message, "undefined field "); undefined {
		message += whatMayBeRead(expression, strings.Trim(field, "'"))
	}
	return errorAt(expression, first.Location, "%s", message)
}

// names are the roots of what may be read, without the shared variables.
func (e *environments) names() []string {
	names := []string{rootAuthorizer}
	for name := range e.roots {
		if !strings.HasPrefix(name, variablePath) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Package celerrors explains CEL's errors to those who write or meet an expression, and don't know CEL's grammar.
package celerrors

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/cel-go/common/operators"
)

var (
	// noOverload has an operation as the checker names it, and the types that it was given.
	noOverload = regexp.MustCompile(`^found no matching overload for '(.+)' applied to '(.+)'$`)
	// unexpected is what the parser came upon; it goes on with each token that it would have taken.
	unexpected = regexp.MustCompile(`^Syntax error: (?:mismatched|extraneous) input ('.*') expecting .*$`)
	// plain is what the checker says of a value of a type, and how people say it.
	plain = []struct {
		message *regexp.Regexp
		text    string
	}{
		{regexp.MustCompile(`^expected type '(.+)' but found '(.+)'$`), "a $2 is where a $1 must be"},
		{regexp.MustCompile(`^type '(.+)' does not support field selection$`), "a $1 has no fields"},
		{regexp.MustCompile(`^expression of type '(.+)' cannot be range of a comprehension .*$`), "a $1 has no entries to go over"},
	}
)

// OfCompilation is what the compiler says of an expression. MayRead is for those who name what there isn't: what they may name.
func OfCompilation(message, mayRead string) string {
	message = oneLine(message)
	if reference, undeclared := strings.CutSuffix(message, " (in container '')"); undeclared {
		message = reference + "; " + mayRead
	}
	if of := noOverload.FindStringSubmatch(message); of != nil {
		operation := of[1]
		if operator, isOperator := operators.FindReverse(operation); isOperator && operator != "" {
			operation = operator
		}
		message = fmt.Sprintf("%s can't be applied to %s; convert one of them, as by string() or int(), or write another", operation, of[2])
	}
	for _, p := range plain {
		message = p.message.ReplaceAllString(message, p.text)
	}
	if of := unexpected.FindStringSubmatch(message); of != nil {
		message = "Syntax error: it can't go on with " + of[1]
	}
	if strings.HasSuffix(message, "'<EOF>'") {
		message = "Syntax error: it ends too early"
	}
	return message
}

// conversion is what CEL says of a value that isn't what an expression makes of it.
var conversion = regexp.MustCompile(`type conversion error from '?([\w.]+)'? to '?([\w.]+)'?`)

// types are CEL's as people call them.
var types = map[string]string{
	"string": "a string", "int": "an integer", "uint": "an integer", "double": "a number", "bool": "true or false",
	"google.protobuf.Duration": "a duration such as 10m", "google.protobuf.Timestamp": "a time such as 2026-03-01T12:00:00Z",
}

// OfEvaluation is what CEL says of an expression that failed, for those whose object it failed on. What names the expression, such as "the
// rule", and missing is the format of what is message of a field that isn't there.
func OfEvaluation(message, what, missing string) string {
	message = oneLine(message)
	if key, isMissing := strings.CutPrefix(message, "no such key: "); isMissing {
		return fmt.Sprintf(missing, key)
	}
	if of := conversion.FindStringSubmatch(message); of != nil {
		return fmt.Sprintf("%s takes %s for %s, which it isn't here", what, cmp.Or(types[of[1]], of[1]), cmp.Or(types[of[2]], of[2]))
	}
	if strings.HasPrefix(message, "no such overload") {
		return what + " compares or combines values that don't fit each other, such as a string and a number"
	}
	return message
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

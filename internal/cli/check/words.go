package check

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	sentence "github.com/resourcestack/autohealer/internal/cli/display"
	"github.com/resourcestack/autohealer/internal/guard"
)

// notChecked is how the API server ends a list of mistakes after which it evaluates no rule of the schema. It is no mistake.
const notChecked = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"

// remainder says the same of the mistakes that it follows.
const remainder = "; the schema has more rules, which are asked once this is right"

// describe says what the API server says of a field for those who don't know how a schema is written: which field, what is wrong with
// it, and what to write.
func describe(e *field.Error) string {
	at, is := cmp.Or(fieldOf(e), "the object"), shown(e.BadValue)
	if unfit := overflow.FindStringSubmatch(e.Detail); unfit != nil {
		return at + " has a number that is too large or isn't whole; write " + cmp.Or(typeNames[unfit[1]], unfit[1])
	}
	switch e.Type {
	case field.ErrorTypeRequired:
		return at + " is missing; " + cmp.Or(e.Detail, "write it")
	case field.ErrorTypeNotSupported:
		return fmt.Sprintf("%s is %s; write %s", at, is, alternatives(e.Detail))
	case field.ErrorTypeTypeInvalid:
		return at + " " + wrongType(e)
	case field.ErrorTypeTooLong:
		return at + " is too long; write " + number.FindString(e.Detail) + " characters at most"
	case field.ErrorTypeTooMany:
		return at + " has too many entries; write " + number.FindString(e.Detail) + " at most"
	case field.ErrorTypeDuplicate:
		return fmt.Sprintf("%s is a duplicate (%s); remove one of the two", at, is)
	case field.ErrorTypeInvalid:
		return at + wrongValue(e, is)
	}
	return e.Error()
}

// overflow is what the API server says, of no field, of a number that its type can't hold.
var overflow = regexp.MustCompile(`^Checked value must be of type (\w+).* in (\S+)$`)

var (
	number = regexp.MustCompile(`\d+`)
	quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
)

// shown is a value as a manifest has it, shortened.
func shown(value any) string {
	text, isText := value.(string)
	switch of := value.(type) {
	case string:
	case map[string]any:
		text = cmp.Or(keys(of), typeNames["object"])
	case []any:
		text = typeNames["array"]
	default:
		text = fmt.Sprint(value)
	}
	if runes := []rune(text); len(runes) > 60 {
		text = string(runes[:60]) + "…"
	}
	if isText {
		return strconv.Quote(text)
	}
	return text
}

// keys are those by which a list tells its entries apart.
func keys(of map[string]any) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		pairs = append(pairs, key+": "+shown(of[key]))
	}
	return strings.Join(pairs, ", ")
}

// alternatives are the values that a field may have, each once: an enum has booleans and texts of one meaning.
func alternatives(detail string) string {
	var all []string
	for _, q := range quoted.FindAllString(detail, -1) {
		value, err := strconv.Unquote(q)
		if err != nil || value == "" {
			value = q
		}
		if !slices.ContainsFunc(all, func(other string) bool { return strings.EqualFold(other, value) }) {
			all = append(all, value)
		}
	}
	return sentence.List(all, "or")
}

// typeNames are the types of a schema as people call them.
var typeNames = map[string]string{
	"string": "a string", "integer": "an integer", "number": "a number", "boolean": "true or false", "object": "a map",
	"array": "a list", "null": "null", "date-time": "a time such as 2026-03-01T12:00:00Z", "int32": "an integer below 2147483648",
	"int64": "an integer below 9223372036854775808",
}

// wrongType says what a field is, and what it must be.
func wrongType(e *field.Error) string {
	_, want, _ := strings.Cut(e.Detail, "must be of type ")
	want, _, _ = strings.Cut(want, ":")
	is, _ := e.BadValue.(string)
	known, isType := typeNames[is]
	if !isType || typeNames[want] == known { // of a format it says the value
		known = shown(e.BadValue)
	}
	text := fmt.Sprintf("is %s; write %s", known, cmp.Or(typeNames[want], want))
	if want == "string" && (is == "integer" || is == "number" || is == "boolean") {
		text += ", in quotes where YAML would take it for something else"
	}
	return text
}

// bound is what a schema says of a value out of bounds.
var bound = regexp.MustCompile(` in body should (be at least|have at least|be greater than or equal to|be less than or equal to) (\S+)`)

// outOfBounds says what is wrong with a value that is too short, too small or too large; "" of any other.
func outOfBounds(e *field.Error, is string) string {
	of := bound.FindStringSubmatch(e.Detail)
	switch {
	case of == nil:
		return ""
	case of[1] == "be at least" && of[2] == "1", of[1] == "have at least" && of[2] == "1":
		return " is empty; write something"
	case of[1] == "be at least":
		return " is too short; write " + of[2] + " characters at least"
	case of[1] == "have at least":
		return " has too few entries; write " + of[2] + " at least"
	case of[1] == "be greater than or equal to":
		return " is " + is + "; write " + of[2] + " or more"
	}
	return " is " + is + "; write " + of[2] + " or less"
}

// wrongValue says what is wrong with a value of the right type.
func wrongValue(e *field.Error, is string) string {
	if text := outOfBounds(e, is); text != "" {
		return text
	}
	detail := e.Detail
	if _, rule, failed := strings.Cut(detail, " evaluating rule: "); failed { // the rule's expression could not cope with the value
		detail = rule
	}
	detail, _, isName := strings.Cut(detail, ", regex used for validation is ") // what it says in words before
	if isName {
		detail += ")"
	}
	switch value := e.BadValue.(type) {
	case string:
		if typeNames[value] == "" { // else a rule over all that is below the field
			return " is " + is + ": " + detail
		}
	case int64, float64, bool:
		return " is " + is + ": " + detail
	}
	return ": " + detail
}

// undecodable says what is wrong with metadata that can't be read.
func undecodable(err error) string {
	if of, isField := errors.AsType[*field.Error](err); isField {
		return describe(of)
	}
	if what, isType := guard.TypeMismatch(err, "metadata"); isType {
		return what
	}
	return "metadata must be a map with a name"
}

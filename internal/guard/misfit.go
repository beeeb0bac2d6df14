package guard

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
)

// Misfit says in the words of a manifest what a decoder says of JSON that doesn't fit a Go type; false for any other error. The field
// is one below a parent, "" for the whole.
func Misfit(err error, parent string) (string, bool) {
	of, isMisfit := errors.AsType[*json.UnmarshalTypeError](err)
	if !isMisfit {
		return "", false
	}
	at := strings.Trim(parent+"."+of.Field, ".")
	if at == "" {
		at = "the value"
	}
	if of.Type == nil {
		return at + " has a value of the wrong type", true
	}
	is, _, _ := strings.Cut(of.Value, " ") // of a number that doesn't fit it says which
	want := kindWords(of.Type)
	if is == "number" && is != of.Value {
		return at + " has " + of.Value + ", which is too large or has a fraction; write " + want, true
	}
	return at + " has " + jsonWords[is] + " where " + want + " belongs", true
}

// jsonWords are the types of JSON as people call them.
var jsonWords = map[string]string{"string": "a string", "number": "a number", "bool": "true or false", "array": "a list", "object": "a map"}

// kindWords are the types of Go as people call them.
func kindWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return jsonWords["string"]
	case reflect.Bool:
		return jsonWords["bool"]
	case reflect.Float32, reflect.Float64:
		return jsonWords["number"]
	case reflect.Slice, reflect.Array:
		return jsonWords["array"]
	case reflect.Struct, reflect.Map:
		return jsonWords["object"]
	case reflect.Pointer:
		return kindWords(t.Elem())
	}
	return "an integer"
}

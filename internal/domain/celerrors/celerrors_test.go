package celerrors

import "testing"

func TestWhatIsWrongIsSaidInWords(t *testing.T) {
	for said, want := range map[string]string{
		"undeclared reference to 'objekt' (in container '')":                                          "undeclared reference to 'objekt'; it may read object",
		"found no matching overload for '_+_' applied to '(string, int)'":                             "+ can't be applied to (string, int); convert one of them, as by string() or int(), or write another",
		"found no matching overload for 'matches' applied to '(string, int)'":                         "matches can't be applied to (string, int); convert one of them, as by string() or int(), or write another",
		"Syntax error: mismatched input '=' expecting {<EOF>, '==', '!='}":                            "Syntax error: it can't go on with '='",
		"Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(',\n '.'}":                     "Syntax error: it ends too early",
		"undefined field 'statuss'":                                                                   "undefined field 'statuss'",
		"expected type 'bool' but found 'list(string)'":                                               "a list(string) is where a bool must be",
		"type 'string' does not support field selection":                                              "a string has no fields",
		"expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)": "a int has no entries to go over",
	} {
		if got := OfCompilation(said, "it may read object"); got != want {
			t.Errorf("%s: got %s, want %s", said, got, want)
		}
	}
	for said, want := range map[string]string{
		"no such key: labels":                                               "there is no labels",
		"type conversion error from 'string' to 'int'":                      "the rule takes a string for an integer, which it isn't here",
		"type conversion error from 'string' to 'google.protobuf.Duration'": "the rule takes a string for a duration such as 10m, which it isn't here",
		"no such overload":                                                  "the rule compares or combines values that don't fit each other, such as a string and a number",
		"no such overload: _<_":                                             "the rule compares or combines values that don't fit each other, such as a string and a number",
		"over budget: the rules ...":                                        "over budget: the rules ...",
	} {
		if got := OfEvaluation(said, "the rule", "there is no %s"); got != want {
			t.Errorf("%s: got %s, want %s", said, got, want)
		}
	}
}

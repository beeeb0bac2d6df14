package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// meanings are what parsers' errors mean to who wrote the text, by what they begin with.
var meanings = []struct{ says, means string }{
	{"invalid map key", "a map can't be a key; where this is a template, render it first, as helm template does, and else put it in quotes"},
	{"mapping values are not allowed", "a text that has a colon and a space must be in quotes, and a key must not be deeper than those beside it"},
	{"found character that cannot start any token", "put a text that begins with this character in quotes, and indent by spaces instead of tabs"},
	{"found a tab character", "indent by spaces"},
	{"could not find expected ':'", "write a colon and a space behind each key, and close the quotes above"},
	{"did not find expected", "indent what belongs together alike, and close the quotes and brackets above"},
	{"found unexpected end of stream", "close the quotes above"},
	{"unknown anchor", "define the anchor (&) above the alias (*), or put the text in quotes"},
	{"unexpected EOF", "close the quotes, brackets and braces"},
	{"unexpected end of JSON input", "close the quotes, brackets and braces"},
	{"invalid character", "write keys and texts in double quotes, with a colon behind each key and a comma between two entries, but not behind the last"},
}

// means is what a parser said, without what it says of itself, and what to do about it.
func means(language, said string) string {
	for _, prefix := range []string{"yaml: ", "json: ", "unmarshal errors: "} {
		said = strings.TrimPrefix(said, prefix)
	}
	switch {
	case strings.Contains(said, "unsupported value"), strings.HasPrefix(said, "cannot unmarshal number"):
		return "a number is too large, or is none; write a number that JSON has"
	}
	for _, m := range meanings {
		if strings.HasPrefix(said, m.says) {
			if m.says == "invalid map key" { // it goes on with Go's text of the map
				said = m.says
			}
			return "no valid " + language + ", " + said + ": " + m.means
		}
	}
	return "no valid " + language + ": " + said
}

var lineInError = regexp.MustCompile(`line (\d+)(: )?`)

// positionOf is the line of a YAML error, and what it means.
func (c chunk) positionOf(err error) (line int, message string) {
	message = strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "error converting YAML to JSON: ", "")), " ")
	line = c.before + 1
	if match := lineInError.FindStringSubmatchIndex(message); match != nil {
		if n, err := strconv.Atoi(message[match[2]:match[3]]); err == nil {
			line, message = c.before+max(1, n), message[:match[0]]+message[match[1]:]
		}
	}
	return line, means("YAML", message)
}

// offsetOf is where a JSON error is; one that doesn't say misses the end.
func (c chunk) offsetOf(err error) int {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return int(syntax.Offset)
	}
	return len(bytes.TrimSpace(c.text))
}

// lineAt is the line of an offset, from 1.
func lineAt(text []byte, offset int) int {
	return 1 + bytes.Count(text[:min(max(0, offset), len(text))], []byte("\n"))
}

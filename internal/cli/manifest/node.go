package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	yamlv3 "go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// tree gives the chunk's values with their lines in the file, its duplicate keys, and the line where a second document begins, 0 when there
// is none. JSON is YAML to it. The tree is nil when the parser that knows lines can't read what the other one can.
func (c chunk) tree() (root *yamlv3.Node, problems []Problem, second int) {
	decoder := yamlv3.NewDecoder(bytes.NewReader(c.text))
	var document, next yamlv3.Node
	if err := decoder.Decode(&document); err != nil || len(document.Content) == 0 {
		return nil, nil, 0
	}
	root = document.Content[0]
	problems = c.inspect(root)
	switch err := decoder.Decode(&next); {
	case errors.Is(err, io.EOF):
	case err != nil:
		second = c.before + 1
	default:
		second = c.before + next.Line
	}
	return root, problems, second
}

// inspect makes the lines of a value and of all in it those of the file, and finds the keys that are twice in a map.
func (c chunk) inspect(y *yamlv3.Node) (problems []Problem) {
	y.Line += c.before
	seen := map[string]int{}
	for i, inner := range y.Content {
		problems = append(problems, c.inspect(inner)...)
		if y.Kind != yamlv3.MappingNode || i%2 == 1 || inner.Tag == mergeTag {
			continue
		}
		text := keyText(inner)
		if first, twice := seen[text]; twice {
			problems = append(problems, Problem{Line: inner.Line, Kind: DuplicateKey,
				Message: fmt.Sprintf("key %q is on line %d already; a map keeps only one of them", text, first)})
		}
		seen[text] = inner.Line
	}
	return problems
}

// mergeTag is that of the key << of maps that a map takes over.
const mergeTag = "!!merge"

// field of a map.
type field struct{ key, value *yamlv3.Node }

// fieldsOf are those of a map, and then those that it merges.
func fieldsOf(y *yamlv3.Node) (fields []field) {
	var merged []*yamlv3.Node
	for i := 0; y.Kind == yamlv3.MappingNode && i+1 < len(y.Content); i += 2 {
		key, value := y.Content[i], target(y.Content[i+1])
		switch {
		case key.Tag != mergeTag:
			fields = append(fields, field{key, value})
		case value.Kind == yamlv3.SequenceNode:
			merged = append(merged, value.Content...)
		default:
			merged = append(merged, value)
		}
	}
	for _, m := range merged {
		fields = append(fields, fieldsOf(target(m))...)
	}
	return fields
}

// target is what an alias stands for.
func target(y *yamlv3.Node) *yamlv3.Node {
	if y.Kind == yamlv3.AliasNode {
		return y.Alias
	}
	return y
}

// keyText is a key as JSON has it: `yes` and `true` are one key.
func keyText(key *yamlv3.Node) string {
	key = target(key)
	if key.Kind != yamlv3.ScalarNode || key.Style&(yamlv3.SingleQuotedStyle|yamlv3.DoubleQuotedStyle) != 0 || isText(key.Value) {
		return key.Value
	}
	var value any
	if err := yaml.Unmarshal([]byte(key.Value), &value); err != nil {
		return key.Value
	}
	switch v := value.(type) {
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return key.Value
}

// isText says whether a key is a text whoever reads it, as nearly all are: it begins with a letter and is none of YAML's words.
func isText(key string) bool {
	if key == "" || !unicode.IsLetter(rune(key[0])) {
		return false
	}
	switch strings.ToLower(key) {
	case "y", "yes", "n", "no", "on", "off", "true", "false", "null":
		return false
	}
	return true
}

// duplicateKeys are the duplicate keys of JSON, without their lines.
func duplicateKeys(raw []byte, line int) (problems []Problem) {
	var value any
	duplicates, _ := kjson.UnmarshalStrict(raw, &value) // another error is decode's to tell
	for _, twice := range duplicates {
		problems = append(problems, Problem{Line: line, Kind: DuplicateKey, Message: twice.Error()})
	}
	return problems
}

// LineOf is the line of a field, named as the API server names it: spec.conditions[Ready].status, spec.conditions.Ready,
// spec.list[0]. Where the field isn't there, it is the line of what should hold it.
func (d Document) LineOf(path string) int {
	line, y := d.Line, d.root
	for y != nil && path != "" {
		next, nextLine, rest := step(y, path)
		if next == nil {
			break
		}
		y, line, path = next, nextLine, rest
	}
	return line
}

// step follows the first element of a path. A key may itself have dots, so the longest one that fits is taken.
func step(y *yamlv3.Node, path string) (next *yamlv3.Node, line int, rest string) {
	path = strings.TrimPrefix(path, ".")
	if index, after, ok := bracketed(path); ok && y.Kind == yamlv3.SequenceNode {
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(y.Content) {
			next = target(y.Content[i])
			return next, next.Line, after
		}
	}
	longest := -1
	for _, f := range fieldsOf(y) {
		key := keyText(f.key)
		if after, ok := cutKey(path, key); ok && len(key) > longest {
			next, line, rest, longest = f.value, f.key.Line, after, len(key)
		}
	}
	return next, line, rest
}

func bracketed(path string) (inside, after string, ok bool) {
	if !strings.HasPrefix(path, "[") {
		return "", "", false
	}
	return strings.Cut(path[1:], "]")
}

func cutKey(path, key string) (rest string, ok bool) {
	if rest, ok := strings.CutPrefix(path, "["+key+"]"); ok {
		return rest, true
	}
	rest, ok = strings.CutPrefix(path, key)
	return rest, ok && key != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	yamlv3 "go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// node is where a value is, with what is below it.
type node struct {
	line   int
	fields []field
	items  []*node
}

// field of a map. Those that a merge (<<) brought come after the map's own.
type field struct {
	key   string
	line  int
	value *node
}

// tree gives the chunk's positions and its duplicate keys, and the line where a second document begins, 0 when there is none. JSON is
// YAML to it. The tree is nil when the parser that knows positions can't read what the other one can.
func (c chunk) tree() (root *node, problems []Problem, second int) {
	decoder := yamlv3.NewDecoder(bytes.NewReader(c.text))
	var document yamlv3.Node
	if err := decoder.Decode(&document); err != nil || len(document.Content) == 0 {
		return nil, nil, 0
	}
	b := &builder{before: c.before, known: map[*yamlv3.Node]*node{}}
	root = b.build(document.Content[0])
	var next yamlv3.Node
	switch err := decoder.Decode(&next); {
	case errors.Is(err, io.EOF):
	case err != nil:
		second = c.before + 1
	default:
		second = c.before + next.Line
	}
	return root, b.problems, second
}

type builder struct {
	before   int
	known    map[*yamlv3.Node]*node
	problems []Problem
}

func (b *builder) build(y *yamlv3.Node) *node {
	if y.Kind == yamlv3.AliasNode {
		y = y.Alias
	}
	if n, ok := b.known[y]; ok {
		return n
	}
	n := &node{line: b.before + y.Line}
	b.known[y] = n
	switch y.Kind {
	case yamlv3.SequenceNode:
		for _, item := range y.Content {
			n.items = append(n.items, b.build(item))
		}
	case yamlv3.MappingNode:
		b.buildMap(n, y)
	}
	return n
}

func (b *builder) buildMap(n *node, y *yamlv3.Node) {
	seen := map[string]int{}
	var merged []field
	for i := 0; i+1 < len(y.Content); i += 2 {
		key, value := y.Content[i], b.build(y.Content[i+1])
		if key.Tag == "!!merge" {
			merged = append(merged, mergedFields(value)...)
			continue
		}
		text, line := keyText(key), b.before+key.Line
		if first, ok := seen[text]; ok {
			b.problems = append(b.problems, Problem{Line: line, Kind: DuplicateKey,
				Message: fmt.Sprintf("key %q is on line %d already; a map keeps only one of them", text, first)})
		}
		seen[text] = line
		n.fields = append(n.fields, field{key: text, line: line, value: value})
	}
	for _, f := range merged { // each key once: maps merged into maps merged into maps would grow without bounds
		if _, ok := seen[f.key]; !ok {
			seen[f.key] = f.line
			n.fields = append(n.fields, f)
		}
	}
}

func mergedFields(n *node) []field {
	fields := slices.Clone(n.fields)
	for _, item := range n.items {
		fields = append(fields, item.fields...)
	}
	return fields
}

// keyText is a key as JSON has it: `yes` and `true` are one key.
func keyText(key *yamlv3.Node) string {
	if key.Kind == yamlv3.AliasNode {
		key = key.Alias
	}
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

func (n *node) item(i int) *node {
	if n == nil {
		return nil
	}
	for _, f := range n.fields {
		if f.key == "items" && i < len(f.value.items) {
			return f.value.items[i]
		}
	}
	return nil
}

// LineOf is the line of a field, named as the API server names it: spec.conditions[Ready].status, spec.conditions.Ready,
// spec.list[0]. Where the field isn't there, it is the line of what should hold it.
func (d Document) LineOf(path string) int {
	line, n := d.Line, d.root
	for n != nil && path != "" {
		next, nextLine, rest := n.step(path)
		if next == nil {
			break
		}
		n, line, path = next, nextLine, rest
	}
	return line
}

// step follows the first element of a path. A key may itself have dots, so the longest one that fits is taken.
func (n *node) step(path string) (next *node, line int, rest string) {
	path = strings.TrimPrefix(path, ".")
	if index, after, ok := bracketed(path); ok {
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(n.items) {
			return n.items[i], n.items[i].line, after
		}
	}
	longest := -1
	for _, f := range n.fields {
		after, ok := cutKey(path, f.key)
		if ok && len(f.key) > longest {
			next, line, rest, longest = f.value, f.line, after, len(f.key)
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

package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Document is one object of a file.
type Document struct {
	File string
	// Line on which it begins, from 1.
	Line int
	// Object is what the API server would get, its whole numbers int64; nil when it can't be read.
	Object map[string]any
	// Problems of the text itself. A document that has some must not be taken for what it seems to be.
	Problems []Problem

	root *node
}

// Problem is a mistake in a document's text.
type Problem struct {
	Line    int
	Kind    ProblemKind
	Message string
}

// ProblemKind tells problems apart.
type ProblemKind string

// The kinds of problems.
const (
	// Undecodable text is neither YAML nor JSON, or no object.
	Undecodable ProblemKind = "undecodable"
	// DuplicateKey is a key that is there twice in one map.
	DuplicateKey ProblemKind = "duplicate-key"
)

// Read gives all objects of a file; lists are unwrapped, empty documents left out. A file that begins with a byte order mark is read in
// the encoding that this says, such as UTF-16, which PowerShell writes; kubectl does the same.
func Read(file File) []Document {
	text, _, err := transform.Bytes(unicode.BOMOverride(unicode.UTF8.NewDecoder()), file.Text)
	if err != nil {
		d := undecodable(1, err.Error())
		d.File = file.Name
		return []Document{d}
	}
	var documents []Document
	for _, c := range split(text) {
		for _, d := range c.read(strings.HasSuffix(file.Name, ".json")) {
			d.File = file.Name
			documents = append(documents, unwrap(d)...)
		}
	}
	return documents
}

// IsKustomization says whether the file is a kustomization, which may leave out apiVersion and kind.
func (d Document) IsKustomization() bool {
	switch path.Base(d.File) {
	case "kustomization.yaml", "kustomization.yml", "Kustomization":
		return true
	}
	return false
}

// chunk is the text between two lines of ---.
type chunk struct {
	text []byte
	// before is the number of lines before it.
	before int
}

// split cuts at lines of ---, as kubectl does.
func split(text []byte) []chunk {
	var chunks []chunk
	begin, beginLine, line := 0, 0, 0
	for at := 0; at < len(text); line++ {
		end := len(text)
		if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		if isSeparator(text[at:end]) {
			chunks = append(chunks, chunk{text: text[begin:at], before: beginLine})
			begin, beginLine = end, line+1
		}
		at = end
	}
	return append(chunks, chunk{text: text[begin:], before: beginLine})
}

func isSeparator(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	rest = bytes.TrimSpace(rest)
	return ok && (len(rest) == 0 || rest[0] == '#')
}

func (c chunk) read(mustBeJSON bool) []Document {
	trimmed := bytes.TrimLeft(c.text, " \t\r\n\ufeff")
	if len(trimmed) == 0 {
		return nil
	}
	if mustBeJSON || trimmed[0] == '{' || trimmed[0] == '[' {
		documents, err := c.readJSON()
		if err == nil {
			return documents
		}
		if mustBeJSON {
			return append(documents, undecodable(c.before+lineAt(c.text, c.offsetOf(err)), err.Error()))
		}
	}
	return c.readYAML()
}

func undecodable(line int, message string) Document {
	return Document{Line: line, Problems: []Problem{{Line: line, Kind: Undecodable, Message: message}}}
}

// readYAML takes values from the converter that kubectl uses, whose booleans and numbers differ from those of a newer
// parser, and lines from the newer one.
func (c chunk) readYAML() []Document {
	asJSON, err := yaml.YAMLToJSON(c.text)
	if err != nil {
		line, message := c.positionOf(err)
		return []Document{undecodable(line, message)}
	}
	d := Document{Line: c.before + 1}
	second := 0
	d.root, d.Problems, second = c.yamlTree()
	if d.root != nil {
		d.Line = d.root.line
	}
	if bytes.Equal(asJSON, []byte("null")) && len(d.Problems) == 0 {
		return nil
	}
	if d.root == nil { // the newer parser, which finds duplicates, can't read it
		if _, err := yaml.YAMLToJSONStrict(c.text); err != nil {
			line, message := c.positionOf(err)
			d.Problems = append(d.Problems, Problem{Line: line, Kind: DuplicateKey, Message: message})
		}
	}
	d.decode(asJSON)
	if second == 0 {
		return []Document{d}
	}
	// It is one by itself: whoever has nothing to do with the first may have with this one.
	return []Document{d, undecodable(second, "a second document begins here; kubectl reads only the first unless a line of --- alone is between them")}
}

func (d *Document) decode(asJSON []byte) {
	var value any
	if err := utiljson.Unmarshal(asJSON, &value); err != nil {
		d.Problems = append(d.Problems, Problem{Line: d.Line, Kind: Undecodable, Message: err.Error()})
		return
	}
	object, isObject := value.(map[string]any)
	if !isObject {
		d.Problems = append(d.Problems, Problem{Line: d.Line, Kind: Undecodable, Message: "is no object"})
		return
	}
	d.Object = object
}

var lineInError = regexp.MustCompile(`line (\d+)(: )?`)

// positionOf takes the line out of a YAML error's text.
func (c chunk) positionOf(err error) (line int, message string) {
	message = strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "error converting YAML to JSON: ", "")), " ")
	match := lineInError.FindStringSubmatchIndex(message)
	if match == nil {
		return c.before + 1, message
	}
	n, err := strconv.Atoi(message[match[2]:match[3]])
	if err != nil {
		return c.before + 1, message
	}
	return c.before + max(1, n), message[:match[0]] + message[match[1]:]
}

// readJSON reads one object after the other.
func (c chunk) readJSON() ([]Document, error) {
	var documents []Document
	decoder := json.NewDecoder(bytes.NewReader(c.text))
	for {
		var raw json.RawMessage
		switch err := decoder.Decode(&raw); {
		case err != nil && len(bytes.TrimSpace(c.text[decoder.InputOffset():])) == 0:
			return documents, nil
		case err != nil:
			return documents, err
		}
		if bytes.Equal(raw, []byte("null")) {
			continue
		}
		begin := int(decoder.InputOffset()) - len(raw)
		d := Document{}
		var err error
		if d.root, d.Problems, err = jsonTree(raw, c.before+lineAt(c.text, begin)); err != nil {
			return documents, err
		}
		d.Line = d.root.line
		d.decode(raw)
		documents = append(documents, d)
	}
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

// unwrap gives the items of a list, and anything else as it is.
func unwrap(d Document) []Document {
	kind, _ := d.Object["kind"].(string)
	items, isList := d.Object["items"].([]any)
	if !isList || !strings.HasSuffix(kind, "List") || len(d.Problems) > 0 {
		return []Document{d}
	}
	var documents []Document
	for i, item := range items {
		of := Document{File: d.File, root: d.root.item(i)}
		of.Line = d.Line
		if of.root != nil {
			of.Line = of.root.line
		}
		object, isObject := item.(map[string]any)
		if !isObject {
			of.Problems = []Problem{{Line: of.Line, Kind: Undecodable, Message: fmt.Sprintf("items[%d] is no object", i)}}
			documents = append(documents, of)
			continue
		}
		of.Object = object
		if kind != "List" { // items of a typed list may leave out what the list says
			fill(object, "kind", strings.TrimSuffix(kind, "List"))
			fill(object, "apiVersion", d.Object["apiVersion"])
		}
		documents = append(documents, unwrap(of)...)
	}
	return documents
}

func fill(object map[string]any, field string, value any) {
	if _, ok := object[field]; !ok && value != nil {
		object[field] = value
	}
}

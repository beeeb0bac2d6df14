package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
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

	// root is where its fields are.
	root *yamlv3.Node
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
func Read(file File) []Document { return slices.Collect(Each([]File{file}, "")) }

// Each gives what Read does, one object after the other: what isn't kept needs no memory. With a word it leaves out documents that surely
// don't have it, without reading them.
func Each(files []File, word string) iter.Seq[Document] {
	return func(yield func(Document) bool) {
		for _, file := range files {
			if !file.each(word, yield) {
				return
			}
		}
	}
}

func (f File) each(word string, yield func(Document) bool) bool {
	for c := range chunks(Decoded(f.Text)) {
		if !c.mayHave(word) {
			continue
		}
		for _, read := range c.read(strings.HasSuffix(f.Name, ".json")) {
			read.File = f.Name
			for _, d := range unwrap(read) {
				if !yield(d) {
					return false
				}
			}
		}
	}
	return true
}

// IsKustomization says whether the file is a kustomization, which may leave out apiVersion and kind.
func (d Document) IsKustomization() bool {
	switch path.Base(d.File) {
	case "kustomization.yaml", "kustomization.yml", "Kustomization":
		return true
	}
	return false
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
			return append(documents, undecodable(c.before+lineAt(c.text, c.offsetOf(err)), means("JSON", err.Error())))
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
	d.root, d.Problems, second = c.tree()
	if d.root != nil {
		d.Line = d.root.Line
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
		d.Problems = append(d.Problems, Problem{Line: d.Line, Kind: Undecodable, Message: means("JSON", err.Error())})
		return
	}
	object, isObject := value.(map[string]any)
	if !isObject {
		d.Problems = append(d.Problems, Problem{Line: d.Line, Kind: Undecodable, Message: "is no object; write a map that has apiVersion, kind and metadata"})
		return
	}
	d.Object = object
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
		d := Document{Line: c.before + lineAt(c.text, begin)}
		if d.root, d.Problems, _ = (chunk{text: raw, before: d.Line - 1}).tree(); d.root == nil { // as of escaped halves of a character
			d.Problems = duplicateKeys(raw, d.Line)
		}
		d.decode(raw)
		documents = append(documents, d)
	}
}

// unwrap gives the items of a list, and anything else as it is.
func unwrap(d Document) []Document {
	kind, _ := d.Object["kind"].(string)
	items, isList := d.Object["items"].([]any)
	if !isList || !strings.HasSuffix(kind, "List") || len(d.Problems) > 0 {
		return []Document{d}
	}
	var list *yamlv3.Node
	if d.root != nil {
		list, _, _ = step(d.root, "items")
	}
	var documents []Document
	for i, item := range items {
		of := Document{File: d.File, Line: d.Line}
		if list != nil && i < len(list.Content) {
			of.root = target(list.Content[i])
			of.Line = of.root.Line
		}
		object, isObject := item.(map[string]any)
		if !isObject {
			of.Problems = []Problem{{Line: of.Line, Kind: Undecodable, Message: fmt.Sprintf("items[%d] is no object; write a map that has apiVersion, kind and metadata", i)}}
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

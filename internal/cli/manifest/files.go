// Package manifest reads Kubernetes objects from YAML and JSON as kubectl does, and knows the line of every field. What a
// map would silently merge, it reports: the API server never sees the key that lost.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	encoding "golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// Stdin is the name that stands for standard input.
const Stdin = "-"

// File is a text with the name that messages give it.
type File struct {
	Name string
	Text []byte
}

// extensions that a directory is searched for, as by kubectl.
var extensions = []string{".json", ".yaml", ".yml"}

// ErrNoFile means that a directory has nothing to read.
var ErrNoFile = errors.New("there is no file")

// Files reads files, directories and standard input. Directories are searched below their first level when recursive.
func Files(paths []string, recursive bool, stdin io.Reader) ([]File, error) {
	var files []File
	for _, p := range paths {
		found, err := filesOf(p, recursive, stdin)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

func filesOf(p string, recursive bool, stdin io.Reader) ([]File, error) {
	if p == Stdin {
		text, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return []File{{Name: "<stdin>", Text: text}}, nil
	}
	info, err := os.Stat(p)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	if !info.IsDir() {
		file, err := read(p)
		return []File{file}, err
	}
	files, err := filesBelow(p, recursive)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%w that ends in %s", ErrNoFile, strings.Join(extensions, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("read directory %s: %w", p, err)
	}
	return files, nil
}

func filesBelow(dir string, recursive bool) ([]File, error) {
	var files []File
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != dir && !recursive:
			return filepath.SkipDir
		case entry.IsDir() || !slices.Contains(extensions, strings.ToLower(filepath.Ext(name))):
			return nil
		}
		file, err := read(name)
		files = append(files, file)
		return err
	})
	return files, err
}

func read(name string) (File, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return File{}, fmt.Errorf("read manifest: %w", err)
	}
	return File{Name: filepath.ToSlash(name), Text: text}, nil
}

// Decoded is a text in UTF-8, without a byte order mark; PowerShell 5 redirects in UTF-16. What can't be read as the encoding that it claims
// becomes U+FFFD.
func Decoded(text []byte) []byte {
	if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) || !utf8.Valid(text) {
		if decoded, _, err := transform.Bytes(encoding.BOMOverride(encoding.UTF8.NewDecoder()), text); err == nil {
			return decoded
		}
	}
	return text
}

// chunk is the text between two lines of ---.
type chunk struct {
	text []byte
	// before is the number of lines before it.
	before int
}

// chunks cuts at lines of ---, as kubectl does.
func chunks(text []byte) iter.Seq[chunk] {
	return func(yield func(chunk) bool) {
		begin, beginLine, line := 0, 0, 0
		for at := 0; at < len(text); line++ {
			end := len(text)
			if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
				end = at + i + 1
			}
			if isSeparator(text[at:end]) {
				if !yield(chunk{text: text[begin:at], before: beginLine}) {
					return
				}
				begin, beginLine = end, line+1
			}
			at = end
		}
		yield(chunk{text: text[begin:], before: beginLine})
	}
}

func isSeparator(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	rest = bytes.TrimSpace(rest)
	return ok && (len(rest) == 0 || rest[0] == '#')
}

// mayHave is false when no text in the chunk has the word. Texts are as they are written but for escapes, and binary ones.
func (c chunk) mayHave(word string) bool {
	return bytes.Contains(c.text, []byte(word)) || bytes.IndexByte(c.text, '\\') >= 0 || bytes.Contains(c.text, []byte("binary"))
}

// meanings are what parsers' errors mean to who wrote the text, by what they begin with.
var meanings = []struct{ begins, means string }{
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
func means(language, message string) string {
	for _, prefix := range []string{"yaml: ", "json: ", "unmarshal errors: "} {
		message = strings.TrimPrefix(message, prefix)
	}
	switch {
	case strings.Contains(message, "unsupported value"), strings.HasPrefix(message, "cannot unmarshal number"):
		return "a number is too large, or is none; write a number that JSON has"
	}
	for _, m := range meanings {
		if strings.HasPrefix(message, m.begins) {
			if m.begins == "invalid map key" { // it goes on with Go's text of the map
				message = m.begins
			}
			return "no valid " + language + ", " + message + ": " + m.means
		}
	}
	return "no valid " + language + ": " + message
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

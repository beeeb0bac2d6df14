package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// outline is a document in one line: its line, kind and name, and its problems.
func outline(documents []Document) []string {
	var lines []string
	for _, d := range documents {
		line := fmt.Sprintf("%d:", d.Line)
		if d.Object != nil {
			metadata, _ := d.Object["metadata"].(map[string]any)
			line += fmt.Sprintf(" %v %v", d.Object["kind"], metadata["name"])
		}
		for _, p := range d.Problems {
			line += fmt.Sprintf(" [%d %s: %s]", p.Line, p.Kind, p.Message)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		file string // its name, where that matters
		text string
		want []string
	}{
		"one document": {
			text: "kind: A\nmetadata:\n  name: x\n",
			want: []string{"1: A x"},
		},
		"documents with comments and empty ones between them": {
			text: "# only a comment\n---\nkind: A\nmetadata: {name: x}\n--- # second\n---\n\nkind: B\nmetadata: {name: z}\n",
			want: []string{"3: A x", "8: B z"},
		},
		"Windows line ends": {
			text: "kind: A\r\nmetadata: {name: x}\r\n---\r\nkind: B\r\nmetadata: {name: z}\r\n",
			want: []string{"1: A x", "4: B z"},
		},
		"a key twice": {
			text: "kind: A\nmetadata:\n  name: x\n  name: z\n",
			want: []string{`1: A z [4 duplicate-key: key "name" is on line 3 already; a map keeps only one of them]`},
		},
		"a key twice in the second document": {
			text: "kind: A\n---\nkind: B\nspec:\n  a: {b: 1, c: 2, b: 3}\n",
			want: []string{"1: A <nil>", `3: B <nil> [5 duplicate-key: key "b" is on line 5 already; a map keeps only one of them]`},
		},
		"keys that become one in JSON": {
			text: "kind: A\nspec:\n  yes: 1\n  \"true\": 2\n",
			want: []string{`1: A <nil> [4 duplicate-key: key "true" is on line 3 already; a map keeps only one of them]`},
		},
		"a merged key may be overridden": {
			text: "kind: A\nbase: &base {name: x, a: 1}\nmetadata:\n  <<: *base\n  name: z\n",
			want: []string{"1: A z"},
		},
		"text that is no YAML": {
			text: "kind: A\n---\nkind: B\nspec: {a: 1\n",
			want: []string{"1: A <nil>", "4: [4 undecodable: no valid YAML, did not find expected ',' or '}': indent what belongs together alike, and close the quotes and brackets above]"},
		},
		"a template": {
			text: "kind: A\nspec: {{ .Values.spec }}\n",
			want: []string{"1: [1 undecodable: no valid YAML, invalid map key: a map can't be a key; where this is a template, render it first, as helm template does, and else put it in quotes]"},
		},
		"a list and a scalar are no objects": {
			text: "- a\n---\njust text\n",
			want: []string{"1: [1 undecodable: is no object; write a map that has apiVersion, kind and metadata]", "3: [3 undecodable: is no object; write a map that has apiVersion, kind and metadata]"},
		},
		"a second document that kubectl would drop": {
			text: "kind: A\n--- {kind: B}\n",
			want: []string{"1: A <nil>", "2: [2 undecodable: a second document begins here; kubectl reads only the first unless a line of --- alone is between them]"},
		},
		"UTF-16 as PowerShell writes it": {
			text: "\xff\xfek\x00i\x00n\x00d\x00:\x00 \x00A\x00\n\x00-\x00-\x00-\x00\n\x00k\x00i\x00n\x00d\x00:\x00 \x00B\x00\n\x00",
			want: []string{"1: A <nil>", "3: B <nil>"},
		},
		"a list": {
			text: "apiVersion: v1\nkind: List\nitems:\n- kind: A\n  metadata: {name: x}\n-\n  kind: B\n  metadata: {name: z}\n- text\n",
			want: []string{"4: A x", "7: B z", "9: [9 undecodable: items[2] is no object; write a map that has apiVersion, kind and metadata]"},
		},
		"a typed list": {
			text: "apiVersion: g/v1\nkind: AList\nitems:\n- metadata: {name: x}\n",
			want: []string{"4: A x"},
		},
		"JSON": {
			text: "{\n  \"kind\": \"A\",\n  \"metadata\": {\"name\": \"\\ud83d\\ude00\"}\n}\n{\"kind\": \"B\"}\n",
			want: []string{"1: A 😀", "5: B <nil>"},
		},
		"JSON with a key twice": {
			text: "{\"kind\": \"A\",\n \"spec\": {\"a\": 1,\n \"a\": 2}}",
			want: []string{`1: A <nil> [3 duplicate-key: key "a" is on line 2 already; a map keeps only one of them]`},
		},
		"JSON with a key twice where its line isn't known": {
			text: "{\"kind\": \"A\",\n \"spec\": {\"a\": \"\\ud83d\\ude00\",\n \"a\": 2}}",
			want: []string{`1: A <nil> [1 duplicate-key: duplicate field "spec.a"]`},
		},
		"broken JSON": {
			file: "x.json",
			text: "{\"kind\": \"A\"}\n{\n \"kind\": oops\n}",
			want: []string{"1: A <nil>", "3: [3 undecodable: no valid JSON, invalid character 'o' looking for beginning of value: write keys and texts in double quotes, with a colon behind each key and a comma between two entries, but not behind the last]"},
		},
		"JSON that ends too soon": {
			file: "x.json",
			text: "{\n \"kind\": \"A\"\n",
			want: []string{"2: [2 undecodable: no valid JSON, unexpected EOF: close the quotes, brackets and braces]"},
		},
		"nothing": {text: "\n# nothing\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, outline(Read(File{Name: c.file, Text: []byte(c.text)}))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestValuesAreThoseThatKubectlSends(t *testing.T) {
	got := Read(File{Text: []byte("yes: yes\noctal: 010\nquoted: \"yes\"\nwhole: 3\nhalf: 0.5\nanchor: &a [1]\nalias: *a\n")})[0].Object
	want := map[string]any{
		"true": true, "octal": int64(8), "quoted": "yes", "whole": int64(3), "half": 0.5,
		"anchor": []any{int64(1)}, "alias": []any{int64(1)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestLineOf(t *testing.T) {
	yaml := `# a comment
kind: A
base: &base
  deep: 1
spec:
  conditions:
    Ready: {status: true}
    example.com/GPU.Broken:
      status: false
  list:
  - a: 1
  -
    b: 2
  merged:
    <<: *base
  several:
    <<: [*base, {other: 1}]
`
	json := "{\n\"spec\": {\n\"conditions\":\n{\"Ready\": {\n\"status\": true}},\n\"list\": [1,\n2]}}"
	for name, c := range map[string]struct {
		text, path string
		want       int
	}{
		"nothing":                          {yaml, "", 2},
		"a field":                          {yaml, "spec.list", 10},
		"a map's key in brackets":          {yaml, "spec.conditions[example.com/GPU.Broken].status", 9},
		"a map's key with dots":            {yaml, "spec.conditions.example.com/GPU.Broken.status", 9},
		"a flow map":                       {yaml, "spec.conditions.Ready.status", 7},
		"an item":                          {yaml, "spec.list[1].b", 13},
		"a merged field is where it is":    {yaml, "spec.merged.deep", 4},
		"a field of one of several merged": {yaml, "spec.several.other", 17},
		"a missing field is its parent":    {yaml, "spec.conditions[Ready].since", 7},
		"a missing item is its list":       {yaml, "spec.list[7]", 10},
		"a path that isn't there":          {yaml, "status", 2},
		"a prefix of a key isn't the key":  {yaml, "spe.list", 2},
		"JSON":                             {json, "spec.conditions.Ready.status", 5},
		"a JSON item":                      {json, "spec.list[1]", 7},
	} {
		t.Run(name, func(t *testing.T) {
			d := Read(File{Text: []byte(c.text)})
			if len(d) != 1 || len(d[0].Problems) > 0 {
				t.Fatalf("read %v", outline(d))
			}
			if got := d[0].LineOf(c.path); got != c.want {
				t.Errorf("line %d instead of %d", got, c.want)
			}
		})
	}
}

func TestAnAliasThatContainsItselfEnds(*testing.T) {
	for _, text := range []string{"a: &a [*a]\n", "&a {\"\": *a, x: 1}\n"} {
		for _, d := range Read(File{Text: []byte(text)}) {
			d.LineOf("a[0][0][0][0].x.y[z]")
			d.LineOf("[[[.x")
		}
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a.yml", "c.json", "readme.md", "deep/d.yaml"} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("kind: A\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path      string
		recursive bool
		want      []string
		wantErr   string
	}{
		"a directory":            {path: "", want: []string{"a.yml", "b.yaml", "c.json"}},
		"all below it":           {path: "", recursive: true, want: []string{"a.yml", "b.yaml", "c.json", "deep/d.yaml"}},
		"a file of any name":     {path: "readme.md", want: []string{"readme.md"}},
		"a file that isn't":      {path: "none.yaml", wantErr: "no such file"},
		"a directory of nothing": {path: "empty", wantErr: "there is no file that ends in"},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := Files([]string{filepath.Join(dir, c.path)}, c.recursive, nil)
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Errorf("error %v, want %q", err, c.wantErr)
				}
				return
			}
			var got []string
			for _, f := range files {
				relative, err := filepath.Rel(dir, f.Name)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, filepath.ToSlash(relative))
			}
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("error %v, -want +got\n%s", err, diff)
			}
		})
	}
	files, err := Files([]string{"-"}, false, strings.NewReader("kind: A\n"))
	if err != nil || len(files) != 1 || string(files[0].Text) != "kind: A\n" {
		t.Errorf("standard input gave %v, %v", files, err)
	}
}

// FuzzRead: whatever the text, reading ends, and says which line it is about.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		"kind: A\nmetadata: {name: x}\n---\nkind: B\n", "{\"kind\": \"A\", \"a\": [1, {\"b\": null}]}", "a: &a [*a]\n",
		"apiVersion: v1\nkind: List\nitems: [{kind: A}, 1]\n", "a: 1\na: 2\n", "? [a]\n: b\n", "<<: {a: 1}\na: 2\n", "--- |\n x\n...\n%YAML 1.1\n---\n", "{\"a\":1}\n{",
		"\ufeffa: 1", "yes: 1\ntrue: 2", "a: !!binary x\nb: 1e400\nc: 0x", "&a {\"\": *a}",
	} {
		f.Add(text, "spec.conditions[Ready].status")
		f.Add(text, "a[0].b[[]..")
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		lines := 1 // as YAML counts them
		for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
			lines += strings.Count(text, end)
		}
		for _, name := range []string{"x.yaml", "x.json"} {
			for _, d := range Read(File{Name: name, Text: []byte(text)}) {
				if d.Object == nil && len(d.Problems) == 0 {
					t.Error("a document has neither object nor problem")
				}
				at := []int{d.Line, d.LineOf(path)}
				for _, p := range d.Problems {
					at = append(at, p.Line)
				}
				for _, line := range at {
					if line < 1 || line > lines+1 {
						t.Errorf("line %d of %d", line, lines)
					}
				}
			}
		}
	})
}

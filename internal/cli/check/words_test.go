package check

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clock "k8s.io/utils/clock/testing"

	"github.com/resourcestack/autohealer/internal/cli/manifest"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// raw is what schemas, decoders and CEL say to those who wrote them.
var raw = regexp.MustCompile(`<nil>|Invalid value|Unsupported value|Required value|Duplicate value|Too (long|many)|in body|json: |unmarshal|type conversion|overload|no such (key|attribute)` +
	`|interface ?\{|map\[|struct|v1alpha1\.|yaml: |regex|\bint(32|64)\b|%!|&\{|evaluating rule|must be of type|validation rules were`)

// wrong are values of which one or another is wrong anywhere.
var wrong = []any{
	nil, true, int64(7), int64(-1), int64(3000000000), int64(9007199254740993), 1e30, 0.5, "", "x", "Äö ü", "-x", "5 minutes", "99999999999999h", "9999999h9999999h", "101%", "2026-13-45T00:00:00Z",
	strings.Repeat("x", 5000), []any{}, []any{nil}, []any{int64(1), "a", "a"}, []any{map[string]any{}}, map[string]any{}, map[string]any{"": int64(1)}, map[string]any{"a": map[string]any{"b": []any{}}},
	slices.Repeat([]any{map[string]any{"name": "a"}}, 200),
}

// TestEveryRefusalIsInWords: each field of each kind has each of many wrong values, and whatever is said names the field or the rule, and
// nothing that only the schema's author would understand.
func TestEveryRefusalIsInWords(t *testing.T) {
	checker, err := New(Options{Options: guard.Options{Clock: clock.NewFakePassiveClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))}})
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	note := func(at, message string) {
		if found := raw.FindString(message); found != "" && said[found] == "" {
			said[found] = at + ": " + message
		}
	}
	refused := 0
	for kind, object := range samples(t) {
		for _, path := range paths(object, nil) {
			for _, value := range wrong {
				broken := runtime.DeepCopyJSON(object)
				set(broken, path, value)
				at := fmt.Sprintf("%s, %s is %.40v", kind, strings.Join(path, "."), value)
				r := checker.Object(t.Context(), broken, nil)
				for _, v := range r.Violations {
					refused++
					note(at, v.Message)
					if v.Rule == RuleValue && !strings.HasPrefix(v.Message, v.Field) {
						t.Errorf("%s: it doesn't begin with the field %s: %s", at, v.Field, v.Message)
					}
					if v.Rule == RuleValue && !strings.Contains(v.Message, ";") && !strings.Contains(v.Message, ": ") {
						t.Errorf("%s: it doesn't say what to do: %s", at, v.Message)
					}
				}
				for _, s := range r.Skipped {
					note(at, s.Reason)
				}
			}
		}
	}
	for _, found := range slices.Sorted(maps.Keys(said)) {
		t.Errorf("%q\n%s", found, said[found])
	}
	if refused < 3000 {
		t.Errorf("%d refusals show little", refused)
	}
}

// samples are a good object of each kind.
func samples(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob("../../../config/samples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]map[string]any{"GuardrailException": { // of which there is no sample, since it would be over
		"apiVersion": "autohealer.resourcestack.com/v1alpha1", "kind": "GuardrailException", "metadata": map[string]any{"name": "maintenance"},
		"spec": map[string]any{
			"ruleIDs": []any{"conditionset/matches-healthy-nodes"}, "targetRef": map[string]any{"kind": "ConditionSet", "name": "ready"},
			"specHash": strings.Repeat("0", 64), "reason": "the rack is being moved, OPS-1", "expiresAt": "2026-11-02T00:00:00Z",
		},
	}}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range manifest.Read(manifest.File{Name: file, Text: text}) {
			if kind, isText := d.Object["kind"].(string); isText && Ours(d) {
				objects[kind] = d.Object
			}
		}
	}
	if len(objects) != len(kinds.All) {
		t.Fatalf("samples of %d kinds", len(objects))
	}
	return objects
}

// paths are those of all that is in an object.
func paths(value any, at []string) [][]string {
	var all [][]string
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			below := append(slices.Clone(at), key)
			all = append(append(all, below), paths(v[key], below)...)
		}
	case []any:
		for i := range v {
			below := append(slices.Clone(at), fmt.Sprint(i))
			all = append(append(all, below), paths(v[i], below)...)
		}
	}
	return all
}

func set(object any, path []string, value any) {
	for i, step := range path {
		last := i == len(path)-1
		switch o := object.(type) {
		case map[string]any:
			if last {
				o[step] = value
			}
			object = o[step]
		case []any:
			var at int
			_, _ = fmt.Sscan(step, &at)
			if last {
				o[at] = value
			}
			object = o[at]
		}
	}
}

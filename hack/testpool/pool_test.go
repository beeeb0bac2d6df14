package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPlan(t *testing.T) {
	const m = "github.com/resourcestack/autohealer/"
	jobs := plan([]string{m + "apis", m + "e2e/new", m + "e2e/weederconfig", m + "e2e/probeconfig", m + "internal/xds", m + "internal/certs"})
	var got []string
	for _, j := range jobs {
		got = append(got, strings.ReplaceAll(strings.Join(j.packages, " "), m, ""))
	}
	if want := []string{"e2e/probeconfig", "e2e/weederconfig", "internal/certs", "apis internal/xds", "e2e/new"}; !slices.Equal(got, want) {
		t.Errorf("the jobs are %q instead of %q", got, want)
	}
	for _, j := range jobs {
		if e2e := strings.Contains(j.packages[0], "/e2e/"); slices.Contains(j.flags, "-count=1") != e2e {
			t.Errorf("%s with %q: end-to-end suites, and no others, are run though nothing changed", j.packages, j.flags)
		}
	}
}

// TestSuitesOfThePlanExist: one that was renamed would run at the end.
func TestSuitesOfThePlanExist(t *testing.T) {
	for _, l := range longest {
		if _, err := os.Stat(filepath.Join("..", "..", l.suite)); err != nil {
			t.Error(err)
		}
	}
}

func TestPoolFailsWhenAJobDoes(t *testing.T) {
	module := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n", "a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.Error(\"why\") }\n",
		"b/b_test.go": "package b\n\nimport \"testing\"\n\nfunc TestB(t *testing.T) {}\n",
	} {
		file := filepath.Join(module, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(module)
	var out strings.Builder
	jobs := []job{{packages: []string{"example.com/m/a"}, places: 9}, {packages: []string{"example.com/m/b"}, places: 1}}
	if err := newPool(&out, 2).run(context.Background(), jobs); err == nil {
		t.Error("no error, though a test failed")
	}
	for _, want := range []string{`"Action":"fail","Package":"example.com/m/a"`, `"Action":"pass","Package":"example.com/m/b"`, `{"Action":"attr","Key":"processor","Package":"example.com/m/a","Value":"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
}

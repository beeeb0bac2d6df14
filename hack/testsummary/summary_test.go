package main

import (
	"strings"
	"testing"
)

const (
	passing = `{"Action":"start","Package":"a"}
{"Action":"output","Package":"a","Test":"T","Output":"=== RUN T\n"}
{"Action":"pass","Package":"a","Test":"T"}
{"Action":"pass","Package":"a","Elapsed":1.5}
`
	failing = `{"Action":"output","Package":"b","Test":"U","Output":"    b_test.go:1: wrong\n"}
{"Action":"fail","Package":"b","Test":"U"}
{"Action":"fail","Package":"b","Elapsed":0.1}
`
	skipping = `{"Action":"output","Package":"c","Test":"V","Output":"    c_test.go:1: needs root\n"}
{"Action":"output","Package":"c","Test":"V","Output":"--- SKIP: V (0.00s)\n"}
{"Action":"skip","Package":"c","Test":"V"}
{"Action":"pass","Package":"c"}
`
	ginkgo = `{"Action":"output","Package":"d","Test":"E2E","Output":"SUCCESS! -- \u001b[38;5;10m\u001b[1m7 Passed\u001b[0m | 0 Failed | 1 Pending | 2 Skipped\n"}
{"Action":"pass","Package":"d","Test":"E2E"}
{"Action":"pass","Package":"d"}
`
	measuring = `{"Action":"attr","Package":"f","Test":"W","Key":"owner","Value":"us"}
{"Action":"attr","Package":"f","Test":"W","Key":"measured","Value":"3 s saved"}
{"Action":"pass","Package":"f","Test":"W"}
{"Action":"pass","Package":"f"}
`
	unbuildable = `{"ImportPath":"e","Action":"build-output","Output":"e.go:1: syntax error\n"}
{"ImportPath":"e","Action":"build-fail"}
{"Action":"fail","Package":"e","FailedBuild":"e"}
`
)

func TestSummary(t *testing.T) {
	for name, test := range map[string]struct {
		in   string
		ok   bool
		says []string
	}{
		"all is well":                          {passing, true, []string{"ok      1.5s a", "1 passed, 0 failed, 0 skipped in 1 packages"}},
		"a failure is shown in full":           {passing + failing, false, []string{"b_test.go:1: wrong", "failed:  b", "1 passed, 1 failed"}},
		"a skipped test is counted and why":    {skipping, true, []string{"skipped: c V: c_test.go:1: needs root", "1 skipped"}},
		"specs are counted one by one":         {ginkgo, true, []string{"8 passed, 0 failed, 3 skipped"}},
		"what was measured is shown":           {measuring, true, []string{"ok      0.0s f\nmeasured: 3 s saved\n1 passed"}},
		"what doesn't build fails":             {unbuildable, false, []string{"e.go:1: syntax error", "failed:  e"}},
		"no test at all is no success":         {"", false, []string{"0 passed"}},
		"what isn't JSON is shown as it comes": {"go: no such module\n" + passing, true, []string{"go: no such module\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			s := newSummary(&out)
			if err := s.read(strings.NewReader(test.in)); err != nil {
				t.Fatal(err)
			}
			if ok := s.finish(); ok != test.ok {
				t.Errorf("ok is %t\n%s", ok, out.String())
			}
			for _, want := range test.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("doesn't say %q:\n%s", want, out.String())
				}
			}
		})
	}
}

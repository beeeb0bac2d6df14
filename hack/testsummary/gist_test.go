package main

import (
	"strings"
	"testing"
)

const specsFailed = `=== RUN   TestSpecs
  Timeline >>
  STEP: waiting @ 11/22/26 19:57:23.045
  [FAILED] in [It] - a_test.go:8 @ 11/22/26 19:57:23.146
  the log - suite_test.go:6 @ 11/22/26 19:57:23.146
    long
  << Timeline

  [FAILED] Timed out after 0.101s.
  to be true
  In [It] at: a_test.go:8 @ 11/22/26 19:57:23.146
------------------------------
• [FAILED] [0.000 seconds]
  [FAILED] Expected 1
  In [BeforeEach] at: a_test.go:9 @ 11/22/26 19:57:23.147

Summarizing 2 Failures:
`

func TestGist(t *testing.T) {
	for name, test := range map[string]struct{ said, want string }{
		"of each spec what it failed with": {specsFailed, "  [FAILED] Timed out after 0.101s.\n  to be true\n  In [It] at: a_test.go:8 @ 11/22/26 19:57:23.146\n" +
			"  [FAILED] Expected 1\n  In [BeforeEach] at: a_test.go:9 @ 11/22/26 19:57:23.147"},
		"a long one is cut, and says where it was": {
			"  [FAILED] one\n" + strings.Repeat("more\n", 30) + "  In [It] at: b_test.go:1 @ now\n",
			"  [FAILED] one\n" + strings.Repeat("more\n", gistLines-1) + "  In [It] at: b_test.go:1 @ now",
		},
		"what a killed suite didn't end":        {"  [FAILED] one\nmore\n", "  [FAILED] one\nmore"},
		"of another test how it ended":          {strings.Repeat("before\n", 20) + strings.Repeat("after\n", gistLines), strings.TrimSpace(strings.Repeat("after\n", gistLines))},
		"all of what isn't as long, uncoloured": {"\x1b[1mone\x1b[0m\n", "one"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := gist([]string{test.said}); got != test.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, test.want)
			}
		})
	}
}

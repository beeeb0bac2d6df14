package main

import (
	"strings"
	"testing"
)

const printed = `go: no such tool
{"Action":"start","Package":"github.com/resourcestack/autohealer/e2e/a"}
{"Action":"pass","Package":"github.com/resourcestack/autohealer/e2e/a","Test":"TestA/a_spec","Elapsed":6}
{"Action":"skip","Package":"github.com/resourcestack/autohealer/e2e/a","Test":"TestA/another","Elapsed":0}
{"Action":"fail","Package":"github.com/resourcestack/autohealer/e2e/a","Test":"TestA","Elapsed":61}
{"Action":"fail","Package":"github.com/resourcestack/autohealer/e2e/a","Elapsed":61.4}
{"Action":"attr","Package":"github.com/resourcestack/autohealer/e2e/a","Key":"processor","Value":"12.3"}
{"Action":"attr","Package":"github.com/resourcestack/autohealer/b","Test":"TestB","Key":"measured","Value":"3 s saved"}
{"Action":"attr","Package":"github.com/resourcestack/autohealer/b","Test":"TestB","Key":"owner","Value":"us"}
{"Action":"pass","Package":"github.com/resourcestack/autohealer/b","Test":"TestB","Elapsed":1}
{"Action":"pass","Package":"github.com/resourcestack/autohealer/b","Elapsed":1.5}
{"Action":"skip","Package":"github.com/resourcestack/autohealer/c","Elapsed":0}
`

const written = `measured: 3 s saved
  wall s  processor s  tests  skipped   suite
      61         12.3      2        1 e2e/a
       2            -      1        0 2 others
`

func TestReport(t *testing.T) {
	r, err := read(strings.NewReader(printed))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	if out.String() != written {
		t.Errorf("it writes\n%s\ninstead of\n%s", out.String(), written)
	}
}

func TestAFileThatIsMissingIsNamed(t *testing.T) {
	if err := run([]string{"no-such-file"}, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "no-such-file") {
		t.Errorf("error: %v", err)
	}
}

package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/outlier/detector"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Simulation is what Envoy would have done with a trace.
type Simulation struct {
	// Name of the policy.
	Name   string
	Began  time.Time
	Hosts  int
	Events []detector.Event
}

// Ejections counts them.
func (s *Simulation) Ejections() (n int) {
	for _, e := range s.Events {
		if e.Action == detector.Ejected {
			n++
		}
	}
	return n
}

// Text tells it line by line.
func (s *Simulation) Text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "OutlierPolicy %s: %s of %s\n", printable(s.Name), sample.Count(s.Ejections(), "ejection"), sample.Count(s.Hosts, "host"))
	for _, e := range s.Events {
		at := e.At.String()
		if !s.Began.IsZero() {
			at = s.Began.Add(e.At).UTC().Format("15:04:05.000")
		}
		fmt.Fprintf(&out, "  %12s  %s %s\n", at, printable(e.Host), happened(e))
	}
	return out.String()
}

// happened says what became of a host.
func happened(e detector.Event) string {
	why := map[detector.Cause]string{
		detector.ConsecutiveServerErrors: "consecutive 5xx", detector.ConsecutiveLocalOrigin: "consecutive failures of Envoy's own",
	}[e.Cause]
	switch e.Action {
	case detector.Ejected:
		return fmt.Sprintf("ejected for %s, time %d: %s", e.For, e.Times, why)
	case detector.Returned:
		return fmt.Sprintf("back after %s", e.For)
	case detector.Observed:
		return "counted, not ejected: " + why
	}
	return "spared, as many as may be are ejected: " + why
}

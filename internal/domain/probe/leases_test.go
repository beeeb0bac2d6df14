package probe_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// aged are leases that were renewed so long ago; -1 for one that never was.
func aged(seconds ...int) []probe.NodeLease {
	leases := []probe.NodeLease{}
	for i, s := range seconds {
		l := probe.NodeLease{Node: fmt.Sprint("n", i)}
		if s != -1 {
			l.Renewed = start.Add(-time.Duration(s) * time.Second)
		}
		leases = append(leases, l)
	}
	return leases
}

func TestWhatLeasesSay(t *testing.T) {
	for name, tt := range map[string]struct {
		leases                      []probe.NodeLease
		fraction                    float64
		min                         int
		candidates, expired, skewed int
		want                        probe.Class
	}{
		"all are renewed":                           {aged(1, 5, 9), 0.6, 2, 3, 0, 0, "OK"},
		"just before three quarters of the grace":   {aged(29, 29), 0.6, 2, 2, 0, 0, "OK"},
		"at three quarters of the grace":            {aged(30, 30), 0.6, 2, 2, 2, 0, "LeasesExpired"},
		"the fraction exactly":                      {aged(99, 99, 99, 1, 1), 0.6, 2, 5, 3, 0, "LeasesExpired"},
		"less than the fraction":                    {aged(99, 99, 1, 1), 0.6, 2, 4, 2, 0, "OK"},
		"all of them are wanted":                    {aged(99, 99, 1), 1, 2, 3, 2, 0, "OK"},
		"no nodes":                                  {aged(), 0.6, 2, 0, 0, 0, "TooFewCandidates"},
		"no nodes, and none are needed":             {aged(), 0.6, 0, 0, 0, 0, "TooFewCandidates"},
		"one node":                                  {aged(99), 0.6, 2, 1, 1, 0, "TooFewCandidates"},
		"one node, and one is enough":               {aged(99), 0.6, 1, 1, 1, 0, "LeasesExpired"},
		"leases that were never renewed":            {aged(-1, -1, 99), 0.6, 2, 1, 1, 0, "TooFewCandidates"},
		"never renewed ones aren't in the share":    {aged(-1, 99, 99, 1), 0.6, 2, 3, 2, 0, "LeasesExpired"},
		"a clock that is ahead":                     {aged(-40, 1, 1), 0.6, 2, 3, 0, 1, "OK"},
		"a clock that is a little ahead is no news": {aged(-29, 1, 1), 0.6, 2, 3, 0, 0, "OK"},
	} {
		t.Run(name, func(t *testing.T) {
			terms := probe.LeaseTerms{FailureFraction: tt.fraction, Grace: 40 * time.Second, MinCandidates: tt.min}
			_, j := probe.LeaseBook{}.Judge(terms, tt.leases, start, start)
			if j.Candidates != tt.candidates || j.Expired != tt.expired || j.Skewed != tt.skewed || j.Outcome.Class != tt.want {
				t.Errorf("%+v, want %d candidates, %d expired, %d skewed, %s", j, tt.candidates, tt.expired, tt.skewed, tt.want)
			}
		})
	}
}

// TestANodeWhoseClockIsBehindIsAlive: its lease always looks expired, and yet it is renewed.
func TestANodeWhoseClockIsBehindIsAlive(t *testing.T) {
	terms := probe.LeaseTerms{FailureFraction: 0.6, Grace: 40 * time.Second, MinCandidates: 2}
	book, j := probe.LeaseBook{}.Judge(terms, aged(100, 100), start, start)
	if j.Outcome.Class != "LeasesExpired" {
		t.Fatalf("at first sight: %+v", j)
	}
	renewed := aged(100, 90) // ten seconds later the second one was renewed, by its clock 80 seconds ago
	book, j = book.Judge(terms, renewed, start.Add(10*time.Second), start.Add(10*time.Second))
	if j.Expired != 1 || j.Skewed != 1 || j.Outcome.Class != "OK" {
		t.Errorf("after a renewal: %+v", j)
	}
	book, j = book.Judge(terms, renewed, start.Add(39*time.Second), start.Add(39*time.Second))
	if j.Skewed != 1 {
		t.Errorf("29s after the renewal: %+v", j)
	}
	book, j = book.Judge(terms, renewed, start.Add(40*time.Second), start.Add(40*time.Second))
	if j.Expired != 2 || j.Skewed != 0 {
		t.Errorf("30s after the renewal: %+v", j)
	}
	if book, _ = book.Judge(terms, nil, start, start); len(book) != 0 {
		t.Errorf("nodes that are gone are remembered: %v", book)
	}
}

func leaseRun(at time.Time, leases []probe.NodeLease) probe.Run {
	r := run(at, "OK", "OK")
	r.Leases, r.ServerTime = leases, start
	return r
}

func TestLeasesHaveThresholdsToo(t *testing.T) {
	c := config(t, "nodeLeases: {}")
	var s probe.State
	at := start
	step := func(leases []probe.NodeLease) string {
		s = s.After(c, leaseRun(at, leases), "target")
		at = at.Add(10 * time.Second)
		return s.Direction.String()
	}
	for i, want := range []string{"hold", "hold", "down", "down"} {
		if got := step(aged(99, 99, 99)); got != want {
			t.Errorf("run %d with expired leases: %s, want %s", i, got, want)
		}
	}
	if got := step(nil); got != "hold" {
		t.Errorf("leases that couldn't be listed: %s", got)
	}
	for i, want := range []string{"hold", "hold", "hold", "hold", "hold", "hold", "up"} {
		if got := step(aged(1, 1, 1)); got != want {
			t.Errorf("run %d with leases that are renewed: %s, want %s", i, got, want)
		}
	}
}

// TestWithoutNodesAProtectionEnds: else the controller that makes nodes would stay down for want of nodes.
func TestWithoutNodesAProtectionEnds(t *testing.T) {
	c := config(t, "nodeLeases: {}")
	var s probe.State
	at := start
	for range 3 {
		s = s.After(c, leaseRun(at, aged(99, 99)), "target")
		at = at.Add(10 * time.Second)
	}
	if s.Direction != probe.Down {
		t.Fatalf("%s, want down", s.Direction)
	}
	for range 7 {
		s = s.After(c, leaseRun(at, aged(99)), "target")
		at = at.Add(10 * time.Second)
	}
	if s.Direction != probe.Up {
		t.Errorf("%s, want up", s.Direction)
	}
}

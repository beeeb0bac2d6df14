package probe_test

import (
	"fmt"
	"strings"
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
			terms := probe.LeaseSettings{FailureFraction: tt.fraction, Grace: 40 * time.Second, MinCandidates: tt.min, MaxProtection: time.Hour}
			watched, _ := probe.LeaseTracker{}.Evaluate(terms, tt.leases, start, start.Add(-12*time.Second))
			_, j := watched.Evaluate(terms, tt.leases, start, start)
			if j.Candidates != tt.candidates || j.Expired != tt.expired || j.Skewed != tt.skewed || j.Outcome.Class != tt.want {
				t.Errorf("%+v, want %d candidates, %d expired, %d skewed, %s", j, tt.candidates, tt.expired, tt.skewed, tt.want)
			}
		})
	}
}

// TestALeaseMustHaveBeenSeenNotToMove: clocks differ, and an old time says nothing before a kubelet has had the time to renew.
func TestALeaseMustHaveBeenSeenNotToMove(t *testing.T) {
	for name, tt := range map[string]struct {
		grace             time.Duration
		watched           time.Duration
		leases            []probe.NodeLease
		expired, unproven int
		want              probe.Class
	}{
		"at first sight":                                  {40 * time.Second, 0, aged(99, 99), 0, 2, "LeasesUnproven"},
		"11.9 s later":                                    {40 * time.Second, 11900 * time.Millisecond, aged(99, 99), 0, 2, "LeasesUnproven"},
		"12 s later":                                      {40 * time.Second, 12 * time.Second, aged(99, 99), 2, 0, "LeasesExpired"},
		"a quarter of a longer grace later":               {80 * time.Second, 20 * time.Second, aged(99, 99), 2, 0, "LeasesExpired"},
		"before a quarter of a longer grace":              {80 * time.Second, 19 * time.Second, aged(99, 99), 0, 2, "LeasesUnproven"},
		"what can't turn the scale isn't waited for":      {40 * time.Second, 0, aged(99, 1, 1), 0, 1, "OK"},
		"half the grace old, they are watched already":    {40 * time.Second, 12 * time.Second, aged(32, 32), 2, 0, "LeasesExpired"},
		"watched and not yet expired, they say they live": {40 * time.Second, time.Hour, aged(29, 29), 0, 0, "OK"},
	} {
		t.Run(name, func(t *testing.T) {
			terms := probe.LeaseSettings{FailureFraction: 0.6, Grace: tt.grace, MinCandidates: 2, MaxProtection: time.Hour}
			book := probe.LeaseTracker{}
			if tt.watched > 0 {
				book, _ = book.Evaluate(terms, tt.leases, start.Add(-min(tt.watched, 10*time.Second)), start.Add(-tt.watched))
			}
			_, j := book.Evaluate(terms, tt.leases, start, start)
			if j.Expired != tt.expired || j.Unproven != tt.unproven || j.Outcome.Class != tt.want {
				t.Errorf("%+v, want %d expired, %d unproven, %s", j, tt.expired, tt.unproven, tt.want)
			}
		})
	}
}

func TestAHealthyClusterCostsNothing(t *testing.T) {
	terms := probe.LeaseSettings{FailureFraction: 0.6, Grace: 40 * time.Second, MinCandidates: 2, MaxProtection: time.Hour}
	if book, _ := (probe.LeaseTracker{}).Evaluate(terms, aged(1, 10, 19), start, start); len(book) != 0 {
		t.Errorf("%d leases are remembered that are renewed", len(book))
	}
}

// TestANodeWhoseClockIsBehindIsAlive: its lease always looks expired, and yet it is renewed.
func TestANodeWhoseClockIsBehindIsAlive(t *testing.T) {
	terms := probe.LeaseSettings{FailureFraction: 0.6, Grace: 40 * time.Second, MinCandidates: 2, MaxProtection: time.Hour}
	book, j := probe.LeaseTracker{}.Evaluate(terms, aged(100, 100), start, start)
	if j.Outcome.Class != "LeasesUnproven" {
		t.Fatalf("at first sight: %+v", j)
	}
	renewed := aged(100, 90) // twelve seconds later the second one was renewed, by its clock 78 seconds ago
	book, j = book.Evaluate(terms, renewed, start.Add(12*time.Second), start.Add(12*time.Second))
	if j.Expired != 1 || j.Skewed != 1 || j.Outcome.Class != "OK" {
		t.Errorf("after a renewal: %+v", j)
	}
	book, j = book.Evaluate(terms, renewed, start.Add(41*time.Second), start.Add(41*time.Second))
	if j.Skewed != 1 {
		t.Errorf("29s after the renewal: %+v", j)
	}
	book, j = book.Evaluate(terms, renewed, start.Add(42*time.Second), start.Add(42*time.Second))
	if j.Expired != 2 || j.Skewed != 0 {
		t.Errorf("30s after the renewal: %+v", j)
	}
	if book, _ = book.Evaluate(terms, nil, start, start); len(book) != 0 {
		t.Errorf("nodes that are gone are remembered: %v", book)
	}
}

// leaseRun has leases, or is throttled when it would list them.
func leaseRun(at time.Time, leases []probe.NodeLease) probe.Run {
	r := run(at, "OK", "OK")
	r.Leases, r.ListError = leases, outcome(probe.TooManyRequests)
	if leases != nil {
		r.ServerTime = start
	}
	return r
}

// leaseRuns takes runs of 10 s, one after the other, and gives the directions that follow.
func leaseRuns(c *probe.Config, s probe.State, at time.Time, n int, leases []probe.NodeLease) (probe.State, time.Time, string) {
	directions := ""
	for range n {
		s = s.After(c, leaseRun(at, leases))
		directions += string(s.Direction.String()[0])
		at = at.Add(10 * time.Second)
	}
	return s, at, directions
}

func TestLeasesHaveThresholdsToo(t *testing.T) {
	c := config(t, "nodeLeases: {}")
	s, at := probe.State{}, start
	step := func(n int, leases []probe.NodeLease, want, when string) {
		t.Helper()
		var got string
		if s, at, got = leaseRuns(c, s, at, n, leases); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	step(6, aged(99, 99, 99), "hhhhdd", "two runs are too early to tell, and three are needed")
	step(1, nil, "h", "leases that couldn't be listed for once")
	step(7, aged(1, 1, 1), "hhhhhhu", "leases that are renewed")
}

// TestLeasesThatCannotBeListedAreAsTheyWere: three lists that are throttled end no protection in the middle of an outage. But one that is
// never released is an outage that we make.
func TestLeasesThatCannotBeListedAreAsTheyWere(t *testing.T) {
	const shortly = "nodeLeases: {maxProtectionDuration: 100s}"
	h := func(n int) string { return strings.Repeat("h", n) }
	for name, tt := range map[string]struct {
		spec     string
		before   []probe.NodeLease // in eight runs
		unlisted probe.Class
		want     string
	}{
		"never seen, and throttled":                  {"nodeLeases: {}", nil, probe.TooManyRequests, h(40)},
		"never seen, and too slow":                   {"nodeLeases: {}", nil, probe.Timeout, h(40)},
		"never seen, and throttled for the maximum":  {shortly, nil, probe.ServerError, h(16) + "u"},
		"never seen, and forbidden":                  {"nodeLeases: {}", nil, probe.Forbidden, h(6) + "u"},
		"renewed until then":                         {"nodeLeases: {}", aged(1, 1, 1), probe.TooManyRequests, "hhuuuuu"},
		"expired until then":                         {"nodeLeases: {}", aged(99, 99, 99), probe.TooManyRequests, h(40)},
		"expired until then, and forbidden":          {"nodeLeases: {}", aged(99, 99, 99), probe.Forbidden, h(40)},
		"expired until then, till it is the maximum": {shortly, aged(60, 60, 60), probe.TooManyRequests, h(9) + "u"},
		"expired for the maximum":                    {shortly, aged(100, 100, 100), probe.TooManyRequests, "hhuuuuu"},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t, tt.spec)
			var s probe.State
			at, got := start, ""
			if tt.before != nil {
				s, at, _ = leaseRuns(c, s, at, 8, tt.before)
			}
			for range tt.want {
				r := leaseRun(at, nil)
				r.ListError.Class = tt.unlisted
				s = s.After(c, r)
				got += string(s.Direction.String()[0])
				if s.LeasesHoldRestore(c) && (s.ExternalHealthy(c) || tt.before != nil && !s.ExternalUnhealthy(c)) {
					t.Errorf("it is told to be better than it was: %+v", s)
				}
				at = at.Add(10 * time.Second)
			}
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if !s.LeasesUnreadable(c) {
				t.Error("nobody is told")
			}
		})
	}
}

func TestWhyLeasesCannotBeListedIsKept(t *testing.T) {
	c := config(t, "nodeLeases: {}")
	r := leaseRun(start, nil)
	r.ListError = probe.Outcome{Class: probe.Forbidden, Detail: "x"}
	s := probe.State{}.After(c, r)
	if s.LeasesUnreadable(c) || s.ListFailures != 1 || s.LastListError.Detail != "x" {
		t.Errorf("after one: %d, %+v", s.ListFailures, s.LastListError)
	}
	s = s.After(c, leaseRun(start.Add(10*time.Second), aged(1, 1, 1)))
	if s.ListFailures != 0 || s.LastListError != (probe.Outcome{}) {
		t.Errorf("after a list: %d, %+v", s.ListFailures, s.LastListError)
	}
}

// TestAListThatWaitsForOthersEndsNothing: it says nothing of this cluster, however often it isn't begun.
func TestAListThatWaitsForOthersEndsNothing(t *testing.T) {
	c := config(t, "nodeLeases: {}")
	s, at, got := leaseRuns(c, probe.State{}, start, 5, aged(99, 99, 99))
	if got != "hhhhd" {
		t.Fatal(got)
	}
	for i := range 20 {
		at = at.Add(10 * time.Second)
		r := leaseRun(at, nil)
		r.ListError = probe.Outcome{Class: probe.NotRun}
		if s = s.After(c, r); s.Direction != probe.Hold || s.LeasesUnreadable(c) || !s.ExternalUnhealthy(c) {
			t.Fatalf("after %d runs without a place: %+v", i+1, s)
		}
	}
}

// TestAServerFillsNoMoreThanABook: who is probed says how many nodes there are, and what they are called.
func TestAServerFillsNoMoreThanABook(t *testing.T) {
	terms := probe.LeaseSettings{FailureFraction: 0.6, Grace: 40 * time.Second, MinCandidates: 2, MaxProtection: time.Hour}
	judge := func(n int) (probe.LeaseTracker, probe.LeaseResult) {
		var leases []probe.NodeLease
		for i := range n {
			leases = append(leases, probe.NodeLease{Node: fmt.Sprint("node-", i), Renewed: start.Add(-time.Minute)})
		}
		book, _ := probe.LeaseTracker{}.Evaluate(terms, leases, start, start)
		return book.Evaluate(terms, leases, start.Add(time.Minute), start.Add(time.Minute))
	}
	if book, j := judge(20_000); len(book) != 5_000 || j.Expired != 5_000 || j.Unproven != 15_000 || j.Outcome.Class != probe.LeasesUnproven {
		t.Errorf("of 20,000 late leases %d are kept: %+v", len(book), j)
	}
	if book, j := judge(5_000); len(book) != 5_000 || j.Expired != 5_000 || j.Outcome.Class != probe.LeasesExpired {
		t.Errorf("of 5,000 late leases %d are kept: %+v", len(book), j)
	}
}

// TestWhoeverTurnsLeasesOffIsRidOfThem: what they said before would hold a protection for good.
func TestWhoeverTurnsLeasesOffIsRidOfThem(t *testing.T) {
	s, at, got := leaseRuns(config(t, "nodeLeases: {}"), probe.State{}, start, 5, aged(99, 99, 99))
	if got != "hhhhd" {
		t.Fatal(got)
	}
	if _, _, got = leaseRuns(config(t, ""), s, at, 7, nil); got != "hhhhhhu" {
		t.Errorf("%s, want hhhhhhu", got)
	}
}

// TestWhileTheAPIServerIsDownNobodyCanRenew: the time doesn't count in which a lease couldn't move.
func TestWhileTheAPIServerIsDownNobodyCanRenew(t *testing.T) {
	c := config(t, "nodeLeases: {}\nfailureThreshold: 1")
	leases := aged(27, 27) // half the grace old, so they are watched
	s, at, _ := leaseRuns(c, probe.State{}, start, 2, leases)
	s = s.After(c, run(at, "Dial", ""))
	for range 2 {
		at = at.Add(10 * time.Second)
		r := leaseRun(at, leases)
		r.ServerTime = start.Add(time.Minute)
		if s = s.After(c, r); s.Direction != probe.Hold {
			t.Errorf("%s: the nodes have only just got the chance", s.Direction)
		}
	}
}

// TestAFewNodesThatAreLeft: without any a protection ends, else the controller that makes nodes would stay down for want of nodes.
// One that is left of many, and doesn't renew its lease either, says that nothing is over.
func TestAFewNodesThatAreLeft(t *testing.T) {
	for name, tt := range map[string]struct {
		left []probe.NodeLease
		want string
	}{
		"none":                    {aged(), "hhhhhhu"},
		"one that is back":        {aged(1), "hhhhhhu"},
		"one that isn't":          {aged(99), "hhhhhhhhhhhh"},
		"one that isn't any more": {aged(3600), "hhhhhhu"},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t, "nodeLeases: {}")
			s, at, got := leaseRuns(c, probe.State{}, start, 5, aged(99, 99))
			if got != "hhhhd" {
				t.Fatal(got)
			}
			if _, _, got = leaseRuns(c, s, at, len(tt.want), tt.left); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
	if _, _, got := leaseRuns(config(t, "nodeLeases: {}"), probe.State{}, start, 7, aged(99)); got != "hhhhhhu" {
		t.Errorf("where there never were more: %s, want hhhhhhu", got)
	}
}

// TestNodesThatAreDeadAreNoOutage: what no outage explains neither begins a protection nor holds one.
func TestNodesThatAreDeadAreNoOutage(t *testing.T) {
	faulty := func(leases []probe.NodeLease, nodes ...int) []probe.NodeLease {
		for _, i := range nodes {
			leases[i].Faulty = true
		}
		return leases
	}
	for name, tt := range map[string]struct {
		leases                                 []probe.NodeLease
		candidates, expired, faulty, outlasted int
		want                                   probe.Class
		gaveUp                                 bool
	}{
		"two of three":                            {aged(99, 99, 1), 3, 2, 0, 0, "LeasesExpired", false},
		"two of three, by their own fault":        {faulty(aged(99, 99, 1), 0, 1), 1, 0, 2, 0, "TooFewCandidates", false},
		"one of two by its own fault":             {faulty(aged(99, 99, 1), 0), 2, 1, 1, 0, "OK", false},
		"a fault of a node that renews":           {faulty(aged(1, 1, 99, 99), 0, 1), 4, 2, 0, 0, "OK", false},
		"all are cut off, and one has a fault":    {faulty(aged(99, 99, 99), 0), 2, 2, 1, 0, "LeasesExpired", false},
		"just before the maximum":                 {aged(3599, 3599, 1), 3, 2, 0, 0, "LeasesExpired", false},
		"at the maximum":                          {aged(3600, 3600, 1), 1, 0, 0, 2, "TooFewCandidates", true},
		"one at the maximum, and one just now":    {aged(3600, 99, 1), 2, 1, 0, 1, "OK", true},
		"dead for long, and it matters to nobody": {aged(3600, 1, 1), 2, 0, 0, 1, "OK", false},
		"dead for long, and the others just now":  {aged(3600, 99, 99), 2, 2, 0, 1, "LeasesExpired", false},
		"one node of one":                         {aged(3600), 0, 0, 0, 1, "TooFewCandidates", false},
	} {
		t.Run(name, func(t *testing.T) {
			terms := probe.LeaseSettings{FailureFraction: 0.6, Grace: 40 * time.Second, MinCandidates: 2, MaxProtection: time.Hour}
			watched, _ := probe.LeaseTracker{}.Evaluate(terms, tt.leases, start, start.Add(-12*time.Second))
			_, j := watched.Evaluate(terms, tt.leases, start, start)
			if j.Candidates != tt.candidates || j.Expired != tt.expired || j.Faulty != tt.faulty || j.TooOld != tt.outlasted || j.Outcome.Class != tt.want || terms.ProtectionExpired(j) != tt.gaveUp {
				t.Errorf("%+v, gave up %t, want %+v", j, terms.ProtectionExpired(j), tt)
			}
		})
	}
}

// TestTimeWithoutTheExternalProbeIsNoTimeOfLeases: what they said stands for as much longer.
func TestTimeWithoutTheExternalProbeIsNoTimeOfLeases(t *testing.T) {
	c := config(t, "nodeLeases: {maxProtectionDuration: 100s}")
	s, at, _ := leaseRuns(c, probe.State{}, start, 8, aged(60, 60, 60)) // 40 s are left
	for range 10 {
		s = s.After(c, run(at, "OK", "Timeout"))
		at = at.Add(10 * time.Second)
	}
	if _, _, got := leaseRuns(c, s, at, 10, nil); got != "hhhhhhhhhu" {
		t.Errorf("%s, want hhhhhhhhhu", got)
	}
}

// TestAProtectionByLeasesEnds when it has lasted for the maximum, and the same leases begin no other, of no other process either. Time
// in which the external probe didn't succeed isn't theirs.
func TestAProtectionByLeasesEnds(t *testing.T) {
	c := config(t, "nodeLeases: {maxProtectionDuration: 3m}")
	s, at, got := probe.State{}, start, ""
	dead := aged(30, 30)
	pass := func(n int, external probe.Class) {
		for range n {
			r := run(at, "OK", external)
			if external == probe.OK {
				r.Leases = append(aged(), dead...)
				r.Leases = append(r.Leases, probe.NodeLease{Node: "steady", Renewed: at})
			}
			s = s.After(c, r)
			got += string(s.Direction.String()[0])
			at = at.Add(10 * time.Second)
		}
	}
	pass(14, probe.OK)
	if want := "hhhhdddddddddd"; got != want || s.LeaseProtectionExpired(c) {
		t.Fatalf("%s, want %s, gave up %t", got, want, s.LeaseProtectionExpired(c))
	}
	pass(20, probe.Timeout)
	got = ""
	pass(2, probe.OK) // 10 s are left
	if got != "dh" {
		t.Errorf("after an outage of the external probe: %s", got)
	}
	pass(12, probe.OK)
	if s.Direction != probe.Up || !s.LeaseProtectionExpired(c) {
		t.Errorf("after the maximum: %s, gave up %t", got, s.LeaseProtectionExpired(c))
	}
	s = probe.State{}
	got = ""
	pass(12, probe.OK)
	if strings.Contains(got, "d") || !s.LeaseProtectionExpired(c) {
		t.Errorf("another process: %s, gave up %t", got, s.LeaseProtectionExpired(c))
	}
	dead = []probe.NodeLease{{Node: "n0", Renewed: at}, {Node: "n1", Renewed: at}}
	got = ""
	pass(8, probe.OK)
	if !strings.HasSuffix(got, "d") || s.LeaseProtectionExpired(c) {
		t.Errorf("the next outage: %s, gave up %t", got, s.LeaseProtectionExpired(c))
	}
	pass(20, probe.Timeout)
	dead = []probe.NodeLease{{Node: "n0", Renewed: at}, {Node: "n1", Renewed: at}}
	if pass(18, probe.OK); s.LeaseProtectionExpired(c) {
		t.Error("before the maximum")
	}
	if pass(1, probe.OK); !s.LeaseProtectionExpired(c) {
		t.Error("after leases were fine, an outage before that makes nothing last longer")
	}
}

// What failed before anybody looked at leases doesn't make old ones young.
func TestAnOutageBeforeLeasesWereLookedAtIsNoTimeOfTheirs(t *testing.T) {
	without, with := config(t, ""), config(t, "nodeLeases: {maxProtectionDuration: 100s}")
	s, at := probe.State{}, start
	for _, external := range []probe.Class{"OK", "Timeout", "Timeout", "Timeout", "Timeout", "Timeout", "Timeout", "OK", "OK"} {
		s = s.After(without, run(at, "OK", external))
		at = at.Add(time.Minute)
	}
	if _, _, got := leaseRuns(with, s, at, 10, aged(200, 200, 200)); strings.Contains(got, "d") {
		t.Errorf("nodes that died long before scale down: %s", got)
	}
}

func TestWhyLeasesStoppedMattersHoweverLongAgo(t *testing.T) {
	terms := probe.LeaseSettings{FailureFraction: 0.6, Grace: 40 * time.Second, MinCandidates: 2, MaxProtection: time.Hour}
	if !terms.AppearExpired(aged(7200, 7200, 1), start) {
		t.Error("nodes aren't looked at after an outage of two hours")
	}
}

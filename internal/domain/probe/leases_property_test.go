package probe_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// grove is a cluster whose nodes renew their leases, stop, come and go, as its API server tells, or doesn't. It keeps what
// the design needs to be known of them, worked out anew.
type grove struct {
	t       *rapid.T
	config  *probe.Config
	renewed map[string]time.Time
	// firstSeen is when a lease was first seen as it is now, firstLate when it was first seen so at half the grace; both while
	// the API server was there.
	firstSeen, firstLate map[string]time.Time
	// inside and outside count failures in a row of the probes, unlisted external successes in a row without a list.
	inside, outside, unlisted int
	// expired counts lists in a row by which too many nodes may be gone, surely those by which they are, wrong clocks or not.
	expired, surely int
	// faulty nodes are at fault themselves.
	faulty map[string]bool
	// unanswered is all the time in which the external probe didn't succeed. stand is until when what was seen last of leases surely
	// speaks against a success.
	unanswered time.Duration
	stand      time.Time
	state      probe.State
	now        time.Time
}

const graceOfTests = 50 * time.Second

// list is what the API server tells now; nil when it doesn't.
func (g *grove) list() []probe.NodeLease {
	leases := []probe.NodeLease{}
	for _, name := range slices.Sorted(maps.Keys(g.renewed)) {
		leases = append(leases, probe.NodeLease{Node: name, Renewed: g.renewed[name], Faulty: g.faulty[name]})
	}
	return leases
}

// live lets nodes renew, stop and go.
func (g *grove) live() {
	for i := range 4 {
		name := fmt.Sprint(i)
		switch rapid.SampledFrom([]string{"renew", "renew behind", "nothing", "nothing", "nothing", "go", "new", "fault"}).Draw(g.t, name) {
		case "renew":
			g.renewed[name] = g.now
		case "renew behind":
			g.renewed[name] = g.now.Add(-2 * time.Minute)
		case "go":
			delete(g.renewed, name)
		case "new":
			g.renewed[name] = time.Time{}
		case "fault":
			g.faulty[name] = !g.faulty[name]
		}
	}
}

// run takes in a run, and holds what follows from it against what the design asks for.
func (g *grove) run(r probe.Run) {
	if before := g.state.At; !before.IsZero() && (r.External == nil || r.External.Result() != probe.Success) {
		g.unanswered += r.Ended.Sub(before)
	}
	g.state = g.state.After(g.config, r)
	external := probe.Unknown
	if r.External != nil {
		external = r.External.Result()
	}
	g.count(r, external)
	t := g.config.Thresholds
	switch down := g.outside >= t.Failure || g.expired >= t.Failure; {
	case g.state.Direction == probe.Down && (r.Internal.Result() != probe.Success || !down):
		g.t.Fatalf("down after %d failures outside and %d of leases: %+v", g.outside, g.expired, g.state)
	case g.state.Direction == probe.Down && external != probe.Failure && (r.Leases == nil || g.expired == 0):
		g.t.Fatalf("down for a run that found nothing: %+v", g.state)
	case g.state.Direction == probe.Up && (external != probe.Success || g.surely > 0):
		g.t.Fatalf("up after a run that didn't succeed: %+v", g.state)
	case g.state.Direction == probe.Up && r.Leases == nil && g.unlisted < t.Failure:
		g.t.Fatalf("up after %d runs without a list: %+v", g.unlisted, g.state)
	case g.state.Direction == probe.Up && r.Leases == nil && r.Ended.Before(g.stand):
		g.t.Fatalf("up though leases were seen to be expired, and nothing else since: %+v", g.state)
	}
	g.now = g.state.NextRun
}

// count works out what a run adds up to.
func (g *grove) count(r probe.Run, external probe.Result) {
	switch r.Internal.Result() {
	case probe.Failure:
		if g.inside++; g.inside >= g.config.Thresholds.Failure {
			g.outside, g.expired, g.surely = 0, 0, 0
			clear(g.firstSeen)
			clear(g.firstLate)
		}
		return
	case probe.Success:
		g.inside = 0
	default:
		return
	}
	switch external {
	case probe.Failure:
		g.outside++
		return
	case probe.Success:
		g.outside = 0
	default:
		return
	}
	if r.Leases == nil {
		if g.unlisted++; g.unlisted >= g.config.Thresholds.Failure {
			g.expired, g.surely = 0, 0
		}
		return
	}
	g.unlisted, g.stand = 0, time.Time{}
	g.look(r)
}

// look works out what a list says.
func (g *grove) look(r probe.Run) {
	candidates, excused, old, gone, surely := 0, 0, 0, 0, 0
	seen, late := map[string]time.Time{}, map[string]time.Time{}
	since := func(before, now map[string]time.Time, key string) time.Duration {
		if now[key] = before[key]; now[key].IsZero() {
			now[key] = r.Ended
		}
		return r.Ended.Sub(now[key])
	}
	count := func(n *int, holds bool) {
		if holds {
			*n++
		}
	}
	longest, youngest := g.config.Leases.MaxProtection, time.Duration(math.MaxInt64)
	for _, l := range r.Leases {
		if l.Renewed.IsZero() {
			continue
		}
		candidates++
		key, age, lateFor := l.Node+l.Renewed.String(), r.ServerTime.Sub(l.Renewed), time.Duration(0)
		seenFor := since(g.firstSeen, seen, key)
		if age >= graceOfTests/2 {
			lateFor = since(g.firstLate, late, key)
		}
		expired := age >= graceOfTests*3/4
		// Those that may be left out, or count as alive, and those that surely do.
		maybe, certain := expired && (l.Faulty || age >= longest), expired && (l.Faulty || age >= longest+g.unanswered)
		count(&excused, maybe)
		count(&old, expired && !certain)
		count(&gone, expired && !certain && seenFor >= graceOfTests/4)
		if count(&surely, expired && !maybe && lateFor >= graceOfTests*3/4); expired && !maybe {
			youngest = min(youngest, age)
		}
	}
	g.firstSeen, g.firstLate = seen, late
	enough := func(n, of int) bool { return n > 0 && candidates >= 2 && float64(n) >= 0.6*float64(of) }
	switch few := candidates-excused < 2; {
	case enough(gone, candidates-excused):
		g.expired++
	case !enough(old, candidates-excused) && (!few || old == 0): // few that are left of many hold on to what was
		g.expired = 0
	}
	if g.surely++; !enough(surely, candidates) || candidates-excused < 2 {
		g.surely = 0
		return
	}
	g.stand = r.Ended.Add(longest - youngest)
}

func TestAnySequenceOfRunsWithLeases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		more := rapid.SampledFrom([]string{"", "successThreshold: 2", "failureThreshold: 1", "failureThreshold: 2\nsuccessThreshold: 3"}).Draw(t, "config")
		longest := rapid.SampledFrom([]string{"1h", "100s", "3m"}).Draw(t, "maxProtectionDuration")
		c := config(t, "nodeLeases: {maxProtectionDuration: "+longest+"}\n"+more)
		g := &grove{t: t, config: c, renewed: map[string]time.Time{}, faulty: map[string]bool{}, now: start}
		for range rapid.IntRange(0, 40).Draw(t, "runs") {
			g.live()
			r := run(g.now, rapid.SampledFrom([]probe.Class{"OK", "OK", "OK", "OK", "Dial", "Forbidden"}).Draw(t, "internal"),
				rapid.SampledFrom([]probe.Class{"OK", "OK", "OK", "OK", "Timeout", "TooManyRequests"}).Draw(t, "external"))
			if r.External != nil && r.External.Class == probe.OK {
				g.tell(&r)
			}
			g.run(r)
		}
		g.recover()
	})
}

// tell adds a list to a run: none, a part, a late one, or the whole.
func (g *grove) tell(r *probe.Run) {
	switch rapid.SampledFrom([]string{"none", "part", "late", "whole", "whole", "whole"}).Draw(g.t, "list") {
	case "none":
		r.ListError = probe.Outcome{Class: probe.Timeout}
		return
	case "part":
		r.Leases = g.list()
		r.Leases = r.Leases[:len(r.Leases)/2]
		return
	case "late":
		r.Ended = r.Ended.Add(8 * time.Second)
		r.ServerTime = r.ServerTime.Add(8 * time.Second)
	}
	r.Leases = g.list()
}

// recover: whatever was before, a target gets back what was taken once both sides are fine and nothing speaks against it; and when
// leases alone do, and say nothing new or nothing at all, once that has lasted for the maximum.
func (g *grove) recover() {
	how := rapid.SampledFrom([]string{"renewed", "renewed by clocks that are behind", "no nodes", "not renewed", "not listed", "not allowed"}).Draw(g.t, "then")
	t := g.config.Thresholds
	// The thresholds, or the time in which a clock proves wrong; then a minute.
	runs := max(t.Success+t.Failure, 5) + 7
	if how == "not renewed" || how == "not listed" || how == "not allowed" {
		runs += 1 + int((g.config.Leases.MaxProtection+g.unanswered)/g.config.Interval)
	}
	for range runs {
		r := run(g.now, "OK", "OK")
		for i := range 4 {
			switch how {
			case "renewed":
				g.renewed[fmt.Sprint(i)] = g.now
			case "renewed by clocks that are behind":
				g.renewed[fmt.Sprint(i)] = g.now.Add(-2 * time.Hour)
			case "no nodes":
				clear(g.renewed)
			}
		}
		switch how {
		case "not listed":
			r.ListError = outcome(probe.TooManyRequests)
		case "not allowed":
		default:
			r.Leases = g.list()
		}
		g.run(r)
	}
	if g.state.Direction != probe.Up {
		g.t.Fatalf("%d fine runs, their leases %s, and it isn't scaled up: %+v", runs, how, g.state)
	}
}

package probe_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// TestTheSeedsTable has the rows of the document that the counts come from, and those that it leaves out.
func TestTheSeedsTable(t *testing.T) {
	type counts struct{ success, errors int }
	seeds := probe.Thresholds{Success: 1, Failure: 3}
	tests := []struct {
		name               string
		thresholds         probe.Thresholds
		before             counts
		result             probe.Class
		after              counts
		healthy, unhealthy bool
	}{
		{"row 1", seeds, counts{0, 0}, "OK", counts{1, 0}, true, false},
		{"row 2", seeds, counts{1, 0}, "Dial", counts{0, 1}, false, false},
		{"row 3", seeds, counts{0, 2}, "Dial", counts{0, 3}, false, true},
		{"row 4", seeds, counts{0, 3}, "OK", counts{1, 0}, true, false},
		{"a failure at the maximum", seeds, counts{0, 3}, "Timeout", counts{0, 3}, false, true},
		{"a success at the maximum", seeds, counts{1, 0}, "OK", counts{1, 0}, true, false},
		{"too many requests while healthy", seeds, counts{1, 0}, "TooManyRequests", counts{1, 0}, true, false},
		{"forbidden while unhealthy", seeds, counts{0, 3}, "Forbidden", counts{0, 3}, false, true},
		{"unauthorized on the way there", seeds, counts{0, 2}, "Unauthorized", counts{0, 2}, false, false},
		{"no Secret while healthy", seeds, counts{1, 0}, "SecretMissing", counts{1, 0}, true, false},
		{"a broken Secret on the way there", seeds, counts{0, 2}, "KubeconfigInvalid", counts{0, 2}, false, false},
		{"TLS", seeds, counts{1, 0}, "TLS", counts{0, 1}, false, false},
		{"5xx", seeds, counts{0, 2}, "ServerError", counts{0, 3}, false, true},
		{"one of two successes", probe.Thresholds{Success: 2, Failure: 3}, counts{0, 3}, "OK", counts{1, 0}, false, false},
		{"both", probe.Thresholds{Success: 2, Failure: 3}, counts{1, 0}, "OK", counts{2, 0}, true, false},
		{"one failure is enough", probe.Thresholds{Success: 1, Failure: 1}, counts{1, 0}, "Dial", counts{0, 1}, false, true},
		{"lower thresholds since", probe.Thresholds{Success: 1, Failure: 2}, counts{0, 5}, "Dial", counts{0, 2}, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := probe.Counts{Successes: tt.before.success, Errors: tt.before.errors, CountedAt: start}
			c = c.After(outcome(tt.result), tt.thresholds, start.Add(10*time.Second))
			if (counts{c.Successes, c.Errors}) != tt.after || c.Healthy(tt.thresholds) != tt.healthy || c.Unhealthy(tt.thresholds) != tt.unhealthy {
				t.Errorf("%+v, healthy %t, unhealthy %t; want %+v, %t, %t", c, c.Healthy(tt.thresholds), c.Unhealthy(tt.thresholds), tt.after, tt.healthy, tt.unhealthy)
			}
			if tt.result != "OK" && c.LastError != tt.result {
				t.Errorf("last error %q, want %q", c.LastError, tt.result)
			}
		})
	}
}

func TestOldFailuresDontCount(t *testing.T) {
	thresholds := probe.Thresholds{Success: 1, Failure: 3}
	c := probe.Counts{Errors: 2, CountedAt: start}
	if got := c.After(outcome("Dial"), thresholds, start.Add(5*time.Minute)); got.Errors != 3 {
		t.Errorf("after 5m: %d errors, want 3", got.Errors)
	}
	if got := c.After(outcome("Dial"), thresholds, start.Add(5*time.Minute+time.Second)); got.Errors != 1 {
		t.Errorf("after 5m1s: %d errors, want 1: two of the three are old", got.Errors)
	}
}

// Who probes every ten minutes wants to be protected, too.
func TestFailuresAreCountedWhateverTheInterval(t *testing.T) {
	for _, interval := range []time.Duration{10 * time.Second, 6 * time.Minute, time.Hour} {
		c, s := config(t, "probeInterval: "+interval.String()), probe.State{}
		at := start
		s = s.After(c, run(at, "OK", "OK"))
		for range 3 {
			at = s.NextRun
			s = s.After(c, run(at, "OK", "Timeout"))
		}
		if s.Direction != probe.Down {
			t.Errorf("every %s: after three failures %+v, direction %s", interval, s.External, s.Direction)
		}
		s = s.After(c, run(at.Add(3*interval+10*time.Minute), "OK", "Timeout"))
		if s.External.Errors != 1 {
			t.Errorf("every %s: after a long pause %d errors in a row", interval, s.External.Errors)
		}
	}
}

var classes = []probe.Class{
	"OK", "OK", "OK", "Dial", "Dial", "Timeout", "TLS", "ServerError", "TooManyRequests", "Forbidden", "Unauthorized", "SecretMissing", "NotRun", "",
}

func TestCountsOverAnySequence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		thresholds := probe.Thresholds{Success: rapid.IntRange(1, 4).Draw(t, "success"), Failure: rapid.IntRange(1, 4).Draw(t, "failure")}
		var c probe.Counts
		now := start
		for range rapid.IntRange(0, 40).Draw(t, "runs") {
			before, o := c, outcome(rapid.SampledFrom(classes).Draw(t, "class"))
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
			c = c.After(o, thresholds, now)
			switch {
			case c.Successes < 0 || c.Successes > thresholds.Success || c.Errors < 0 || c.Errors > thresholds.Failure:
				t.Fatalf("out of bounds: %+v", c)
			case c.Healthy(thresholds) && c.Unhealthy(thresholds) || c.Successes > 0 && c.Errors > 0:
				t.Fatalf("both healthy and unhealthy: %+v", c)
			case (o.Result() == probe.Transient || o.Result() == probe.Unknown) && (c.Successes != before.Successes || c.Errors != before.Errors || c.CountedAt != before.CountedAt):
				t.Fatalf("%q changed %+v to %+v", o.Class, before, c)
			}
		}
	})
}

// Certificates are rotated on one side first.
func TestACertificateThatIsntTrustedCountsNothingAtFirst(t *testing.T) {
	thresholds := probe.Thresholds{Success: 1, Failure: 3}
	c := probe.Counts{}.After(outcome("OK"), thresholds, start)
	for _, minutes := range []int{1, 3, 5} {
		if c = c.After(outcome("CertificateUntrusted"), thresholds, start.Add(time.Duration(minutes)*time.Minute)); !c.Healthy(thresholds) {
			t.Errorf("after %d minutes: %+v", minutes, c)
		}
	}
	again := c.After(outcome("OK"), thresholds, start.Add(5*time.Minute)).After(outcome("CertificateUntrusted"), thresholds, start.Add(9*time.Minute))
	if !again.Healthy(thresholds) {
		t.Errorf("another rotation: %+v", again)
	}
	for _, seconds := range []int{0, 10, 20} {
		c = c.After(outcome("CertificateUntrusted"), thresholds, start.Add(6*time.Minute+time.Duration(seconds)*time.Second))
	}
	if !c.Unhealthy(thresholds) || c.LastFailure != "CertificateUntrusted" {
		t.Errorf("nobody rotates for so long: %+v", c)
	}
}

func TestWhatCountedLastIsKept(t *testing.T) {
	thresholds := probe.Thresholds{Success: 1, Failure: 3}
	c := probe.Counts{}.After(outcome("Timeout"), thresholds, start).After(outcome("TooManyRequests"), thresholds, start.Add(time.Second))
	if c.LastFailure != "Timeout" || c.LastError != "TooManyRequests" {
		t.Errorf("%+v", c)
	}
}

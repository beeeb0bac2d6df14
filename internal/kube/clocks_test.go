package kube

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
)

func TestTheServersClockIsReadFromItsAnswers(t *testing.T) {
	answered := time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)
	date := answered.Format(http.TimeFormat)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", date) }))
	defer server.Close()
	local := testingclock.NewFakePassiveClock(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) // years behind
	c := &ServerClock{Clock: local}
	if !c.Now().IsZero() {
		t.Errorf("before any answer it says %s", c.Now())
	}
	config := &rest.Config{Host: server.URL}
	c.Watch(config)
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	local.SetTime(local.Now().Add(90 * time.Second))

	if got, want := c.Now(), answered.Add(90*time.Second); !got.Equal(want) {
		t.Errorf("it says %s, want %s", got, want)
	}
	c.record("rubbish", local.Now())
	if c.Now().IsZero() {
		t.Error("an answer without a date made it forget")
	}
}

// A date is cut to the second. Whoever took each for the time would be up to a second behind, now more and now less.
func TestTheServersClockIsTheLatestWithWhichItsAnswersAgree(t *testing.T) {
	start := time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)
	local := testingclock.NewFakePassiveClock(start)
	c := &ServerClock{Clock: local}
	ahead := 10*time.Minute + 400*time.Millisecond // the server, of ours
	answer := func(after, took time.Duration) (behind time.Duration) {
		local.SetTime(start.Add(after))
		c.record(local.Now().Add(ahead).Format(http.TimeFormat), local.Now().Add(-took))
		return local.Now().Add(ahead).Sub(c.Now())
	}
	for _, step := range []struct{ after, took, behind time.Duration }{
		{500 * time.Millisecond, 0, 900 * time.Millisecond},
		{590 * time.Millisecond, 0, 900 * time.Millisecond},
		{650 * time.Millisecond, 0, 50 * time.Millisecond}, // the second turned just now
		{1550 * time.Millisecond, 0, 50 * time.Millisecond},
		{9 * time.Second, 8 * time.Second, 50 * time.Millisecond},
	} {
		if got := answer(step.after, step.took); got != step.behind {
			t.Errorf("after %s it is %s behind, want %s", step.after, got, step.behind)
		}
	}
	local.SetTime(start.Add(10 * time.Second))
	ahead -= 80 * time.Millisecond // ours is faster
	if got := answer(10550*time.Millisecond, 0); got != -30*time.Millisecond {
		t.Errorf("it is %s behind: nothing disproves it", got)
	}
	if got := answer(10679*time.Millisecond, 0); got > 0 || got < -2*time.Millisecond {
		t.Errorf("it is %s behind: it goes back by no more than the answer says", got)
	}
	ahead -= 5 * time.Second
	if got := answer(20*time.Second, 6*time.Second); got > -5*time.Second {
		t.Errorf("it is %s behind: an answer that was under way so long says nothing of a clock that was set back", got)
	}
	if got := answer(21*time.Second, 10*time.Millisecond); got < 0 || got >= time.Second {
		t.Errorf("it is %s behind a clock that was set back", got)
	}
}

func TestAStepOfTheWallClockIsDistrustedAndMereSlownessIsNot(t *testing.T) {
	for name, c := range map[string]struct {
		wall, monotonic time.Duration
		distrusts       bool
	}{
		"time passes":                 {time.Second, time.Second, false},
		"a stalled process":           {time.Minute, time.Minute, false},
		"slewing":                     {4 * time.Second, time.Second, false},
		"an hour forward":             {time.Hour, time.Second, true},
		"ten seconds back":            {-9 * time.Second, time.Second, true},
		"a machine that was asleep":   {time.Hour, 0, true},
		"five seconds are not a step": {6 * time.Second, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)
			reads := 0
			ticks := make(chan time.Time)
			distrusted := make(chan time.Time, 1)
			step := &ClockStep{
				Ticks: ticks,
				Now: func() (time.Time, time.Duration) {
					reads++
					if reads == 1 {
						return start, 0
					}
					return start.Add(c.wall), c.monotonic
				},
				OnStep: func(until time.Time) { distrusted <- until },
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = step.Start(ctx) }()
			ticks <- start
			ticks <- start // taken only once the first was judged
			cancel()
			<-done
			if got := len(distrusted) == 1; got != c.distrusts {
				t.Errorf("distrusts: %t", got)
			}
		})
	}
}

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
	c.record("rubbish")
	if c.Now().IsZero() {
		t.Error("an answer without a date made it forget")
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

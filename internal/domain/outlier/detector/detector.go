// Package detector foretells what Envoy's outlier detector does with one cluster: who is ejected, when, and when the ejection
// ends. It does what source/common/upstream/outlier_detection_impl.cc of Envoy 1.39 does for consecutive errors, which are all
// that an OutlierPolicy switches on, for a cluster whose hosts stay the same. Time counts from when the cluster was made.
package detector

import (
	"math"
	"slices"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// Outcome is how a request to a host ended.
type Outcome int

const (
	// Answered: the host answered with an HTTP status.
	Answered Outcome = iota
	// Connected: a connection for bytes alone was made.
	Connected
	// ConnectFailed: no connection was made, or not in time.
	ConnectFailed
	// TimedOut: the host was connected and didn't answer in time.
	TimedOut
)

// Result is how a request ended; Status is for one that was Answered.
type Result struct {
	Outcome Outcome
	Status  int
}

// Cause is the detector that found a host failing.
type Cause string

// The detectors, by the names that Envoy's event log has.
const (
	ConsecutiveServerErrors Cause = "CONSECUTIVE_5XX"
	ConsecutiveLocalOrigin  Cause = "CONSECUTIVE_LOCAL_ORIGIN_FAILURE"
)

// Action is what became of a host.
type Action string

const (
	// Ejected: it gets no requests.
	Ejected Action = "Ejected"
	// Returned: its ejection is over.
	Returned Action = "Returned"
	// Observed: it would have been ejected, if that were enforced.
	Observed Action = "Observed"
	// Spared: too many were ejected already.
	Spared Action = "Spared"
)

// Event is what became of a host at a time.
type Event struct {
	At     time.Duration
	Host   string
	Action Action
	// Cause of all but a return.
	Cause Cause
	// For is the length of an ejection, jitter included; it ends at the first sweep after it.
	For time.Duration
	// Times is how often the host has been ejected.
	Times int
}

// defaultThreshold holds also where a detector isn't enforced: it counts all the same.
const defaultThreshold = 5

// monitor is what Envoy knows of a host.
type monitor struct {
	serverErrors, localFailures uint32
	ejected                     bool
	ejectedAt, ends             time.Duration
	times                       int
	// backoff is the factor of the next ejection, less one.
	backoff int64
	// returned is set once an ejection was over, at returnedAt.
	returned   bool
	returnedAt time.Duration
}

// Detector is one cluster in one Envoy.
type Detector struct {
	settings outlier.Settings
	// jitter chooses a time up to a maximum.
	jitter   func(maximum time.Duration) time.Duration
	names    []string
	hosts    map[string]*monitor
	active   int
	now      time.Duration
	nextLook time.Duration
	events   []Event
}

// New makes a Detector of hosts. Jitter chooses a time up to a maximum; nil chooses none.
func New(settings outlier.Settings, hosts []string, jitter func(maximum time.Duration) time.Duration) *Detector {
	if jitter == nil {
		jitter = func(time.Duration) time.Duration { return 0 }
	}
	d := &Detector{settings: settings, jitter: jitter, hosts: map[string]*monitor{}, nextLook: settings.SweepInterval()}
	for _, host := range hosts {
		if d.hosts[host] == nil {
			d.hosts[host], d.names = &monitor{}, append(d.names, host)
		}
	}
	slices.Sort(d.names)
	return d
}

// Events are all that happened so far, in their order.
func (d *Detector) Events() []Event { return d.events }

// Advance lets time pass up to a moment, with the sweeps that come before it or at it.
func (d *Detector) Advance(to time.Duration) {
	interval := d.settings.SweepInterval()
	for d.nextLook <= to {
		if idle := min(d.idleUntil(), to) - d.nextLook; idle > 0 {
			d.nextLook += idle / interval * interval
		}
		d.now = d.nextLook
		d.sweep()
		d.nextLook += interval
	}
	d.now = max(d.now, to)
}

// idleUntil is until when sweeps change nothing: there may be very many of them.
func (d *Detector) idleUntil() time.Duration {
	until := time.Duration(math.MaxInt64)
	for _, m := range d.hosts {
		switch {
		case m.ejected:
			until = min(until, m.ends)
		case m.returned && m.backoff > 0:
			return d.now
		}
	}
	return until
}

// Report tells how a request to a host ended now. A host that the cluster doesn't have is nobody's.
func (d *Detector) Report(host string, r Result) {
	m := d.hosts[host]
	if m == nil {
		return
	}
	if d.settings.Split {
		d.reportApart(host, m, r)
		return
	}
	switch r.Outcome {
	case ConnectFailed, TimedOut:
		d.serverError(host, m)
	case Answered:
		d.answer(host, m, r.Status)
	case Connected:
		m.serverErrors = 0
	}
}

// reportApart counts Envoy's own errors for themselves. Whoever answers or is too slow was connected before.
func (d *Detector) reportApart(host string, m *monitor, r Result) {
	if r.Outcome != ConnectFailed {
		m.localFailures = 0
	}
	switch r.Outcome {
	case ConnectFailed, TimedOut:
		if m.localFailures++; m.localFailures == threshold(d.settings.LocalOriginFailures) {
			enforced := d.settings.LocalOriginThreshold() > 0
			d.detected(host, m, ConsecutiveLocalOrigin, enforced)
		}
	case Answered:
		d.answer(host, m, r.Status)
	}
}

func (d *Detector) answer(host string, m *monitor, status int) {
	if status >= 500 && status < 600 {
		d.serverError(host, m)
		return
	}
	m.serverErrors = 0
}

func (d *Detector) serverError(host string, m *monitor) {
	if m.serverErrors++; m.serverErrors == threshold(d.settings.ServerErrors) {
		d.detected(host, m, ConsecutiveServerErrors, d.settings.ServerErrorThreshold() > 0)
	}
}

func threshold(n *uint32) uint32 {
	if n == nil || *n == 0 {
		return defaultThreshold
	}
	return *n
}

// detected ejects a host, if that is enforced and there is room. Its count begins anew in any case; while it is ejected it goes
// on, and detects nothing until the host is back.
func (d *Detector) detected(host string, m *monitor, cause Cause, enforced bool) {
	if m.ejected {
		return
	}
	switch {
	case !d.room():
		d.tell(Event{Host: host, Action: Spared, Cause: cause, Times: m.times})
	case !enforced || d.settings.Observe:
		d.tell(Event{Host: host, Action: Observed, Cause: cause, Times: m.times})
	default:
		d.eject(host, m, cause)
	}
	if cause == ConsecutiveServerErrors {
		m.serverErrors = 0
	} else {
		m.localFailures = 0
	}
}

// room says whether one more may be ejected.
func (d *Detector) room() bool {
	share := 100 * float64(d.active+1) / float64(len(d.names))
	return share <= float64(min(100, d.settings.MaxEjectionPercent())) || d.active == 0 && d.settings.AlwaysEjectOneHost
}

func (d *Detector) eject(host string, m *monitor, cause Cause) {
	base, longest := d.settings.BaseEjectionTime(), d.settings.MaxEjectionTime()
	if time.Duration(m.backoff)*base < longest+base {
		m.backoff++
	}
	d.active++
	m.times++
	length := min(base*time.Duration(m.backoff), longest) + d.jitter(d.settings.MaxJitter())
	m.ejected, m.ejectedAt, m.ends = true, d.now, d.now+length
	d.tell(Event{Host: host, Action: Ejected, Cause: cause, For: length, Times: m.times})
}

// sweep ends ejections that are over, and forgives those who have been back for an interval.
func (d *Detector) sweep() {
	for _, host := range d.names {
		if m := d.hosts[host]; m.ejected && m.ends <= d.now {
			d.active--
			m.ejected, m.serverErrors, m.localFailures = false, 0, 0
			m.returned, m.returnedAt = true, d.now
			d.tell(Event{Host: host, Action: Returned, For: d.now - m.ejectedAt, Times: m.times})
		}
	}
	for _, m := range d.hosts {
		if !m.ejected && m.returned && d.now-m.returnedAt >= d.settings.SweepInterval() && m.backoff > 0 {
			m.backoff--
		}
	}
}

func (d *Detector) tell(e Event) {
	e.At = d.now
	d.events = append(d.events, e)
}

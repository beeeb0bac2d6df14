// Package detector simulates Envoy's outlier detector for one cluster: which hosts are ejected, when, and when the ejection ends. It follows
// source/common/upstream/outlier_detection_impl.cc of Envoy 1.39 for consecutive errors, which are all that an OutlierPolicy enables, for a
// cluster whose hosts stay the same. Time counts from when the cluster was made.
//
//	active ──(threshold of consecutive errors)──> ejected ──(first sweep after its time)──> active
//
// Begin to read at Simulate.
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
	// Connected: a raw TCP connection was made.
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

// Action is what the detector did with a host.
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

// Event is what the detector did with a host at a time.
type Event struct {
	At     time.Duration
	Host   string
	Action Action
	// Cause of all but a return.
	Cause Cause
	// For is the length of an ejection, jitter included; it ends at the first sweep after it.
	For time.Duration
	// Ejections is how often the host has been ejected.
	Ejections int
}

// defaultThreshold applies also where a detector isn't enforced: it counts anyway.
const defaultThreshold = 5

// monitor is Envoy's state of a host.
type monitor struct {
	serverErrors, localFailures uint32
	ejected                     bool
	ejectedAt, endsAt           time.Duration
	ejections                   int
	// backoff is the factor of the next ejection, less one.
	backoff int64
	// returned is set once an ejection was over, at returnedAt.
	returned   bool
	returnedAt time.Duration
}

// Detector is one cluster in one Envoy.
type Detector struct {
	settings outlier.Settings
	// jitter returns a time up to a maximum.
	jitter    func(maximum time.Duration) time.Duration
	names     []string
	hosts     map[string]*monitor
	active    int
	now       time.Duration
	nextSweep time.Duration
	events    []Event
}

// New makes a Detector of hosts. Jitter returns a time up to a maximum; nil stands for no jitter.
func New(settings outlier.Settings, hosts []string, jitter func(maximum time.Duration) time.Duration) *Detector {
	if jitter == nil {
		jitter = func(time.Duration) time.Duration { return 0 }
	}
	d := &Detector{settings: settings, jitter: jitter, hosts: map[string]*monitor{}, nextSweep: settings.SweepInterval()}
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

// Advance moves the time forward, with the sweeps up to and at the new time.
func (d *Detector) Advance(to time.Duration) {
	interval := d.settings.SweepInterval()
	for d.nextSweep <= to {
		if idle := min(d.idleUntil(), to) - d.nextSweep; idle > 0 {
			d.nextSweep += idle / interval * interval
		}
		d.now = d.nextSweep
		d.sweep()
		d.nextSweep += interval
	}
	d.now = max(d.now, to)
}

// idleUntil is until when sweeps change nothing: there may be very many of them.
func (d *Detector) idleUntil() time.Duration {
	until := time.Duration(math.MaxInt64)
	for _, m := range d.hosts {
		switch {
		case m.ejected:
			until = min(until, m.endsAt)
		case m.returned && m.backoff > 0:
			return d.now
		}
	}
	return until
}

// Report counts the result of a request to a host now. Hosts that the cluster doesn't have are ignored.
func (d *Detector) Report(host string, r Result) {
	m := d.hosts[host]
	if m == nil {
		return
	}
	if d.settings.Split {
		d.reportSplit(host, m, r)
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

// reportSplit counts locally originated errors separately. A host that answers, or times out, was connected before.
func (d *Detector) reportSplit(host string, m *monitor, r Result) {
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

// detected ejects a host, if that is enforced and mayEject. Its count is reset in any case; while it is ejected the count continues, and
// detects nothing until the host returns.
func (d *Detector) detected(host string, m *monitor, cause Cause, enforced bool) {
	if m.ejected {
		return
	}
	switch {
	case !d.mayEject():
		d.record(Event{Host: host, Action: Spared, Cause: cause, Ejections: m.ejections})
	case !enforced || d.settings.Observe:
		d.record(Event{Host: host, Action: Observed, Cause: cause, Ejections: m.ejections})
	default:
		d.eject(host, m, cause)
	}
	if cause == ConsecutiveServerErrors {
		m.serverErrors = 0
	} else {
		m.localFailures = 0
	}
}

// mayEject says whether one more host may be ejected.
func (d *Detector) mayEject() bool {
	share := 100 * float64(d.active+1) / float64(len(d.names))
	return share <= float64(min(100, d.settings.MaxEjectionPercent())) || d.active == 0 && d.settings.AlwaysEjectOneHost
}

func (d *Detector) eject(host string, m *monitor, cause Cause) {
	base, maximum := d.settings.BaseEjectionTime(), d.settings.MaxEjectionTime()
	if time.Duration(m.backoff)*base < maximum+base {
		m.backoff++
	}
	d.active++
	m.ejections++
	length := min(base*time.Duration(m.backoff), maximum) + d.jitter(d.settings.MaxJitter())
	m.ejected, m.ejectedAt, m.endsAt = true, d.now, d.now+length
	d.record(Event{Host: host, Action: Ejected, Cause: cause, For: length, Ejections: m.ejections})
}

// sweep ends ejections whose time is over, and reduces the backoff of hosts that returned at least an interval ago.
func (d *Detector) sweep() {
	for _, host := range d.names {
		if m := d.hosts[host]; m.ejected && m.endsAt <= d.now {
			d.active--
			m.ejected, m.serverErrors, m.localFailures = false, 0, 0
			m.returned, m.returnedAt = true, d.now
			d.record(Event{Host: host, Action: Returned, For: d.now - m.ejectedAt, Ejections: m.ejections})
		}
	}
	for _, m := range d.hosts {
		if !m.ejected && m.returned && d.now-m.returnedAt >= d.settings.SweepInterval() && m.backoff > 0 {
			m.backoff--
		}
	}
}

func (d *Detector) record(e Event) {
	e.At = d.now
	d.events = append(d.events, e)
}

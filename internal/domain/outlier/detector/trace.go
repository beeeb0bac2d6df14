package detector

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// Sample is how a request to a host ended at a time.
type Sample struct {
	At     time.Duration
	Host   string
	Result Result
}

// Trace are the requests of a proxy to a cluster.
type Trace struct {
	// Hosts of the cluster, also those without requests.
	Hosts   []string
	Samples []Sample
	// Start is the date of time 0; zero for a trace with relative times.
	Start time.Time
}

// ReadTrace reads lines of time, host and result, separated by commas. A first line that begins with "time" is a heading. The time is a
// number of seconds or a duration since the cluster was made, or a date (RFC 3339), which counts from the first line's. The result is an
// HTTP status, connected (for raw TCP), connect-failure or timeout; a line without a result only names a host. Errors have the line.
func ReadTrace(r io.Reader) (Trace, error) {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord, lines.TrimLeadingSpace, lines.Comment, lines.ReuseRecord = 3, true, '#', true
	var t Trace
	known := map[string]bool{}
	for first := true; ; first = false {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Trace{}, fmt.Errorf("read trace: %w", err)
		}
		if first && fields[0] == "time" {
			continue
		}
		line, _ := lines.FieldPos(0)
		if err := t.add(fields, known); err != nil {
			return Trace{}, fmt.Errorf("read trace: line %d: %w", line, err)
		}
	}
	if len(t.Hosts) == 0 {
		return Trace{}, errors.New("read trace: it has no hosts")
	}
	slices.SortStableFunc(t.Samples, func(a, b Sample) int { return int(a.At - b.At) })
	return t, nil
}

func (t *Trace) add(fields []string, known map[string]bool) error {
	at, host, result := strings.TrimSpace(fields[0]), strings.Clone(strings.TrimSpace(fields[1])), strings.TrimSpace(fields[2])
	if host == "" {
		return errors.New("a host is missing")
	}
	if !known[host] {
		known[host], t.Hosts = true, append(t.Hosts, host)
	}
	if result == "" {
		return nil
	}
	since, err := t.since(at)
	if err != nil {
		return err
	}
	r, err := readResult(result)
	if err != nil {
		return err
	}
	t.Samples = append(t.Samples, Sample{since, host, r})
	return nil
}

// since reads a time.
func (t *Trace) since(text string) (time.Duration, error) {
	if moment, err := time.Parse(time.RFC3339, text); err == nil {
		if t.Start.IsZero() && len(t.Samples) == 0 {
			t.Start = moment
		}
		if t.Start.IsZero() || moment.Before(t.Start) {
			return 0, fmt.Errorf("time %s is before the first line's, or those before are no moments", text)
		}
		return moment.Sub(t.Start), nil
	}
	d, ok := readDuration(text)
	if !ok || d < 0 || d > maxTraceLength || !t.Start.IsZero() {
		return 0, fmt.Errorf("time %q is neither a number of seconds nor a duration, of at most %s, nor a moment like those before", text, maxTraceLength)
	}
	return d, nil
}

// readDuration reads a duration, or a number of seconds.
func readDuration(text string) (time.Duration, bool) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 && seconds < maxTraceLength.Seconds() {
		return time.Duration(seconds * float64(time.Second)), true
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

// maxTraceLength bounds a trace, so that the number of sweeps is bounded.
const maxTraceLength = 7 * 24 * time.Hour

func readResult(text string) (Result, error) {
	switch text {
	case "connected":
		return Result{Outcome: Connected}, nil
	case "connect-failure":
		return Result{Outcome: ConnectFailed}, nil
	case "timeout":
		return Result{Outcome: TimedOut}, nil
	}
	status, err := strconv.Atoi(text)
	if err != nil || status < 100 || status > 599 {
		return Result{}, fmt.Errorf("result %q is no HTTP status, connected, connect-failure or timeout", text)
	}
	return Result{Status: status}, nil
}

// Simulate returns the events of a trace, until all ejected hosts returned. Requests to an ejected host count as Envoy counts them: to which
// host it would have sent them instead isn't known.
func Simulate(settings outlier.Settings, t Trace, jitter func(maximum time.Duration) time.Duration) []Event {
	d := New(settings, t.Hosts, jitter)
	for _, s := range t.Samples {
		d.Advance(s.At)
		d.Report(s.Host, s.Result)
	}
	for d.active > 0 {
		d.Advance(d.idleUntil() + settings.SweepInterval())
	}
	return d.Events()
}

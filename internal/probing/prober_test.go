package probing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"

	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

const every = 10 * time.Second

// recordingHandler is a handler that passes runs to the test, and runs targets every 10 s.
type recordingHandler struct {
	clock *testclock.FakeClock
	runs  chan probe.Run
}

func (h *recordingHandler) Observe(_ Key, run probe.Run) time.Time {
	h.runs <- run
	return h.clock.Now().Add(every)
}

// startProber gives a running Prober whose clock the test moves.
func startProber(t *testing.T) (*Prober, *recordingHandler) {
	t.Helper()
	h := &recordingHandler{clock: testclock.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)), runs: make(chan probe.Run, 1)}
	// By chance the first connection gets up to RedialEvery runs: of so many none of these tests sees the last.
	p := (&Prober{Handler: h, Policy: loopback, RedialEvery: math.MaxInt32, Clock: h.clock}).Init()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the prober ended with %v", err)
		}
	})
	return p, h
}

// nextRun lets time pass until the next run, and returns it.
func (h *recordingHandler) nextRun(t *testing.T) probe.Run {
	t.Helper()
	var run probe.Run
	NewWithT(t).Eventually(func() bool {
		select {
		case run = <-h.runs:
			return true
		default:
			if h.clock.Waiters() > 1 { // besides the queue's own ticker
				h.clock.Step(every)
			}
			return false
		}
	}).WithTimeout(time.Minute).WithPolling(time.Millisecond).Should(BeTrue(), "there is no run")
	return run
}

func credentials(version string, config []byte) []byte {
	return fmt.Appendf(nil, "%s\n# %s", config, version)
}

// counted is a stub that counts its open connections.
func counted(t *testing.T, open *atomic.Int32, handler http.HandlerFunc) *stub {
	return startStub(t, handler, func(s *httptest.Server) {
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		}
	})
}

func expectOpen(t *testing.T, open *atomic.Int32, want int32) {
	t.Helper()
	NewWithT(t).Eventually(open.Load).WithTimeout(time.Minute).WithPolling(time.Millisecond).Should(Equal(want), "connections that the server has open")
}

var one = Key{Namespace: "shoot--a", Name: "garden" + "/" + "shoots"}

func TestTheExternalProbeRunsOnlyAfterTheInternalOne(t *testing.T) {
	var sick atomic.Int32
	internal := startStub(t, func(w http.ResponseWriter, r *http.Request) {
		if code := sick.Load(); code != 0 {
			w.WriteHeader(int(code))
			return
		}
		answerVersion(w, r)
	})
	external := startStub(t, answerVersion)
	p, h := startProber(t)
	began := h.clock.Now()
	if err := p.Set(one, Target{Internal: credentials("1", internal.kubeconfig()), External: credentials("2", external.kubeconfig()), Timeout: time.Minute}, began.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	run := h.nextRun(t)
	if run.Internal.Class != "OK" || run.External == nil || run.External.Class != "OK" || run.Started.Before(began.Add(time.Hour)) || run.Leases != nil {
		t.Errorf("%+v, external %+v", run, run.External)
	}
	for code, want := range map[int32]probe.Class{500: "ServerError", 429: "TooManyRequests", 403: "Forbidden"} {
		sick.Store(code)
		if run := h.nextRun(t); run.Internal.Class != want || run.External != nil {
			t.Errorf("%+v, external %+v", run, run.External)
		}
	}
	sick.Store(0)
	external.proxy.BreakNew(faultproxy.Close)
	external.proxy.BreakOpen(faultproxy.Close)
	if run := h.nextRun(t); run.Internal.Class != "OK" || run.External == nil || run.External.Class != "Connection" {
		t.Errorf("%+v, external %+v", run, run.External)
	}
}

func TestConnectionsAreAsNewAsTheirSecrets(t *testing.T) {
	var open atomic.Int32
	s := counted(t, &open, answerVersion)
	p, h := startProber(t)
	target := Target{Internal: credentials("1", s.kubeconfig()), External: credentials("2", s.outside()), Timeout: time.Minute}
	set := func() {
		t.Helper()
		if err := p.Set(one, target, h.clock.Now()); err != nil {
			t.Fatal(err)
		}
		if run := h.nextRun(t); run.External == nil || run.External.Class != "OK" {
			t.Fatalf("%+v", run)
		}
	}
	set()
	s.expectDialled(t, 2)
	set()
	s.expectDialled(t, 2)
	target.External = credentials("3", s.outside())
	set()
	s.expectDialled(t, 3)
	expectOpen(t, &open, 2)
	p.Remove(one)
	expectOpen(t, &open, 0)
	target.Internal = credentials("1", s.kubeconfig())
	set()
	expectOpen(t, &open, 2)
	for version, c := range map[string]struct {
		config []byte
		want   kubeconfig.Refusal
	}{
		"4": {[]byte("users: [{name: s3cret}]"), "KubeconfigAmbiguousContext"},
		"5": {s.kubeconfig(), "KubeconfigSameServer"}, // and what both probes find is always the same
	} {
		target.External = credentials(version, c.config)
		var refusal kubeconfig.Refusal
		if err := p.Set(one, target, h.clock.Now()); !errors.As(err, &refusal) || refusal != c.want {
			t.Errorf("refused with %v, want %s", err, c.want)
		}
		expectOpen(t, &open, 0)
	}
}

func TestRunsThatTheProberCutsShortAreNotReported(t *testing.T) {
	asked := make(chan struct{})
	s := startStub(t, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})
	h := &recordingHandler{clock: testclock.NewFakeClock(time.Now()), runs: make(chan probe.Run, 1)}
	p := (&Prober{Handler: h, Policy: loopback, Clock: h.clock}).Init()
	target := Target{Internal: credentials("1", s.kubeconfig()), External: credentials("2", s.outside()), Timeout: time.Minute}
	if err := p.Set(one, target, h.clock.Now()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case run := <-h.runs:
		t.Errorf("told of %+v", run)
	default:
	}
	if err := p.Set(one, target, h.clock.Now()); err != nil { // late, and without effect
		t.Errorf("set after the end: %v", err)
	}
}

package probing

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// shortly is enough for an answer and a handshake on a busy machine, and short enough to wait for twice.
const shortly = time.Second

func (c *client) expect(t *testing.T, timeout time.Duration, want ...probe.Class) probe.Outcome {
	t.Helper()
	outcome := c.probe(t.Context(), timeout, time.Now)
	if !slices.Contains(want, outcome.Class) {
		t.Fatalf("%s (%s), want %q", outcome.Class, outcome.Detail, want)
	}
	return outcome
}

func (s *stub) expectDialled(t *testing.T, want int) {
	t.Helper()
	if got := s.proxy.Accepted() + s.other.Accepted(); got != want {
		t.Errorf("dialled %d times, want %d", got, want)
	}
}

func TestAConnectionIsKept(t *testing.T) {
	for name, option := range map[string]func(*httptest.Server){"HTTP/2": func(*httptest.Server) {}, "HTTP/1.1": withoutHTTP2} {
		t.Run(name, func(t *testing.T) {
			var major atomic.Int32
			s := startStub(t, func(w http.ResponseWriter, r *http.Request) {
				major.Store(int32(r.ProtoMajor))
				if r.URL.Path != "/version" || r.Header.Get("Authorization") != "Bearer s3cret" {
					t.Errorf("asked for %s with %q", r.URL.Path, r.Header.Get("Authorization"))
				}
				answerVersion(w, r)
			}, option)
			c := s.client(t, 100)
			for range 10 {
				c.expect(t, time.Minute, "OK")
			}
			s.expectDialled(t, 1)
			if want := name[len("HTTP/")] - '0'; major.Load() != int32(want) {
				t.Errorf("HTTP %d", major.Load())
			}
		})
	}
}

func TestEverySoManyRunsAProbeDialsAnew(t *testing.T) {
	s := startStub(t, answerVersion)
	c := s.client(t, 3)
	for run, want := range []int{1, 1, 1, 2, 2, 2, 3} {
		c.expect(t, time.Minute, "OK")
		if got := s.proxy.Accepted() + s.other.Accepted(); got != want {
			t.Errorf("run %d: dialled %d times, want %d", run, got, want)
		}
	}
}

func TestAfterAFailureAProbeDialsAnew(t *testing.T) {
	var sick atomic.Bool
	s := startStub(t, func(w http.ResponseWriter, r *http.Request) {
		if sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answerVersion(w, r)
	})
	c := s.client(t, 100)
	c.expect(t, time.Minute, "OK")
	sick.Store(true)
	c.expect(t, time.Minute, "ServerError")
	c.expect(t, time.Minute, "ServerError")
	sick.Store(false)
	c.expect(t, time.Minute, "OK")
	c.expect(t, time.Minute, "OK")
	s.expectDialled(t, 3)
}

func TestAKeptConnectionThatBrokeIsNoFailure(t *testing.T) {
	for name, fault := range map[string]faultproxy.Fault{"swallowed": faultproxy.Swallow, "reset": faultproxy.Reset, "closed": faultproxy.Close} {
		t.Run(name, func(t *testing.T) {
			s := startStub(t, answerVersion)
			c := s.client(t, 100)
			c.expect(t, time.Minute, "OK")
			s.proxy.BreakOpen(fault)
			c.expect(t, shortly, "OK")
			c.expect(t, time.Minute, "OK")
			s.expectDialled(t, 2)
		})
	}
}

func TestWhatBreaksFreshConnectionsToo(t *testing.T) {
	tests := map[string]struct {
		fault faultproxy.Fault
		want  []probe.Class
	}{
		"swallowed": {faultproxy.Swallow, []probe.Class{"Timeout"}},
		"reset":     {faultproxy.Reset, []probe.Class{"Connection", "Dial"}}, // by how fast the reset is
		"closed":    {faultproxy.Close, []probe.Class{"Connection"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := startStub(t, answerVersion)
			c := s.client(t, 100)
			c.expect(t, time.Minute, "OK")
			s.proxy.BreakNew(tt.fault)
			s.proxy.BreakOpen(tt.fault)
			c.expect(t, shortly/4, tt.want...)
			s.expectDialled(t, 2)
			c.expect(t, shortly/4, tt.want...) // the second time without asking twice
			s.expectDialled(t, 3)
			s.proxy.BreakNew(faultproxy.None)
			c.expect(t, time.Minute, "OK")
		})
	}
}

func TestThatNoNewConnectionComesAboutIsNoticed(t *testing.T) {
	s := startStub(t, answerVersion)
	c := s.client(t, 3)
	c.expect(t, time.Minute, "OK")
	s.proxy.BreakNew(faultproxy.Close)
	c.expect(t, time.Minute, "OK")
	c.expect(t, time.Minute, "OK")
	c.expect(t, time.Minute, "Connection")
}

func TestASlowAnswer(t *testing.T) {
	s := startStub(t, answerVersion)
	c := s.client(t, 100)
	s.proxy.Delay(10 * time.Millisecond)
	c.expect(t, time.Minute, "OK")
	s.proxy.Delay(time.Minute)
	if outcome := c.expect(t, shortly/4, "Timeout"); outcome.Detail != "no whole answer in time" {
		t.Errorf("the detail is %q", outcome.Detail)
	}
}

func TestAServerThatShutsDownDecently(t *testing.T) {
	s := startStub(t, answerVersion)
	c := s.client(t, 100)
	c.expect(t, time.Minute, "OK")
	if err := s.Config.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.expect(t, time.Minute, "Connection") // the proxy accepts, and can't go on
	s.expectDialled(t, 2)
}

func TestARunThatWeGiveUpIsNotTheServersFault(t *testing.T) {
	asked := make(chan struct{})
	s := startStub(t, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})
	c := s.client(t, 100)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if outcome := c.probe(ctx, time.Minute, time.Now); outcome.Class != "NotRun" {
		t.Errorf("%s", outcome.Class)
	}
}

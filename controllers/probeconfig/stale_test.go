package probeconfig

import (
	"context"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/probing"
)

// ran tells which targets ran, and has them run again in an hour.
type ran struct{ keys chan probing.Key }

func (r *ran) Observe(key probing.Key, run probe.Run) time.Time {
	r.keys <- key
	return run.Ended.Add(time.Hour)
}

// probeForReal has the targets' probes run by the environment's clock, in a minute at the earliest, and gives those that ran.
func (w *env) probeForReal() <-chan probing.Key {
	w.t.Helper()
	seen := &ran{keys: make(chan probing.Key, 10)}
	w.Prober = (&probing.Prober{Handler: seen, Policy: kubeconfig.Policy{AllowLoopback: true}, Clock: w.clock}).Init()
	nowhere := func(port string) []byte {
		return []byte(`{"apiVersion": "v1", "kind": "Config", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
"clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:` + port + `"}}], "users": [{"name": "a", "user": {"token": "t"}}]}`)
	}
	for _, key := range w.Observer.targets.keys() {
		err := w.Prober.Set(key, probing.Target{Internal: nowhere("1"), External: nowhere("2"), Timeout: time.Second}, w.clock.Now().Add(100*time.Hour))
		if err != nil {
			w.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error)
	go func() { done <- w.Prober.Start(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	return seen.keys
}

// A breaker may be open for long, and what was unhealthy when it opened may have recovered meanwhile.
func TestAnOldDecisionIsConfirmedBeforeAnythingIsScaledDown(t *testing.T) {
	w := newEnv(t, 2, func(pc *v1alpha1.ProbeConfig) { pc.Spec.ProbeInterval = "1h" })
	for i := range 2 {
		w.probe(shoot(i), probe.OK, probe.OK)
	}
	w.Observer.fleet().FollowBreaker(&limit.Opening{ID: "20260301t115900z", OpenedAt: noon})
	w.fail("shoot-0")
	w.want("shoot-0", "3 3", "the breaker is open")
	w.clock.Step(40 * time.Minute)
	runs := w.probeForReal()
	w.edit(w.stored(), `{"metadata":{"annotations":{"autohealer.resourcestack.com/reset-breaker":"20260301t115900z"}}}`)
	w.settle()
	w.want("shoot-0", "3 3", "nobody has looked for 40 minutes")
	select {
	case key := <-runs:
		if key.Namespace != "shoot-0" {
			t.Errorf("%s ran", key.Namespace)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("no run was asked for")
	}
	w.probe("shoot-0", probe.OK, probe.Timeout)
	w.want("shoot-0", "0r 0r", "confirmed")
}

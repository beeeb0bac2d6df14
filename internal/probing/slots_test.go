package probing

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// endedContext is a context that has ended: acquire doesn't wait with it.
func endedContext(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestANamespaceHasNoMoreThanItsShareOfListings(t *testing.T) {
	s := newSlots()
	var free []func()
	for range maxPerNamespace {
		f, ok := s.acquire(t.Context(), "hostile", false)
		if !ok {
			t.Fatal("it has no place")
		}
		free = append(free, f)
	}
	if _, ok := s.acquire(t.Context(), "hostile", false); ok {
		t.Error("it has more than its share")
	}
	if _, ok := s.acquire(t.Context(), "victim", false); !ok {
		t.Error("another has no place")
	}
	free[0]()
	if _, ok := s.acquire(t.Context(), "hostile", false); !ok {
		t.Error("a place that is free again isn't")
	}
}

func TestSlowListingsDontTakeOthersSlots(t *testing.T) {
	s := newSlots()
	for i := range maxSlow {
		if _, ok := s.acquire(t.Context(), fmt.Sprint("slow-", i), true); !ok {
			t.Fatalf("%d of %d have no place", i, maxSlow)
		}
	}
	if _, ok := s.acquire(endedContext(t), "slow", true); ok {
		t.Error("there are more slow ones than places")
	}
	for i := range maxListings {
		if _, ok := s.acquire(t.Context(), fmt.Sprint("prompt-", i), false); !ok {
			t.Fatalf("%d of %d have no place", i, maxListings)
		}
	}
	if _, ok := s.acquire(endedContext(t), "slow", false); ok {
		t.Error("there are more than places")
	}
	if n := len(s.byNamespace); n != maxSlow+maxListings {
		t.Errorf("%d namespaces are known, want %d: who got no place keeps none", n, maxSlow+maxListings)
	}
}

// A server that answers its probes at once and trickles its lists has a slot for a short time only, and then one of few.
func TestAListThatTricklesIsCutShort(t *testing.T) {
	until := make(chan struct{})
	c := &cluster{instead: func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-until:
		}
	}}
	s := startStub(t, c.ServeHTTP)
	t.Cleanup(func() { close(until) })
	p, h := startProber(t)
	p.listTimeout = 50 * time.Millisecond
	key := Key{Namespace: "hostile", Name: "hostile" + "/" + "a"}
	if err := p.Set(key, Target{Internal: credentials("1", s.kubeconfig()), External: credentials("2", s.outside()), Timeout: time.Minute, NodeLeases: &terms}, h.clock.Now()); err != nil {
		t.Fatal(err)
	}
	if run := h.nextRun(t); run.Leases != nil || run.ListError.Class != probe.Timeout {
		t.Errorf("the first: %+v", run)
	}
	for range maxSlow {
		if _, ok := p.listSlots.acquire(t.Context(), "slow", true); !ok {
			t.Fatal("no place")
		}
		p.listSlots.release("slow")
	}
	if err := p.Set(key, Target{Internal: credentials("1", s.kubeconfig()), External: credentials("2", s.outside()), Timeout: 2 * time.Second, NodeLeases: &terms}, h.clock.Now()); err != nil {
		t.Fatal(err)
	}
	if run := h.nextRun(t); run.ListError.Class != probe.NotRun {
		t.Errorf("the next takes another's place: %+v", run)
	}
}

package probing

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

// witnessServer is a server that may be a witness.
type witnessServer struct {
	*httptest.Server

	handshakes atomic.Int32
}

func newWitnessServer(t *testing.T) *witnessServer {
	t.Helper()
	o := &witnessServer{}
	o.Server = httptest.NewUnstartedServer(http.NotFoundHandler())
	o.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		o.handshakes.Add(1)
		return nil, nil
	}}
	o.StartTLS()
	t.Cleanup(o.Close)
	return o
}

// witness names it, trusted.
func (o *witnessServer) witness(name string) guardrail.Witness {
	return guardrail.Witness{
		Name: name, Address: o.Listener.Addr().String(),
		CABundle: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.Certificate().Raw})),
	}
}

// deadWitness is a witness at whose address no server listens.
func deadWitness(t *testing.T, name string) guardrail.Witness {
	t.Helper()
	o := newWitnessServer(t)
	one := o.witness(name)
	o.Close()
	return one
}

func named(guardrails ...[]guardrail.Witness) map[string][]guardrail.Witness {
	all := map[string][]guardrail.Witness{}
	for i, some := range guardrails {
		all[string(rune('a'+i))] = some
	}
	return all
}

func TestWhoVouches(t *testing.T) {
	answers, dead := newWitnessServer(t), deadWitness(t, "dead")
	a, b := answers.witness("a"), answers.witness("b")
	untrusted := answers.witness("untrusted")
	untrusted.CABundle = ""
	wrongName := answers.witness("elsewhere") // the certificate isn't for this name
	_, port, _ := net.SplitHostPort(wrongName.Address)
	wrongName.Address = "localhost:" + port
	for name, test := range map[string]struct {
		witnesses map[string][]guardrail.Witness
		policy    kubeconfig.Policy
		want      bool
	}{
		"nobody is named":                     {nil, loopback, false},
		"one answers":                         {named([]guardrail.Witness{a}), loopback, true},
		"one of two answers":                  {named([]guardrail.Witness{dead, a}), loopback, true},
		"none answers":                        {named([]guardrail.Witness{dead}), loopback, false},
		"its certificate isn't trusted":       {named([]guardrail.Witness{untrusted}), loopback, false},
		"its certificate is for another name": {named([]guardrail.Witness{wrongName}), loopback, false},
		"its address isn't dialled":           {named([]guardrail.Witness{a}), kubeconfig.Policy{}, false},
		"one of each Guardrail answers":       {named([]guardrail.Witness{a}, []guardrail.Witness{dead, b}), loopback, true},
		"none of one Guardrail answers":       {named([]guardrail.Witness{a}, []guardrail.Witness{dead}), loopback, false},
	} {
		w := (&Witnesses{Policy: test.policy}).Init()
		w.Set(test.witnesses)
		if got := w.Vouch(t.Context(), time.Now()); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A change of another Guardrail's limit doesn't change the witnesses, and doesn't have them asked more often.
func TestTheSameWitnessesGoOnAsTheyAre(t *testing.T) {
	o := newWitnessServer(t)
	w := (&Witnesses{Policy: loopback}).Init()
	since := time.Now()
	for range 3 {
		w.Set(named([]guardrail.Witness{o.witness("a")}))
		if !w.Vouch(t.Context(), since) {
			t.Fatal("it doesn't vouch")
		}
	}
	if n := o.handshakes.Load(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}

// Whose witnesses take the connection and say nothing doesn't keep a run for longer than one handshake may take.
func TestSilentWitnessesArentWaitedForOneAfterTheOther(t *testing.T) {
	var all [][]guardrail.Witness
	for range 3 {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = silent.Close() }()
		all = append(all, []guardrail.Witness{{Name: "silent", Address: silent.Addr().String()}})
	}
	w := (&Witnesses{Policy: loopback}).Init()
	w.Set(named(all...))
	began := time.Now()
	if w.Vouch(t.Context(), began) || time.Since(began) > handshakeTimeout+2*time.Second {
		t.Errorf("after %s", time.Since(began))
	}
}

// A witness that takes the connection and says nothing doesn't keep another one's answer back.
func TestASlowWitnessIsntWaitedFor(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	w := (&Witnesses{Policy: loopback}).Init()
	w.Set(named([]guardrail.Witness{{Name: "silent", Address: silent.Addr().String()}, newWitnessServer(t).witness("a")}))
	began := time.Now()
	if !w.Vouch(t.Context(), began) || time.Since(began) > handshakeTimeout/2 {
		t.Errorf("after %s", time.Since(began))
	}
}

func TestTargetsThatFailTogetherShareAnAnswer(t *testing.T) {
	o := newWitnessServer(t)
	w := (&Witnesses{Policy: loopback}).Init()
	w.Set(named([]guardrail.Witness{o.witness("a")}))
	since := time.Now()
	results := make(chan bool, 100)
	for range 100 {
		go func() { results <- w.Vouch(t.Context(), since) }()
	}
	for range 100 {
		if !<-results {
			t.Fatal("it doesn't vouch for one of them")
		}
	}
	if n := o.handshakes.Load(); n > 2 {
		t.Errorf("it was asked %d times", n)
	}
}

// What a witness said before a probe failed says nothing about that.
func TestAnAnswerIsntOlderThanWhatItIsAskedFor(t *testing.T) {
	o := newWitnessServer(t)
	w := (&Witnesses{Policy: loopback}).Init()
	w.Set(named([]guardrail.Witness{o.witness("a")}))
	if !w.Vouch(t.Context(), time.Now()) {
		t.Fatal("it is silent")
	}
	o.Close()
	failed := time.Now()
	if w.Vouch(t.Context(), failed) {
		t.Error("it vouches by what it said before")
	}
	if time.Since(failed) < queryInterval/2 {
		t.Error("it is asked more often than once a second")
	}
}

func TestARunThatFailedOutsideIsWitnessed(t *testing.T) {
	g := NewWithT(t)
	o := newWitnessServer(t)
	p, h := startProber(t)
	p.Witnesses.Policy = loopback
	p.Witnesses.Set(named([]guardrail.Witness{o.witness("a")}))
	internal, external := startStub(t, answerVersion), startStub(t, answerVersion)
	g.Expect(p.Set(one, Target{Internal: credentials("1", internal.kubeconfig()), External: credentials("2", external.kubeconfig()), Timeout: time.Minute}, h.clock.Now())).To(Succeed())
	if run := h.nextRun(t); run.External.Class != probe.OK || run.Witnessed || o.handshakes.Load() != 0 {
		t.Fatalf("%+v, %d handshakes, of a run without a failure", run, o.handshakes.Load())
	}
	external.proxy.BreakNew(faultproxy.Close)
	external.proxy.BreakOpen(faultproxy.Close)
	if run := h.nextRun(t); run.External.Result() != probe.Failure || !run.Witnessed {
		t.Fatalf("%+v, %+v", run, run.External)
	}
	p.Witnesses.Set(named([]guardrail.Witness{deadWitness(t, "dead")}))
	if run := h.nextRun(t); run.External.Result() != probe.Failure || run.Witnessed {
		t.Fatalf("%+v, %+v without a witness that answers", run, run.External)
	}
}

func drain(changed <-chan string) {
	for len(changed) > 0 {
		<-changed
	}
}

func TestEachSilentWitnessIsReported(t *testing.T) {
	g := NewWithT(t)
	changed := make(chan string, 10)
	w := (&Witnesses{Policy: loopback, OnChange: func(guardrail string) { changed <- guardrail }}).Init()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Start(ctx) }()
	x, b := deadWitness(t, "x"), deadWitness(t, "b")
	w.Set(named([]guardrail.Witness{x, newWitnessServer(t).witness("a"), b}, []guardrail.Witness{newWitnessServer(t).witness("a")}))
	g.Eventually(changed).Should(Receive())
	g.Eventually(changed).Should(Receive())
	want := []SilentWitness{{"b", b.Address, "Dial: the connection was refused"}, {"x", x.Address, "Dial: the connection was refused"}}
	if got, known := w.Silent("a"); !known || !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got, known := w.Silent("b"); !known || len(got) > 0 {
		t.Errorf("of one whose witness answers: %+v", got)
	}
	if got, known := w.Silent("c"); known || len(got) > 0 {
		t.Errorf("of one that was never looked at: %+v", got)
	}
	drain(changed)
	w.Set(named([]guardrail.Witness{newWitnessServer(t).witness("a")}))
	g.Eventually(changed).Should(Receive(Equal("a")))
	g.Eventually(changed).Should(Receive(Equal("b")), "it names none any more")
	if got, known := w.Silent("a"); !known || len(got) > 0 {
		t.Errorf("afterwards: %+v", got)
	}
	if _, known := w.Silent("b"); known {
		t.Error("a Guardrail is known that names none any more")
	}
	cancel()
	g.Expect(<-ended).To(Succeed())
}

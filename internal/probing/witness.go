package probing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"

	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/metric"
)

const (
	// handshakeTimeout is how long a witness may take.
	handshakeTimeout = probe.WitnessTimeout
	// queryInterval is the least time between two questions to the witnesses, however many targets fail.
	queryInterval = time.Second
	// checkInterval is how often each is checked by itself: one that never answers is to be known before it is needed.
	checkInterval = time.Minute
)

// Witnesses are external servers that answer as long as this cluster's egress network works. They are asked when external probes fail. Set
// its fields before Init.
type Witnesses struct {
	// Policy says which addresses are dialled.
	Policy kubeconfig.Policy
	// OnChange is called with the name of a Guardrail when Silent changes for its witnesses. Default: nothing is called.
	OnChange func(guardrail string)
	// Clock is the real one by default.
	Clock clock.WithTicker

	all        atomic.Pointer[witnessSet]
	changed    chan struct{}                  // holds one notice at most
	withSeries map[string][]guardrail.Witness // those with metric series; only Start's goroutine uses it

	mu     sync.Mutex
	silent map[string][]SilentWitness // needs mu; those that didn't answer, by Guardrail
}

// witnessSet are all witnesses, by the Guardrail that names them.
type witnessSet struct {
	named      map[string][]guardrail.Witness
	queries    singleflight.Group
	lastAnswer atomic.Pointer[answer]
}

// answer is what they said when they were asked last.
type answer struct {
	began   time.Time
	vouched bool
}

// SilentWitness is of a witness that didn't answer, and why.
type SilentWitness struct{ Name, Address, Reason string }

// Init sets defaults. Afterwards witnesses may be set.
func (w *Witnesses) Init() *Witnesses {
	if w.Clock == nil {
		w.Clock = clock.RealClock{}
	}
	if w.OnChange == nil {
		w.OnChange = func(string) {}
	}
	w.changed = make(chan struct{}, 1)
	w.all.Store(&witnessSet{})
	return w
}

// Set replaces all witnesses, by the Guardrail that names them. Nothing changes when they are the same.
func (w *Witnesses) Set(named map[string][]guardrail.Witness) {
	if maps.EqualFunc(named, w.all.Load().named, slices.Equal[[]guardrail.Witness]) {
		return
	}
	w.all.Store(&witnessSet{named: maps.Clone(named)})
	select {
	case w.changed <- struct{}{}:
	default: // a check is requested already
	}
}

// Any says whether there are any.
func (w *Witnesses) Any() bool { return len(w.all.Load().named) > 0 }

// Vouch says whether witnesses answer, asked at that time or later: at least one of each Guardrail that names any. It is false without
// witnesses, and when the answers take longer than five seconds, waiting for an earlier query included.
func (w *Witnesses) Vouch(ctx context.Context, since time.Time) bool {
	all := w.all.Load()
	if len(all.named) == 0 {
		return false
	}
	waiting, stop := context.WithTimeout(ctx, probe.WitnessTimeout)
	defer stop()
	for waiting.Err() == nil {
		from := time.Time{}
		if last := all.lastAnswer.Load(); last != nil && !last.began.Before(since) {
			return last.vouched
		} else if last != nil {
			from = last.began.Add(queryInterval)
		}
		select {
		case <-waiting.Done():
		case <-all.queries.DoChan("", func() (any, error) { return nil, w.ask(ctx, all, from) }):
		}
	}
	return false
}

// ask asks them all, at that time at the earliest. The context may be any run's: runs all end with the Prober.
func (w *Witnesses) ask(ctx context.Context, all *witnessSet, from time.Time) error {
	if wait := from.Sub(w.Clock.Now()); wait > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.Clock.After(wait):
		}
	}
	began := w.Clock.Now()
	answers := make(chan bool, len(all.named))
	for _, witnesses := range all.named {
		go func() { answers <- anyAnswers(ctx, w.Policy, witnesses) }()
	}
	vouch := true
	for range all.named {
		vouch = <-answers && vouch
	}
	result := "not_vouched"
	if vouch {
		result = "vouched"
	}
	witnessQueries.WithLabelValues(result).Inc()
	all.lastAnswer.Store(&answer{began, vouch})
	return nil
}

func anyAnswers(ctx context.Context, policy kubeconfig.Policy, of []guardrail.Witness) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan bool, len(of))
	for _, one := range of {
		go func() { answers <- handshake(ctx, policy, one) == nil }()
	}
	for range of {
		if <-answers {
			return true
		}
	}
	return false
}

// handshake returns when one with the witness is done.
func handshake(ctx context.Context, policy kubeconfig.Policy, one guardrail.Witness) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if one.CABundle != "" {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM([]byte(one.CABundle)) // without a valid certificate no server is trusted, and the witness is silent
	}
	dialer := tls.Dialer{NetDialer: &net.Dialer{Control: policy.Control, KeepAlive: -1}, Config: config}
	conn, err := dialer.DialContext(ctx, "tcp", one.Address)
	if err == nil {
		_ = conn.Close() // nothing was sent
	}
	return err
}

// NeedLeaderElection is true: only the leader probes.
func (*Witnesses) NeedLeaderElection() bool { return true }

// Start checks each witness once a minute, until ctx ends.
func (w *Witnesses) Start(ctx context.Context) error {
	ticker := w.Clock.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
		case <-ticker.C():
		}
		w.check(ctx)
	}
}

func (w *Witnesses) check(ctx context.Context) {
	named := w.all.Load().named
	silent := silentWitnesses(ctx, w.Policy, named)
	if ctx.Err() != nil { // they weren't asked to the end
		return
	}
	w.mu.Lock()
	before := w.silent
	w.silent = silent
	w.mu.Unlock()
	for guardrailName, witnesses := range named {
		for _, one := range witnesses {
			isSilent := slices.ContainsFunc(silent[guardrailName], func(s SilentWitness) bool { return s.Name == one.Name })
			witnessUp.WithLabelValues(guardrailName, one.Name).Set(metric.Bool(!isSilent))
		}
		if previous, known := before[guardrailName]; !known || !slices.Equal(previous, silent[guardrailName]) {
			w.OnChange(guardrailName)
		}
	}
	for guardrailName := range before {
		if _, is := named[guardrailName]; !is {
			w.OnChange(guardrailName)
		}
	}
	for guardrailName, witnesses := range w.withSeries {
		for _, one := range witnesses {
			if !slices.ContainsFunc(named[guardrailName], func(is guardrail.Witness) bool { return is.Name == one.Name }) {
				witnessUp.DeleteLabelValues(guardrailName, one.Name)
			}
		}
	}
	w.withSeries = named
}

// silentWitnesses asks each of them by itself, and once more if it doesn't answer, since one lost handshake says little. Each Guardrail has an
// entry.
func silentWitnesses(ctx context.Context, policy kubeconfig.Policy, named map[string][]guardrail.Witness) map[string][]SilentWitness {
	var mu sync.Mutex
	var queries sync.WaitGroup
	silent := map[string][]SilentWitness{} // needs mu
	for guardrailName, witnesses := range named {
		silent[guardrailName] = nil
		for _, one := range witnesses {
			queries.Go(func() {
				if handshake(ctx, policy, one) == nil {
					return
				}
				if err := handshake(ctx, policy, one); err != nil {
					mu.Lock()
					defer mu.Unlock()
					silent[guardrailName] = append(silent[guardrailName], SilentWitness{one.Name, one.Address, reason(err)})
				}
			})
		}
	}
	queries.Wait()
	for _, witnesses := range silent {
		slices.SortFunc(witnesses, func(a, b SilentWitness) int { return strings.Compare(a.Name, b.Name) })
	}
	return silent
}

func reason(err error) string {
	outcome := classify(err)
	if outcome.Class == probe.AddressRefused {
		outcome.Detail = "such an address is never dialled"
	}
	return string(outcome.Class) + ": " + outcome.Detail
}

// Silent are a Guardrail's witnesses that didn't answer the last check, by name; known is false before the first check.
func (w *Witnesses) Silent(guardrailName string) (silent []SilentWitness, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	silent, known = w.silent[guardrailName]
	return silent, known
}

// Package envoys polls Envoys for the hosts that they have ejected, at their admin endpoint behind mutual TLS: an Envoy has the certificate
// with which it gets its configuration, the manager the one with which it serves that.
//
// Begin to read at Poller.Start; package ejection has the states of a polled Envoy.
package envoys

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
	"github.com/resourcestack/autohealer/internal/metric"
)

const (
	// askInterval is how often each Envoy is polled: three times before its answer is stale.
	askInterval = ejection.StaleAfter / 3
	// askTimeout bounds one Envoy's answer.
	askTimeout = askInterval - time.Second
	// maxConcurrent bounds how many are polled at once.
	maxConcurrent = 16
)

// Endpoint is an Envoy that is polled.
type Endpoint struct {
	// Name of its pod as namespace/name, or its address.
	Name string
	// Address is host:port.
	Address string
}

// Poller polls Envoys. It is a Runnable of the leader.
type Poller struct {
	// Endpoints returns the Envoys to poll. Missing are Services without endpoints, each with the reason.
	Endpoints func(ctx context.Context) (all []Endpoint, missing []string, err error)
	Identity  Identity
	Clock     clock.WithTicker

	client  *http.Client
	changed func()

	mu sync.Mutex
	// envoys are the states, by endpoint; needs mu, as all below.
	envoys  map[Endpoint]ejection.Envoy
	missing []string
	// polled: at least one round is over.
	polled bool
}

// NeedLeaderElection is true: the leader writes statuses.
func (*Poller) NeedLeaderElection() bool { return true }

// AddToManager has it poll while the manager leads. Changed is called when the view differs from the one before.
func (p *Poller) AddToManager(mgr manager.Manager, changed func()) error {
	p.changed = changed
	if err := registerMetrics(); err != nil {
		return err
	}
	if err := mgr.Add(p); err != nil {
		return fmt.Errorf("add what asks Envoys: %w", err)
	}
	return nil
}

// Start polls until the context ends.
func (p *Poller) Start(ctx context.Context) error {
	p.client = p.Identity.client()
	defer p.client.CloseIdleConnections()
	ticker := p.Clock.NewTicker(askInterval)
	defer ticker.Stop()
	var before *ejection.View
	for {
		p.pollAll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		now := p.View()
		setMetrics(now)
		if before == nil || !now.SameAs(before) {
			p.changed()
		}
		before = now
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// View are the answers of all Envoys now; nil before the first round.
func (p *Poller) View() *ejection.View {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.polled {
		return nil
	}
	all := make([]ejection.Envoy, 0, len(p.envoys))
	for _, e := range p.envoys {
		all = append(all, e)
	}
	return ejection.NewView(all, p.missing, p.Clock.Now())
}

// pollAll polls all of them once.
func (p *Poller) pollAll(ctx context.Context) {
	endpoints, missing, err := p.Endpoints(ctx)
	if err != nil { // the answers so far become stale meanwhile
		log.FromContext(ctx).V(1).Info("Can't list the Envoys to poll for ejections", "reason", err.Error())
		return
	}
	free := make(chan struct{}, maxConcurrent)
	var polls sync.WaitGroup
	for _, e := range endpoints {
		free <- struct{}{}
		polls.Go(func() {
			defer func() { <-free }()
			p.poll(ctx, e)
		})
	}
	polls.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	remaining := make(map[Endpoint]ejection.Envoy, len(endpoints))
	for _, e := range endpoints {
		remaining[e] = p.envoys[e]
	}
	p.envoys, p.missing, p.polled = remaining, missing, true // an Envoy that is no longer ready gets no traffic
}

func (p *Poller) poll(ctx context.Context, at Endpoint) {
	startedAt := p.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	scope, ejected, err := p.fetchEjected(limited, at.Address)
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.envoys == nil {
		p.envoys = map[Endpoint]ejection.Envoy{}
	}
	e, known := p.envoys[at]
	if !known {
		e = ejection.Envoy{Name: at.Name, FirstPolled: startedAt}
	}
	if err != nil {
		p.envoys[at] = e.WithProblem(problem(err))
		return
	}
	p.envoys[at] = e.WithAnswer(scope, ejected, startedAt)
}

// problem says why an Envoy didn't answer, without the ports of the connection, which differ each time.
func problem(err error) string {
	if op := new(net.OpError); errors.As(err, &op) {
		return fmt.Sprintf("%s: %v", op.Op, op.Err)
	}
	return err.Error()
}

// Identity is how the manager and Envoys authenticate each other. Its functions are called for each handshake.
type Identity struct {
	// Certificate that the manager shows.
	Certificate func() (*tls.Certificate, error)
	// EnvoyCAs sign the certificates of Envoys.
	EnvoyCAs func() (*x509.CertPool, error)
	// Scope of an Envoy with this URI or DNS name in its certificate.
	Scope func(name string) (ejection.Scope, bool)
}

// client connects to Envoys only: it authenticates them by the names in their certificates, not by addresses, which change.
func (i *Identity) client() *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{
				MinVersion:           tls.VersionTLS12,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.Certificate() },
				InsecureSkipVerify:   true, // the addresses aren't in the certificates; verify does it
				VerifyConnection:     i.verify,
			},
			MaxIdleConnsPerHost: 1, IdleConnTimeout: 2 * askInterval, MaxResponseHeaderBytes: 64 << 10, ResponseHeaderTimeout: askTimeout, TLSHandshakeTimeout: askTimeout,
			ExpectContinueTimeout: time.Second,
		},
	}
}

// verify that the server is an Envoy: it has the client certificate with which it gets its configuration.
func (i *Identity) verify(state tls.ConnectionState) error {
	authorities, err := i.EnvoyCAs()
	if err != nil {
		return err
	}
	if len(state.PeerCertificates) == 0 {
		return errors.New("it shows no certificate")
	}
	o := x509.VerifyOptions{Roots: authorities, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range state.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	if _, err := state.PeerCertificates[0].Verify(o); err != nil {
		return fmt.Errorf("its certificate: %w", err)
	}
	_, err = i.scope(&state)
	return err
}

// scope of the Envoy: that of the first name in its certificate that may see anything.
func (i *Identity) scope(state *tls.ConnectionState) (ejection.Scope, error) {
	leaf := state.PeerCertificates[0]
	var names []string
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	names = append(names, leaf.DNSNames...)
	for _, name := range names {
		if scope, may := i.Scope(name); may {
			scope.Identity = name
			return scope, nil
		}
	}
	return ejection.Scope{}, fmt.Errorf("none of the names in its certificate is an Envoy's: %q", names)
}

// Labels are bounded: states, never Envoys or hosts.
var (
	polledEnvoys = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_outlierpolicy_envoys",
		Help: "Envoys that are asked whom they have ejected, by state: answering, not_answering; and missing, which are Services that lead to none. The leader's.",
	}, []string{"state"})
	ejectedHosts = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "autohealer_outlierpolicy_ejected_hosts",
		Help: "Hosts that some answering Envoy has ejected, each once for each cluster. The leader's.",
	})
)

func registerMetrics() error {
	return metric.Register(polledEnvoys, ejectedHosts)
}

func setMetrics(v *ejection.View) {
	if v == nil {
		return
	}
	answering, silent := v.Count()
	polledEnvoys.WithLabelValues("answering").Set(float64(answering))
	polledEnvoys.WithLabelValues("not_answering").Set(float64(silent))
	polledEnvoys.WithLabelValues("missing").Set(float64(len(v.Missing)))
	ejectedHosts.Set(float64(v.Ejected()))
}

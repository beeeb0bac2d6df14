// Package envoys asks Envoys whom they have ejected. Both sides show certificates: an Envoy the one with which it gets its
// configuration, the manager the one with which it serves that.
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
	// every Envoy is asked so often: three times before its answer is stale.
	every = ejection.StaleAfter / 3
	// patience with one Envoy's answer.
	patience = every - time.Second
	// together are asked at most so many.
	together = 16
)

// Endpoint is an Envoy that is asked.
type Endpoint struct {
	// Name of its pod as namespace/name, or its address.
	Name string
	// Address is host:port.
	Address string
}

// Asker asks Envoys. It is a Runnable of the replica that leads.
type Asker struct {
	// Endpoints are whom to ask. Missing are Services that lead to nobody, each with the reason.
	Endpoints func(ctx context.Context) (all []Endpoint, missing []string, err error)
	Identity  Identity
	Clock     clock.WithTicker

	client  *http.Client
	changed func()

	mu sync.Mutex
	// envoys are what is known, by endpoint; needs mu, as all below.
	envoys  map[Endpoint]ejection.Envoy
	missing []string
	// asked: at least one round is over.
	asked bool
}

// NeedLeaderElection is true: who writes statuses asks.
func (*Asker) NeedLeaderElection() bool { return true }

// AddToManager has it asked while the manager leads. Changed is called when something else is to be told.
func (a *Asker) AddToManager(mgr manager.Manager, changed func()) error {
	a.changed = changed
	if err := registerMetrics(); err != nil {
		return err
	}
	if err := mgr.Add(a); err != nil {
		return fmt.Errorf("add what asks Envoys: %w", err)
	}
	return nil
}

// Start asks until the context ends.
func (a *Asker) Start(ctx context.Context) error {
	a.client = a.Identity.client()
	defer a.client.CloseIdleConnections()
	ticker := a.Clock.NewTicker(every)
	defer ticker.Stop()
	var before *ejection.View
	for {
		a.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		now := a.View()
		observe(now)
		if before == nil || !now.Same(before) {
			a.changed()
		}
		before = now
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// View is what all Envoys say now; nil before they were asked.
func (a *Asker) View() *ejection.View {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.asked {
		return nil
	}
	all := make([]ejection.Envoy, 0, len(a.envoys))
	for _, e := range a.envoys {
		all = append(all, e)
	}
	return ejection.NewView(all, a.missing, a.Clock.Now())
}

// round asks all of them once.
func (a *Asker) round(ctx context.Context) {
	endpoints, missing, err := a.Endpoints(ctx)
	if err != nil { // what was answered grows old meanwhile
		log.FromContext(ctx).V(1).Info("Not known which Envoys there are", "reason", err.Error())
		return
	}
	free := make(chan struct{}, together)
	var asking sync.WaitGroup
	for _, e := range endpoints {
		free <- struct{}{}
		asking.Go(func() {
			defer func() { <-free }()
			a.ask(ctx, e)
		})
	}
	asking.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	there := make(map[Endpoint]ejection.Envoy, len(endpoints))
	for _, e := range endpoints {
		there[e] = a.envoys[e]
	}
	a.envoys, a.missing, a.asked = there, missing, true // what isn't ready any more gets no requests
}

func (a *Asker) ask(ctx context.Context, at Endpoint) {
	began := a.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	scope, ejected, err := a.question(limited, at.Address)
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.envoys == nil {
		a.envoys = map[Endpoint]ejection.Envoy{}
	}
	e, known := a.envoys[at]
	if !known {
		e = ejection.Envoy{Name: at.Name, Asked: began}
	}
	if err != nil {
		a.envoys[at] = e.Failed(problem(err))
		return
	}
	a.envoys[at] = e.After(scope, ejected, began)
}

// problem says why an Envoy didn't answer, without the ports of the connection, which are others each time.
func problem(err error) string {
	if op := new(net.OpError); errors.As(err, &op) {
		return fmt.Sprintf("%s: %v", op.Op, op.Err)
	}
	return err.Error()
}

// Identity is how the manager and Envoys know each other. Functions are called for each handshake.
type Identity struct {
	// Certificate that the manager shows.
	Certificate func() (*tls.Certificate, error)
	// EnvoyCAs sign the certificates of Envoys.
	EnvoyCAs func() (*x509.CertPool, error)
	// Scope of an Envoy with this URI or DNS name in its certificate.
	Scope func(name string) (ejection.Scope, bool)
}

// client speaks with Envoys and nobody else: it knows them by their names and not by addresses, which come and go.
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
			MaxIdleConnsPerHost: 1, IdleConnTimeout: 2 * every, MaxResponseHeaderBytes: 64 << 10, ResponseHeaderTimeout: patience, TLSHandshakeTimeout: patience,
			ExpectContinueTimeout: time.Second,
		},
	}
}

// verify that an Envoy is one: it shows the certificate that it shows as a client, too.
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

// scope of the Envoy at the other end: what the first of its names that may see anything may see.
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

// Neither Envoys nor hosts are told by name.
var (
	asked = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_outlierpolicy_envoys",
		Help: "Envoys that are asked whom they have ejected, by state: answering, not_answering; and missing, which are Services that lead to none. The leader's.",
	}, []string{"state"})
	ejectedHosts = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "autohealer_outlierpolicy_ejected_hosts",
		Help: "Hosts that some answering Envoy has ejected, each once for each cluster. The leader's.",
	})
)

func registerMetrics() error {
	return metric.Register(asked, ejectedHosts)
}

func observe(v *ejection.View) {
	if v == nil {
		return
	}
	answering, silent := v.Count()
	asked.WithLabelValues("answering").Set(float64(answering))
	asked.WithLabelValues("not_answering").Set(float64(silent))
	asked.WithLabelValues("missing").Set(float64(len(v.Missing)))
	ejectedHosts.Set(float64(v.Ejected()))
}

// Package shoots reads clusters whose kubeconfigs are in Secrets: Clients connects to them, a Mirror keeps the objects of one query, and
// WatchHealth says whether these are current. The NotFound of a VerifyingClient is reliable.
//
// The objects of a Mirror are in one of these states:
//
//	opening (ErrNotSynced) ──(list or initial events are stored)──> current ──(watch ends)──> retrying, current until the timeout
//	     └──(error or timeout)──> unusable (Err) ──(a watch is answered)──> current  <────────────────┘
//
// Begin to read at Clients.Connection and at Open.
package shoots

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

// Clients keeps a client for each shoot, as long as its kubeconfig is the same. It is safe for concurrent use.
type Clients struct {
	// Secrets reads those with kubeconfigs: in each shoot's namespace that of the name Secret, under Key.
	Secrets     client.Reader
	Secret, Key string
	Scheme      *runtime.Scheme
	// Dial is the policy of the addresses that a kubeconfig may have.
	Dial kubeconfig.Policy
	// Timeout of one request.
	Timeout time.Duration

	mu          sync.Mutex
	connections map[string]*Connection // by namespace; needs mu
}

// Connection is how one shoot is reached.
type Connection struct {
	// UID and Version of the Secret that it is made from.
	UID     types.UID
	Version string
	// Client reads live.
	Client client.Client
	// WatchClient has no time limit on its requests.
	WatchClient client.WithWatch

	transport *http.Transport
}

// Of returns the client of the shoot in a namespace.
func (s *Clients) Of(ctx context.Context, namespace string) (client.Client, error) {
	c, err := s.Connection(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return c.Client, nil
}

// Connection returns that of the shoot in a namespace. It is made from the stored Secret: the namespace, the Secret's UID and its version all
// match, so that no shoot is checked with another's client.
func (s *Clients) Connection(ctx context.Context, namespace string) (*Connection, error) {
	stored := &corev1.Secret{}
	if err := s.Secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: s.Secret}, stored); err != nil {
		if apierrors.IsNotFound(err) {
			s.Forget(namespace)
		}
		return nil, fmt.Errorf("read the shoot's kubeconfig: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.connections[namespace]
	if ok && known.UID == stored.UID && known.Version == stored.ResourceVersion {
		return known, nil
	}
	if ok {
		known.transport.CloseIdleConnections()
		delete(s.connections, namespace)
	}
	fresh, err := s.connect(stored)
	if err != nil {
		return nil, fmt.Errorf("use key %s of Secret %s: %w", s.Key, s.Secret, err)
	}
	if s.connections == nil {
		s.connections = map[string]*Connection{}
	}
	s.connections[namespace] = fresh
	return fresh, nil
}

// A connection without traffic for pingAfter is pinged, and closed without an answer within pingTimeout: else a watch that a firewall has
// dropped would look as if nothing happened. HTTP/2 has pings; for HTTP/1.1, which some proxies speak, TCP keepalives are used.
const (
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
)

var keepAlive = net.KeepAliveConfig{Enable: true, Idle: pingAfter, Interval: pingTimeout / 2, Count: 2}

// connect makes clients, and sends no request yet.
func (s *Clients) connect(stored *corev1.Secret) (*Connection, error) {
	content, ok := stored.Data[s.Key]
	if !ok {
		return nil, errors.New("there is no such key")
	}
	access, err := s.Dial.Parse(content)
	if err != nil {
		return nil, err
	}
	transport := access.Transport(s.Dial, net.Dialer{Timeout: s.Timeout, KeepAliveConfig: keepAlive})
	transport.TLSHandshakeTimeout = 2 * s.Timeout // else a connection whose request was canceled would stay half open for ever; requests end before, with the time in their error
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	watchClient := &http.Client{Transport: &authorized{access: access, next: transport, timeout: s.Timeout}, CheckRedirect: refuseRedirect}
	timedClient := *watchClient
	timedClient.Timeout = s.Timeout
	config := &rest.Config{Host: access.URL("").String(), QPS: -1}
	restMapper, err := newMapper(config, &timedClient)
	if err != nil {
		return nil, fmt.Errorf("make a client of the shoot: %w", err)
	}
	live, errLive := NewVerifyingClient(config, client.Options{HTTPClient: &timedClient, Scheme: s.Scheme, Mapper: restMapper})
	watch, errWatch := client.NewWithWatch(config, client.Options{HTTPClient: watchClient, Scheme: s.Scheme, Mapper: restMapper})
	if err := errors.Join(errLive, errWatch); err != nil {
		return nil, fmt.Errorf("make a client of the shoot: %w", err)
	}
	return &Connection{
		UID: stored.UID, Version: stored.ResourceVersion, Client: live, WatchClient: watch, transport: transport,
	}, nil
}

// Forget closes the connection to a shoot that is deleted, or no longer checked.
func (s *Clients) Forget(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.connections[namespace]; ok {
		known.transport.CloseIdleConnections()
		delete(s.connections, namespace)
	}
}

// refuseRedirect keeps a client from following a redirect: the other server would get the credentials, too.
func refuseRedirect(next *http.Request, _ []*http.Request) error {
	return fmt.Errorf("the shoot's API server redirects to %s, which is not followed", next.URL.Host)
}

// maxAnswerBytes bounds one answer: a list of more than a thousand nodes fits. A shoot's owner controls its content, which must not take the
// memory that other shoots' checks need.
const maxAnswerBytes = 32 << 20

// authorized sends requests with the kubeconfig's credentials, and ends answers that are too large with an error.
//
// It bounds the retries of client-go, too: while an overloaded server answers with Retry-After, client-go retries up to ten times, and returns
// nothing meanwhile. It may retry once, if the time isn't too long; the next refusal in a row is an error.
type authorized struct {
	access *kubeconfig.Access
	next   http.RoundTripper
	// timeout is how long an answer may take.
	timeout time.Duration
	// refusals in a row.
	refusals atomic.Int32
}

// RoundTrip sends the request with credentials.
func (a *authorized) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	a.access.Authorize(request.Header)
	response, err := a.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	response.Body = http.MaxBytesReader(nil, response.Body, maxAnswerBytes)
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode < http.StatusInternalServerError {
		a.refusals.Store(0)
		return response, nil
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	if a.refusals.Add(1) > 1 || time.Duration(seconds)*time.Second >= a.timeout {
		response.Header.Del("Retry-After")
	}
	return response, nil
}

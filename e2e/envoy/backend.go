package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// Backend is a real HTTP server that fails on command.
type Backend struct {
	// Address, host:port.
	Address string
	// Port of it.
	Port uint32

	t      testing.TB
	http2  bool
	status atomic.Int64
	hits   atomic.Int64
	mu     sync.Mutex
	server *http.Server // nil while it refuses connections
}

// HostIP is cluster.HostIP. Where there is none the test is skipped.
func HostIP(t testing.TB) string {
	t.Helper()
	ip, err := cluster.HostIP()
	if err != nil {
		t.Fatal(err)
	}
	if ip == "" {
		t.Skip("this machine has no IPv4 address but loopback's, which EndpointSlices may not have")
	}
	return ip
}

// NewBackend starts one that answers 200; it ends with the test.
func NewBackend(t testing.TB) *Backend {
	t.Helper()
	return NewBackendOn(t, "127.0.0.1")
}

// NewBackendOn starts one on another of the machine's addresses.
func NewBackendOn(t testing.TB, ip string) *Backend {
	t.Helper()
	b := &Backend{t: t, Address: net.JoinHostPort(ip, "0")}
	b.status.Store(http.StatusOK)
	b.Open()
	t.Cleanup(b.Refuse)
	return b
}

// NewHTTP2BackendOn starts one that knows nothing but HTTP/2, without TLS, as a server of gRPC's.
func NewHTTP2BackendOn(t testing.TB, ip string) *Backend {
	t.Helper()
	b := &Backend{t: t, Address: net.JoinHostPort(ip, "0"), http2: true}
	b.status.Store(http.StatusOK)
	b.Open()
	t.Cleanup(b.Refuse)
	return b
}

// ServeHTTP answers with the status that was set, and says who it is.
func (b *Backend) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	b.hits.Add(1)
	w.Header().Set("X-Backend", b.Address)
	w.WriteHeader(int(b.status.Load()))
	_, _ = io.WriteString(w, b.Address) // a client that is gone doesn't matter
}

// Answer with a status from now on.
func (b *Backend) Answer(status int) { b.status.Store(int64(status)) }

// Hits are the requests that it got.
func (b *Backend) Hits() int64 { return b.hits.Load() }

// Refuse closes the port and all connections.
func (b *Backend) Refuse() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server != nil {
		_ = b.server.Close()
		b.server = nil
	}
}

// Open the port again.
func (b *Backend) Open() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server != nil {
		return
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", b.Address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Address = listener.Addr().String()
	b.Port = uint32(listener.Addr().(*net.TCPAddr).Port)
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second}
	if b.http2 {
		b.server.Protocols = &http.Protocols{}
		b.server.Protocols.SetUnencryptedHTTP2(true)
	}
	go func(s *http.Server) {
		if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			b.t.Errorf("serve a backend: %v", err)
		}
	}(b.server)
}

var trafficClient = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}

// Get sends one request through a listener, and gives the status and who answered: a backend's address, or "" for Envoy.
func (e *Envoy) Get(listener string) (int, string) {
	e.t.Helper()
	r, err := trafficClient.Get("http://" + e.Addr(listener) + "/")
	if err != nil {
		e.t.Fatalf("ask through Envoy: %v", err)
	}
	defer func() { _ = r.Body.Close() }()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		e.t.Fatalf("ask through Envoy: %v", err)
	}
	return r.StatusCode, r.Header.Get("X-Backend")
}

// Statuses sends n requests, one after the other, and counts the answers.
func (e *Envoy) Statuses(listener string, n int) map[int]int {
	e.t.Helper()
	counts := map[int]int{}
	for range n {
		status, _ := e.Get(listener)
		counts[status]++
	}
	return counts
}

// Dial connects through a TCP listener and gives what a plain request to the backend is answered with: its address, or an
// error when Envoy closes the connection.
func (e *Envoy) Dial(listener string) (string, error) {
	e.t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + e.Addr(listener) + "/")
	if err != nil {
		return "", fmt.Errorf("ask through Envoy: %w", err)
	}
	defer func() { _ = r.Body.Close() }()
	return r.Header.Get("X-Backend"), nil
}

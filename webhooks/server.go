package webhooks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// What anyone who reaches the port can hold without credentials: an API server has none either.
const (
	// connections are some 600 KiB each at worst, with as many streams as they may have. An API server keeps a few; several may share an
	// address.
	connections, connectionsOfOne = 256, 32
	// newPerSecond and newAtOnce are for the new ones of an address, since each takes half a millisecond of processor time: it may have a
	// twentieth of one. An API server makes one when it has had nothing to ask for a while, and more when it asks much at once; probes of
	// a manager's own machine, and what is between the two, may make one each time.
	newPerSecond, newBurst = 100, 200
	// headerBytes is four times what an API server sends.
	headerBytes = 8 << 10
	// streamBytes is what is kept of a request that nobody reads yet, and of all of a connection: HTTP/2's own minimum, as frameBytes is.
	streamBytes, frameBytes = 64 << 10, 16 << 10
	streams                 = 32
	idleTimeout             = 90 * time.Second
	// shutdownTimeout is more than any answer.
	shutdownTimeout = 10 * time.Second
)

// Server serves webhooks as controller-runtime's server does, with bounds to what clients hold: that one has none for their number,
// and takes a megabyte of headers from each.
type Server struct {
	*webhook.DefaultServer

	configure []func(*tls.Config)
	listens   atomic.Bool
}

// NewServer is a server for a manager's options. The functions must give the TLS configuration a certificate.
func NewServer(host string, port int, configure ...func(*tls.Config)) *Server {
	return &Server{DefaultServer: &webhook.DefaultServer{Options: webhook.Options{Host: host, Port: port}}, configure: configure}
}

func (s *Server) address() string {
	return net.JoinHostPort(s.Options.Host, strconv.Itoa(s.Options.Port))
}

// Start serves until ctx ends, and then answers what it was asked.
func (s *Server) Start(ctx context.Context) error {
	config := &tls.Config{NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
	for _, configure := range s.configure {
		configure(config)
	}
	tcp, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address())
	if err != nil {
		return fmt.Errorf("serve webhooks: %w", err)
	}
	s.listens.Store(true)
	server := &http.Server{
		Handler: s.WebhookMux(), BaseContext: func(net.Listener) context.Context { return ctx },
		// ReadTimeout is for requests that nobody reads; who reads sets another.
		MaxHeaderBytes: headerBytes, ReadHeaderTimeout: defaultTimeout, ReadTimeout: defaultTimeout, WriteTimeout: 2 * defaultTimeout, IdleTimeout: idleTimeout,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streams, MaxReadFrameSize: frameBytes, MaxReceiveBufferPerConnection: streamBytes, MaxReceiveBufferPerStream: streamBytes,
		},
		ErrorLog: log.New(&rateLimitedLog{}, "", 0),
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil { // somebody doesn't read an answer
			stopped <- server.Close()
		} else {
			stopped <- nil
		}
	}()
	if err := server.Serve(tls.NewListener(&limitedListener{Listener: tcp, peers: map[string]*peer{}}, config)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve webhooks: %w", err)
	}
	return <-stopped
}

// StartedChecker is healthy while the server can be connected to.
func (s *Server) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if !s.listens.Load() {
			return errors.New("the webhook server has not begun yet")
		}
		// It only looks whether somebody is there.
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: defaultTimeout}, "tcp", s.address(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return fmt.Errorf("the webhook server can't be reached: %w", err)
		}
		return conn.Close()
	}
}

// limitedListener closes at once what it accepts from an address that has too many connections, or makes them too fast. Where all together
// are too many, the address that has most loses one.
type limitedListener struct {
	net.Listener

	mu    sync.Mutex
	total int              // needs mu, as from; open connections
	peers map[string]*peer // by address
}

type peer struct {
	open     map[*limitedConn]bool
	accepted *rate.Limiter
}

func (b *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &limitedConn{Conn: conn, address: hostOf(conn.RemoteAddr().String()), listener: b}
		evicted, admitted := b.admit(c)
		if evicted != nil {
			_ = evicted.Close() // whoever has so many finds out by itself
		}
		if admitted {
			return c, nil
		}
		refused.WithLabelValues(refusedConnection).Inc()
		_ = conn.Close() // nothing was said on it yet
	}
}

// admit says whether a connection is let in, and which one goes for that.
func (b *limitedListener) admit(c *limitedConn) (evicted *limitedConn, admitted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	by := b.peers[c.address]
	if by == nil {
		if len(b.peers) >= connections { // most have gone
			maps.DeleteFunc(b.peers, func(_ string, by *peer) bool { return len(by.open) == 0 })
		}
		by = &peer{open: map[*limitedConn]bool{}, accepted: rate.NewLimiter(newPerSecond, newBurst)}
		b.peers[c.address] = by
	}
	if len(by.open) >= connectionsOfOne || !by.accepted.Allow() {
		return nil, false
	}
	if b.total >= connections {
		most := by
		for _, other := range b.peers {
			if len(other.open) > len(most.open) {
				most = other
			}
		}
		if most == by {
			return nil, false
		}
		for evicted = range most.open {
			break
		}
		b.forget(evicted)
	}
	b.total++
	by.open[c] = true
	return evicted, true
}

// forget needs b.mu.
func (b *limitedListener) forget(c *limitedConn) {
	if by := b.peers[c.address]; by != nil && by.open[c] {
		delete(by.open, c)
		b.total--
	}
}

type limitedConn struct {
	net.Conn

	address  string
	listener *limitedListener
}

func (c *limitedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.forget(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// hostOf is an address without its port.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// rateLimitedLog logs what net/http says, such as of handshakes that fail, now and then: clients decide how often there is something to say.
type rateLimitedLog struct{ limiter rate.Sometimes }

func (s *rateLimitedLog) Write(text []byte) (int, error) {
	s.limiter.Interval = logInterval
	s.limiter.Do(func() { logf.Log.WithName("webhook").Info("A connection to the webhook failed", "why", string(text)) })
	return len(text), nil
}

// logInterval is how often at most what clients do wrong is logged.
const logInterval = 10 * time.Second

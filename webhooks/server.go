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
	newPerSecond, newAtOnce = 100, 200
	// headerBytes is four times what an API server sends.
	headerBytes = 8 << 10
	// streamBytes is what is kept of a request that nobody reads yet, and of all of a connection: HTTP/2's own minimum, as frameBytes is.
	streamBytes, frameBytes = 64 << 10, 16 << 10
	streams                 = 32
	idle                    = 90 * time.Second
	// shutdownTakes is more than any answer.
	shutdownTakes = 10 * time.Second
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
		MaxHeaderBytes: headerBytes, ReadHeaderTimeout: defaultTimeout, ReadTimeout: defaultTimeout, WriteTimeout: 2 * defaultTimeout, IdleTimeout: idle,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streams, MaxReadFrameSize: frameBytes, MaxReceiveBufferPerConnection: streamBytes, MaxReceiveBufferPerStream: streamBytes,
		},
		ErrorLog: log.New(&seldom{}, "", 0),
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTakes)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil { // somebody doesn't read an answer
			stopped <- server.Close()
		} else {
			stopped <- nil
		}
	}()
	if err := server.Serve(tls.NewListener(&bounded{Listener: tcp, from: map[string]*caller{}}, config)); !errors.Is(err, http.ErrServerClosed) {
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

// bounded closes at once what it accepts from an address that has too many connections, or makes them too fast. Where all together
// are too many, the address that has most loses one.
type bounded struct {
	net.Listener

	mu   sync.Mutex
	all  int                // needs mu, as from; open connections
	from map[string]*caller // by address
}

type caller struct {
	open map[*counted]bool
	made *rate.Limiter
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &counted{Conn: conn, from: hostOf(conn.RemoteAddr().String()), of: b}
		inTheWay, admitted := b.admit(c)
		if inTheWay != nil {
			_ = inTheWay.Close() // whoever has so many finds out by itself
		}
		if admitted {
			return c, nil
		}
		refused.WithLabelValues(refusedConnection).Inc()
		_ = conn.Close() // nothing was said on it yet
	}
}

// admit says whether a connection is let in, and which one goes for that.
func (b *bounded) admit(c *counted) (inTheWay *counted, admitted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	by := b.from[c.from]
	if by == nil {
		if len(b.from) >= connections { // most have gone
			maps.DeleteFunc(b.from, func(_ string, by *caller) bool { return len(by.open) == 0 })
		}
		by = &caller{open: map[*counted]bool{}, made: rate.NewLimiter(newPerSecond, newAtOnce)}
		b.from[c.from] = by
	}
	if len(by.open) >= connectionsOfOne || !by.made.Allow() {
		return nil, false
	}
	if b.all >= connections {
		most := by
		for _, other := range b.from {
			if len(other.open) > len(most.open) {
				most = other
			}
		}
		if most == by {
			return nil, false
		}
		for inTheWay = range most.open {
			break
		}
		b.forget(inTheWay)
	}
	b.all++
	by.open[c] = true
	return inTheWay, true
}

// forget needs b.mu.
func (b *bounded) forget(c *counted) {
	if by := b.from[c.from]; by != nil && by.open[c] {
		delete(by.open, c)
		b.all--
	}
}

type counted struct {
	net.Conn

	from string
	of   *bounded
}

func (c *counted) Close() error {
	c.of.mu.Lock()
	c.of.forget(c)
	c.of.mu.Unlock()
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

// seldom logs what net/http says, such as of handshakes that fail, now and then: clients decide how often there is something to say.
type seldom struct{ pace rate.Sometimes }

func (s *seldom) Write(text []byte) (int, error) {
	s.pace.Interval = sayEvery
	s.pace.Do(func() { logf.Log.WithName("webhook").Info("A connection failed", "why", string(text)) })
	return len(text), nil
}

// sayEvery is how often at most what clients do wrong is logged.
const sayEvery = 10 * time.Second

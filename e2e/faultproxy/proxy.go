// Package faultproxy is a TCP proxy for tests that breaks connections as networks do: it resets, closes, delays or
// swallows, and it can do that to the connections that are open and to new ones apart.
package faultproxy

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Fault is what happens to a connection.
type Fault int

const (
	// None: bytes pass.
	None Fault = iota
	// Swallow: the connection stays, and no byte passes in either direction, as when a firewall has forgotten about it.
	Swallow
	// Reset: the client gets a TCP reset.
	Reset
	// Close: the client sees the connection end.
	Close
)

// Proxy forwards connections to a target until Stop.
type Proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu       sync.Mutex
	links    map[*link]struct{} // needs mu
	fresh    Fault              // needs mu: of new connections
	delay    time.Duration      // needs mu: of each piece of data, in each direction
	accepted []time.Time        // needs mu
	stopped  chan struct{}
}

// Start listens on a loopback port of its own and forwards to target, a host and port.
func Start(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the proxy to %s: %w", target, err)
	}
	p := &Proxy{listener: listener, target: target, links: map[*link]struct{}{}, stopped: make(chan struct{})}
	p.running.Go(p.accept)
	return p, nil
}

// Addr is the host and port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Accepted is how many connections there have been.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.accepted)
}

// AcceptedAt is when they came.
func (p *Proxy) AcceptedAt() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.accepted)
}

// BreakNew does this to connections from now on.
func (p *Proxy) BreakNew(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh = f
}

// BreakOpen does this to the connections that are open now, for good.
func (p *Proxy) BreakOpen(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.suffer(f)
	}
}

// Delay holds each piece of data back for so long, in each direction.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Stop ends all connections and waits for what the proxy began.
func (p *Proxy) Stop() error {
	close(p.stopped)
	err := p.listener.Close()
	p.BreakOpen(Close)
	p.running.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client has gone
		}
		p.admit(client.(*net.TCPConn))
	}
}

func (p *Proxy) admit(client *net.TCPConn) {
	l := &link{proxy: p, client: client}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.stopped:
		_ = client.Close()
		return
	default:
	}
	p.accepted = append(p.accepted, time.Now())
	p.links[l] = struct{}{}
	l.suffer(p.fresh)
	p.running.Go(l.forward)
}

// held is how long data is held back, and whether the connection swallows it.
func (p *Proxy) held(l *link) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay, l.swallows
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

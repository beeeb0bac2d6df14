package faultproxy

import (
	"net"
	"sync"
	"time"
)

// link is one connection through the proxy.
type link struct {
	proxy    *Proxy
	client   *net.TCPConn
	swallows bool // needs the proxy's mu
}

// suffer needs the proxy's mu.
func (l *link) suffer(f Fault) {
	switch f {
	case Swallow:
		l.swallows = true
	case Reset:
		_ = l.client.SetLinger(0) // it is about to go either way
		_ = l.client.Close()
	case Close:
		_ = l.client.Close()
	}
}

// forward passes bytes in both directions until one side ends.
func (l *link) forward() {
	defer l.proxy.forget(l)
	defer func() { _ = l.client.Close() }()
	server, err := net.Dial("tcp", l.proxy.target)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pump(server, l.client) })
	both.Go(func() { l.pump(l.client, server) })
	both.Wait()
}

// pump ends both connections when one does.
func (l *link) pump(to, from net.Conn) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		delay, swallows := l.proxy.held(l)
		if delay > 0 {
			select {
			case <-time.After(delay):
			case <-l.proxy.stopped:
			}
		}
		if n > 0 && !swallows {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

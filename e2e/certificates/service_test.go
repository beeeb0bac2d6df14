package certificates

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// service passes connections on to the managers in it, in turn, as a Service does to its ready endpoints.
type service struct {
	listener net.Listener

	mu       sync.Mutex
	backends []backend
	next     int
	started  int // managers ever
}

type backend struct {
	name    cluster.Component
	address string
}

func newService() (*service, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &service{listener: listener}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go s.pass(connection)
		}
	}()
	return s, nil
}

func (s *service) address() string { return s.listener.Addr().String() }

func (s *service) close() { _ = s.listener.Close() }

// pass copies both ways until either side ends.
func (s *service) pass(from net.Conn) {
	defer func() { _ = from.Close() }()
	b, ok := s.pick()
	if !ok {
		return
	}
	to, err := net.Dial("tcp", b.address)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}

func (s *service) pick() (backend, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.backends) == 0 {
		return backend{}, false
	}
	s.next++
	return s.backends[s.next%len(s.backends)], true
}

func (s *service) all() []backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]backend(nil), s.backends...)
}

func (s *service) names() []cluster.Component {
	var names []cluster.Component
	for _, b := range s.all() {
		names = append(names, b.name)
	}
	return names
}

// start starts a manager and takes it in once it is ready.
func (s *service) start(ctx context.Context, args ...string) cluster.Component {
	GinkgoHelper()
	name, ready := s.begin(ctx, args...)
	Eventually(ctx, ready, 2*time.Minute).Should(Receive(BeNil()))
	return name
}

// begin starts a manager; the channel tells when it is ready and taken in, or why it isn't.
func (s *service) begin(ctx context.Context, args ...string) (cluster.Component, <-chan error) {
	GinkgoHelper()
	_, port, err := net.SplitHostPort(cluster.FreeAddress())
	Expect(err).NotTo(HaveOccurred())
	s.mu.Lock()
	s.started++
	b := backend{cluster.Component(fmt.Sprintf("manager-%d", s.started)), net.JoinHostPort("127.0.0.1", port)}
	s.mu.Unlock()
	ready := make(chan error, 1)
	go func() {
		err := h.StartReplica(ctx, b.name, append([]string{"--webhook-port=" + port}, args...)...)
		if err == nil {
			s.mu.Lock()
			s.backends = append(s.backends, b)
			s.mu.Unlock()
		}
		ready <- err
	}()
	return b.name, ready
}

// end takes a manager out of the service and then ends it, as Kubernetes does.
func (s *service) end(ctx context.Context, name cluster.Component) {
	GinkgoHelper()
	s.mu.Lock()
	for i, b := range s.backends {
		if b.name == name {
			s.backends = append(s.backends[:i:i], s.backends[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	Expect(h.Kill(name, syscall.SIGTERM)).To(Succeed())
	Eventually(ctx, func() error { return h.Kill(name, 0) }).ShouldNot(Succeed())
}

// roll replaces one manager after the other by one with these flags, as a Deployment does.
func (s *service) roll(ctx context.Context, args ...string) {
	GinkgoHelper()
	for _, old := range s.names() {
		s.start(ctx, args...)
		s.end(ctx, old)
	}
}

package xds

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"k8s.io/utils/set"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// DefaultMaxRemovalPercent of the clusters go in one push; one always may.
	DefaultMaxRemovalPercent = 10
	// holdRemovals is how long somebody has to look when more would go; then that share goes every releaseEvery.
	holdRemovals, releaseEvery = 10 * time.Minute, time.Minute

	// pingAfter a silence the server asks whether a client is still there, and ends its streams after pingTimeout.
	pingAfter, pingTimeout = 30 * time.Second, 20 * time.Second
	// minPing: clients that ping more often are cut off.
	minPing = 5 * time.Second

	// maxRequest is the longest request, in bytes. The longest are the first of streams that reconnect, which name all that an
	// Envoy has: a cluster's name has up to 397 bytes, and endpoints are named twice. That is 9 MB for 10,000 clusters of the
	// longest names, and here are more than three times as many. gRPC's own 4 MiB would refuse such an Envoy for good.
	maxRequest = 32 << 20

	// lookEvery is how soon streams end once Serves says no, and how often it is counted for how long answers are owed and what is
	// refused: with each answer it would take as long as there are streams.
	lookEvery = time.Second
)

// Options of a server.
type Options struct {
	// Address to listen on, host:port.
	Address string
	// TLS is how clients and the server know each other; nil for plaintext, where every client may see everything.
	TLS *TLS
	// Plaintext allows to serve without TLS on addresses other than loopback.
	Plaintext bool
	// Authorise tells what an identity, a name in a client's certificate, may see, and whether it may see anything.
	Authorise func(identity string) (Scope, bool)
	// Serves says whether this process may tell Envoys anything now; nil for always. While it says no no stream is accepted, and
	// those that are open end.
	Serves func() bool
	// MaxRemovalPercent of the clusters may be removed in one push; 0 means DefaultMaxRemovalPercent, 100 all.
	MaxRemovalPercent int
	// Clock tells when removals that were held may go. Default: the system's.
	Clock clock.PassiveClock
	// Progressed is told of clusters with which proxies may be further, or which they may refuse; of none when proxies come or go. It must not block.
	Progressed func(clusters []string)
	// Removed is told of clusters that are served to nobody any more. It must not block.
	Removed func(clusters []string)
}

// Server serves the last snapshot. It is a Runnable of every replica.
type Server struct {
	Options
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	clusters, endpoints, nothing *table
	book                         book

	mu     sync.Mutex
	held   Held     // needs mu
	others []Report // of other replicas; needs mu
	// learnedAt is when others was asked; needs mu.
	learnedAt time.Time
	// announced are the digests of what all clients are behind of, or have; needs mu. It is never changed.
	announced map[string]uint64
	ready     atomic.Bool
	listen    atomic.Pointer[net.TCPAddr]
	// open are what ends the streams that are open; needs mu.
	open map[*session]context.CancelFunc
}

// NewServer checks the options.
func NewServer(o Options) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := registerMetrics(); err != nil {
		return nil, err
	}
	s := &Server{
		Options:   o,
		clusters:  newTable(false),
		endpoints: newTable(true),
		nothing:   newTable(true),
		open:      map[*session]context.CancelFunc{},
	}
	s.book = book{published: map[string]*published{}, invalid: map[string]string{}, several: set.New[string](), digests: map[string]uint64{}}
	s.endpoints.resolve = s.book.endpoints
	s.countPublished()
	return s, nil
}

func (o *Options) check() error {
	if o.MaxRemovalPercent == 0 {
		o.MaxRemovalPercent = DefaultMaxRemovalPercent
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.TLS != nil {
		if o.Authorise == nil || o.TLS.Certificate == nil || o.TLS.ClientCAs == nil {
			return fmt.Errorf("serve xDS with TLS: certificate, client CAs and authorisation are needed")
		}
		return nil
	}
	if !o.Plaintext && !loopback(o.Address) {
		return fmt.Errorf("serve xDS on %s: plaintext is for loopback addresses only, unless it is explicitly allowed", o.Address)
	}
	return nil
}

// Ready is true once a snapshot has been published; until then streams are refused.
func (s *Server) Ready() bool { return s.ready.Load() }

// Addr is where the server listens; nil before.
func (s *Server) Addr() *net.TCPAddr { return s.listen.Load() }

// NeedLeaderElection is false: every replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Start listens and serves until the context ends; then streams are cut, and their Envoys keep what they have.
func (s *Server) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("listen for xDS: %w", err)
	}
	if address, ok := listener.Addr().(*net.TCPAddr); ok {
		s.listen.Store(address)
	}
	server := grpc.NewServer(s.serverOptions()...)
	discovery.RegisterAggregatedDiscoveryServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.FromContext(ctx).Info("serving xDS", "address", listener.Addr().String(), "tls", s.TLS != nil)

	var running sync.WaitGroup
	running.Go(func() { wait.UntilWithContext(ctx, s.look, lookEvery) })
	select {
	case err = <-served:
		return fmt.Errorf("serve xDS: %w", err)
	case <-ctx.Done():
	}
	server.Stop()
	running.Wait()
	return nil
}

func (s *Server) serverOptions() []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	}
	if s.TLS != nil {
		options = append(options, grpc.Creds(s.TLS.credentials()))
	}
	return options
}

// DeltaAggregatedResources serves one stream of the delta protocol.
func (s *Server) DeltaAggregatedResources(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.serve(stream.Context(), "delta", func(ctx context.Context, session *session) error {
		return delta.NewServer(ctx, session, session).DeltaStreamHandler(stream, resource.AnyType)
	})
}

// StreamAggregatedResources serves one stream of the state of the world.
func (s *Server) StreamAggregatedResources(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.serve(stream.Context(), "sotw", func(ctx context.Context, session *session) error {
		return sotw.NewServer(ctx, session, session).StreamHandler(stream, resource.AnyType)
	})
}

// serve handles one stream until its client ends it, or this process may serve no longer.
func (s *Server) serve(ctx context.Context, protocol string, handle func(context.Context, *session) error) error {
	if err := s.mayServe(); err != nil {
		return err
	}
	identity, scope, err := s.identify(ctx)
	if err != nil {
		refusedTotal.WithLabelValues("identity").Inc()
		log.FromContext(ctx).Info("refused an xDS stream", "reason", err.Error())
		return status.Error(codes.PermissionDenied, err.Error())
	}
	session := &session{server: s, identity: identity, scope: scope, feeds: map[string]*feed{}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.open[session] = cancel
	s.mu.Unlock()
	streams.WithLabelValues(protocol).Inc()
	defer func() {
		s.mu.Lock()
		delete(s.open, session)
		s.mu.Unlock()
		session.close()
		streams.WithLabelValues(protocol).Dec()
		s.report(s.Progressed, nil)
	}()
	return handle(ctx, session)
}

func (s *Server) mayServe() error {
	if s.Serves != nil && !s.Serves() {
		refusedTotal.WithLabelValues("installation_conflict").Inc()
		return status.Error(codes.Unavailable, "the cluster isn't known to be this installation's")
	}
	if !s.Ready() {
		refusedTotal.WithLabelValues("not_ready").Inc()
		return status.Error(codes.Unavailable, "nothing is known of the cluster yet")
	}
	return nil
}

func (s *Server) look(context.Context) {
	s.standAside()
	s.countUnanswered()
	s.countRejected()
}

// standAside ends all streams when this process may serve no longer: their Envoys keep what they have, and ask elsewhere.
func (s *Server) standAside() {
	if s.Serves == nil || s.Serves() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range s.open {
		end()
	}
}

func (s *Server) report(callback func([]string), clusters []string) {
	if callback != nil {
		callback(clusters)
	}
}

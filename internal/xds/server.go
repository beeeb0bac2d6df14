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
	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// DefaultMaxRemovalPercent of the clusters may be removed in one push; one always may.
	DefaultMaxRemovalPercent = 10
	// removalDelay is how long operators have to react when more would be removed; then that share is removed every removalInterval.
	removalDelay, removalInterval = 10 * time.Minute, time.Minute

	// pingAfter without traffic the server pings a client, and ends its streams when there is no answer within pingTimeout.
	pingAfter, pingTimeout = 30 * time.Second, 20 * time.Second
	// DefaultMaxConnectionAge is after how long a client is made to reconnect, so that a replica that started later gets its share: within
	// half an hour, as with Istio. gRPC adds a jitter of up to a tenth, so that Envoys don't reconnect all at once.
	DefaultMaxConnectionAge = 30 * time.Minute
	// connectionAgeGrace later the connection is closed, since a stream of configuration never ends by itself. An Envoy reconnects within
	// half a second or so, keeps what it has meanwhile, and gets what differs.
	connectionAgeGrace = time.Second
	// reconnectGrace is how long a client whose stream ended has to reconnect before OnProgress is called.
	reconnectGrace = 2 * time.Second
	// minPingInterval: the connections of clients that ping more often are closed.
	minPingInterval = 5 * time.Second

	// maxRequestBytes bounds a request. The longest are the first of streams that reconnect, which name all that an Envoy has: a cluster's
	// name has up to 397 bytes, and endpoints are named twice. That is 9 MB for 10,000 clusters of the longest names; this limit is more
	// than three times as much. With gRPC's default of 4 MiB such an Envoy could never reconnect.
	maxRequestBytes = 32 << 20

	// checkInterval is how soon streams end once Serves returns false, and how often the metrics of unacknowledged responses and rejections
	// are set: with each ACK that would cost time in proportion to the number of streams.
	checkInterval = time.Second
)

// Options of a server.
type Options struct {
	// Address to listen on, host:port.
	Address string
	// TLS is how clients and the server authenticate each other; nil for plaintext, where every client may see everything.
	TLS *TLS
	// Plaintext allows to serve without TLS on addresses other than loopback.
	Plaintext bool
	// Authorise returns what an identity, a name in a client's certificate, may see, and whether it may see anything.
	Authorise func(identity string) (Scope, bool)
	// Serves says whether this process may serve Envoys now; nil for always. While it returns false no stream is accepted, and open
	// streams are ended.
	Serves func() bool
	// MaxRemovalPercent of the clusters may be removed in one push; 0 means DefaultMaxRemovalPercent, 100 all.
	MaxRemovalPercent int
	// MaxConnectionAge is about how long a connection lasts. Default: DefaultMaxConnectionAge.
	MaxConnectionAge time.Duration
	// Clock times delayed removals and unacknowledged responses. Default: the system's.
	Clock clock.PassiveClock
	// OnProgress is called with clusters that proxies may have accepted or rejected; with none when proxies connect or disconnect. It must
	// not block.
	OnProgress func(clusters []string)
}

// Server serves the last snapshot. It is a Runnable of every replica.
type Server struct {
	Options
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	clusters, endpoints, unserved *table
	store                         clusterStore

	mu           sync.Mutex
	delayed      DelayedRemovals // needs mu
	otherReports []Report        // of other replicas; needs mu
	// otherReportsAt is when otherReports were read; needs mu.
	otherReportsAt time.Time
	// reportedDigests are the digests of what was published to all watches; needs mu. The map is never changed.
	reportedDigests map[string]uint64
	ready           atomic.Bool
	listen          atomic.Pointer[net.TCPAddr]
	// sessions are the open streams, each with the function that ends it; needs mu.
	sessions map[*session]context.CancelFunc
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
		unserved:  newTable(false),
		sessions:  map[*session]context.CancelFunc{},
	}
	s.store = clusterStore{published: map[string]*published{}, invalid: map[string]string{}, digests: map[string]uint64{}}
	s.setPublishedMetric()
	return s, nil
}

func (o *Options) check() error {
	if o.MaxRemovalPercent == 0 {
		o.MaxRemovalPercent = DefaultMaxRemovalPercent
	}
	if o.MaxConnectionAge == 0 {
		o.MaxConnectionAge = DefaultMaxConnectionAge
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

// Start listens and serves until the context ends; then streams are closed, and their Envoys keep what they have.
func (s *Server) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("listen for xDS: %w", err)
	}
	if address, ok := listener.Addr().(*net.TCPAddr); ok {
		s.listen.Store(address)
	}
	server := grpc.NewServer(s.serverOptions(log.FromContext(ctx))...)
	discovery.RegisterAggregatedDiscoveryServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.FromContext(ctx).Info("serving xDS", "address", listener.Addr().String(), "tls", s.TLS != nil)

	var running sync.WaitGroup
	running.Go(func() { wait.UntilWithContext(ctx, s.checkStreams, checkInterval) })
	select {
	case err = <-served:
		return fmt.Errorf("serve xDS: %w", err)
	case <-ctx.Done():
	}
	server.Stop()
	running.Wait()
	return nil
}

func (s *Server) serverOptions(logger logr.Logger) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: pingAfter, Timeout: pingTimeout, MaxConnectionAge: s.MaxConnectionAge, MaxConnectionAgeGrace: connectionAgeGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
	}
	if s.TLS != nil {
		options = append(options, grpc.Creds(&loggingCredentials{TransportCredentials: s.TLS.credentials(), log: logger, limiter: rate.Sometimes{Interval: logInterval}}))
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
	session := &session{server: s, identity: identity, scope: scope, watches: map[string]*watch{}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.sessions[session] = cancel
	s.mu.Unlock()
	streams.WithLabelValues(protocol).Inc()
	defer func() {
		s.mu.Lock()
		delete(s.sessions, session)
		s.mu.Unlock()
		session.close()
		streams.WithLabelValues(protocol).Dec()
		time.AfterFunc(reconnectGrace, func() { s.notify(s.OnProgress, nil) })
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
		return status.Error(codes.Unavailable, "no snapshot of the cluster's policies is published yet")
	}
	return nil
}

func (s *Server) checkStreams(context.Context) {
	s.endStreamsWhenNotServing()
	s.setUnackedMetric()
	s.setRejectedMetric()
}

// endStreamsWhenNotServing ends all streams when this process may no longer serve: their Envoys keep what they have, and connect to
// another replica.
func (s *Server) endStreamsWhenNotServing() {
	if s.Serves == nil || s.Serves() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range s.sessions {
		end()
	}
}

func (s *Server) notify(callback func([]string), clusters []string) {
	if callback != nil {
		callback(clusters)
	}
}

package xds

import (
	"cmp"
	"context"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xdsserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// session is one stream: its identity, and a watch for each type that it subscribes to. It is the cache and the callbacks of
// go-control-plane's stream handlers, which call it from the stream's goroutine.
type session struct {
	xdsserver.CallbackFuncs

	server   *Server
	identity string
	scope    Scope
	watches  map[string]*watch // by type URL
}

var _ cache.ConfigWatcher = (*session)(nil)

// watch returns the watch of a type, and whether it is new. Types that aren't served have a table without entries: an error would
// end the whole stream.
func (s *session) watch(typeURL string) (*watch, bool) {
	if w := s.watches[typeURL]; w != nil {
		return w, false
	}
	table := s.server.unserved
	switch typeURL {
	case resource.ClusterType:
		table = s.server.clusters
	case resource.EndpointType:
		table = s.server.endpoints
	}
	w := newWatch(table, s.identity, s.scope)
	s.watches[typeURL] = w
	return w, true
}

func (s *session) close() {
	for _, w := range s.watches {
		w.table.removeWatch(w)
	}
}

// CreateDeltaWatch answers a request of the delta protocol, now or when something changes.
func (s *session) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	w, isNew := s.watch(r.GetTypeUrl())
	response := &deltaResponse{watch: w, request: r, subscription: sub}
	q := &request{subscription: sub, respond: func() { out <- response }}
	named := append(r.GetResourceNamesSubscribe(), r.GetResourceNamesUnsubscribe()...)
	// A client that subscribes to all of a type waits for a response before it starts, even an empty one.
	w.handleRequest(q, named, false, isNew && sub.IsWildcard())
	s.reportIfNew(isNew)
	return func() { w.cancel(q) }, nil
}

// CreateWatch does the same for the state of the world, where each request repeats all names.
func (s *session) CreateWatch(r *cache.Request, sub cache.Subscription, out chan cache.Response) (func(), error) {
	w, isNew := s.watch(r.GetTypeUrl())
	response := &sotwResponse{watch: w, request: r, subscription: sub}
	q := &request{subscription: sub, respond: func() { out <- response }}
	w.handleRequest(q, nil, true, isNew && sub.IsWildcard())
	s.reportIfNew(isNew)
	return func() { w.cancel(q) }, nil
}

// reportIfNew reports a new watch: a proxy counts as connected from its first request on, whether it ever sends an ACK or not.
func (s *session) reportIfNew(isNew bool) {
	if isNew {
		s.server.notify(s.server.OnProgress, nil)
	}
}

// maxTypes bounds the types of resources on one stream by the number of xDS types. The handlers' channels have capacity for one response
// to each; with more, a stream that sends requests faster than it reads responses would block itself, and all others with it.
const maxTypes = int(types.UnknownType)

// OnStreamDeltaRequest handles ACKs and NACKs.
func (s *session) OnStreamDeltaRequest(_ int64, r *discovery.DeltaDiscoveryRequest) error {
	return s.handleAck(r)
}

// OnStreamRequest handles ACKs and NACKs.
func (s *session) OnStreamRequest(_ int64, r *discovery.DiscoveryRequest) error {
	return s.handleAck(r)
}

// OnStreamDeltaResponse records the nonce of what is sent.
func (s *session) OnStreamDeltaResponse(_ int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse) {
	s.recordSent(r.GetTypeUrl(), r.GetNonce())
	removedTotal.WithLabelValues(typeLabel(r.GetTypeUrl())).Add(float64(len(r.GetRemovedResources())))
}

// OnStreamResponse records the nonce of what is sent.
func (s *session) OnStreamResponse(_ context.Context, _ int64, _ *discovery.DiscoveryRequest, r *discovery.DiscoveryResponse) {
	s.recordSent(r.GetTypeUrl(), r.GetNonce())
}

func (s *session) recordSent(typeURL, nonce string) {
	w, _ := s.watch(typeURL)
	sentTotal.WithLabelValues(typeLabel(typeURL)).Add(float64(w.recordSent(nonce, s.server.Clock.Now())))
}

// ackRequest is a request of either protocol, as the ACK or NACK of the response before.
type ackRequest interface {
	GetTypeUrl() string
	GetResponseNonce() string
	GetErrorDetail() *rpc.Status
}

// handleAck handles an ACK or NACK. A request for one type too many is an error, which ends the stream.
func (s *session) handleAck(a ackRequest) error {
	typeURL, nonce := a.GetTypeUrl(), a.GetResponseNonce()
	w := s.watches[typeURL]
	if w == nil && len(s.watches) >= maxTypes {
		refusedTotal.WithLabelValues("too_many_types").Inc()
		return status.Errorf(codes.ResourceExhausted, "a stream may ask for %d types of resources, and this one asks for one more", maxTypes)
	}
	if w == nil || nonce == "" {
		return nil
	}
	result, rejection := "accepted", ""
	if a.GetErrorDetail() != nil {
		result, rejection = "rejected", cmp.Or(sanitize(a.GetErrorDetail().GetMessage()), "rejected without a reason")
	}
	names := w.handleAck(nonce, rejection)
	if names == nil {
		return nil
	}
	answersTotal.WithLabelValues(typeLabel(typeURL), result).Inc()
	if typeURL == resource.EndpointType {
		for i, name := range names {
			names[i] = clusterOf(name)
		}
	}
	s.server.notify(s.server.OnProgress, names)
	return nil
}

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

// session is one stream: its identity, and a feed for each type it asks for. go-control-plane's stream handlers take it as
// their cache and as their callbacks, all from the stream's goroutine.
type session struct {
	xdsserver.CallbackFuncs

	server   *Server
	identity string
	scope    Scope
	feeds    map[string]*feed // by type URL
}

var _ cache.ConfigWatcher = (*session)(nil)

// feed of a type, and whether it is new. Types that aren't served have a table without entries: an error would end the
// whole stream.
func (s *session) feed(typeURL string) (*feed, bool) {
	if f := s.feeds[typeURL]; f != nil {
		return f, false
	}
	table := s.server.nothing
	switch typeURL {
	case resource.ClusterType:
		table = s.server.clusters
	case resource.EndpointType:
		table = s.server.endpoints
	}
	f := newFeed(table, s.identity, s.scope)
	s.feeds[typeURL] = f
	return f, true
}

func (s *session) close() {
	for _, f := range s.feeds {
		f.table.leave(f)
	}
}

// CreateDeltaWatch answers a request of the delta protocol, now or when something changes.
func (s *session) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	f, isNew := s.feed(r.GetTypeUrl())
	response := &deltaResponse{feed: f, request: r, subscription: sub}
	q := &request{subscription: sub, respond: func() { out <- response }}
	named := append(r.GetResourceNamesSubscribe(), r.GetResourceNamesUnsubscribe()...)
	// A client that asks for all of a type waits for an answer before it starts, also for an empty one.
	f.ask(q, named, false, isNew && sub.IsWildcard())
	s.came(isNew)
	return func() { f.cancel(q) }, nil
}

// CreateWatch does the same for the state of the world, where each request repeats all names.
func (s *session) CreateWatch(r *cache.Request, sub cache.Subscription, out chan cache.Response) (func(), error) {
	f, isNew := s.feed(r.GetTypeUrl())
	response := &stateResponse{feed: f, request: r, subscription: sub}
	q := &request{subscription: sub, respond: func() { out <- response }}
	f.ask(q, nil, true, isNew && sub.IsWildcard())
	s.came(isNew)
	return func() { f.cancel(q) }, nil
}

// came: a proxy counts from its first request on, whether it ever answers or not.
func (s *session) came(isNew bool) {
	if isNew {
		s.server.report(s.server.Progressed, nil)
	}
}

// maxTypes of resources on one stream are those that there are. The handlers' channels have room for an answer to each of so
// many; with more, a stream that sends requests faster than it reads answers would wait for itself, and all others for it.
const maxTypes = int(types.UnknownType)

// OnStreamDeltaRequest takes acknowledgements and rejections.
func (s *session) OnStreamDeltaRequest(_ int64, r *discovery.DeltaDiscoveryRequest) error {
	return s.answered(r)
}

// OnStreamRequest takes acknowledgements and rejections.
func (s *session) OnStreamRequest(_ int64, r *discovery.DiscoveryRequest) error { return s.answered(r) }

// OnStreamDeltaResponse notes what is sent under which nonce.
func (s *session) OnStreamDeltaResponse(_ int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse) {
	s.responded(r.GetTypeUrl(), r.GetNonce())
	removedTotal.WithLabelValues(typeLabel(r.GetTypeUrl())).Add(float64(len(r.GetRemovedResources())))
}

// OnStreamResponse notes what is sent under which nonce.
func (s *session) OnStreamResponse(_ context.Context, _ int64, _ *discovery.DiscoveryRequest, r *discovery.DiscoveryResponse) {
	s.responded(r.GetTypeUrl(), r.GetNonce())
}

func (s *session) responded(typeURL, nonce string) {
	f, _ := s.feed(typeURL)
	sentTotal.WithLabelValues(typeLabel(typeURL)).Add(float64(f.responded(nonce, s.server.Clock.Now())))
}

// answer is a request of either protocol, which answers what was sent before.
type answer interface {
	GetTypeUrl() string
	GetResponseNonce() string
	GetErrorDetail() *rpc.Status
}

// answered takes an answer. It refuses a type too many, which ends the stream.
func (s *session) answered(a answer) error {
	typeURL, nonce := a.GetTypeUrl(), a.GetResponseNonce()
	f := s.feeds[typeURL]
	if f == nil && len(s.feeds) >= maxTypes {
		refusedTotal.WithLabelValues("too_many_types").Inc()
		return status.Errorf(codes.ResourceExhausted, "a stream may ask for %d types of resources, and this one asks for one more", maxTypes)
	}
	if f == nil || nonce == "" {
		return nil
	}
	result, rejection := "accepted", ""
	if a.GetErrorDetail() != nil {
		result, rejection = "rejected", cmp.Or(words(a.GetErrorDetail().GetMessage()), "rejected without a reason")
	}
	names := f.answered(nonce, rejection)
	if names == nil {
		return nil
	}
	answersTotal.WithLabelValues(typeLabel(typeURL), result).Inc()
	if typeURL == resource.EndpointType {
		for i, name := range names {
			names[i] = clusterOf(name)
		}
	}
	s.server.report(s.server.Progressed, names)
	return nil
}

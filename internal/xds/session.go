package xds

import (
	"cmp"
	"context"
	"strings"
	"time"
	"unicode"

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

// recordSent records the nonce of a response until the client answers it, and returns how many resources the response has.
func (w *watch) recordSent(nonce string, now time.Time) int {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	if w.unackedSince.IsZero() {
		w.unackedSince = now
	}
	w.unacked[nonce], w.sending = w.sending, nil
	return len(w.unacked[nonce])
}

// handleAck takes a client's ACK, or its NACK with a message. It returns the names in the response that was answered: empty, but
// not nil, for the empty response to a client that has everything already; nil for an unknown nonce.
func (w *watch) handleAck(nonce, rejection string) []string {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	sent, ok := w.unacked[nonce]
	if !ok {
		return nil
	}
	if delete(w.unacked, nonce); len(w.unacked) == 0 {
		w.unackedSince = time.Time{}
	}
	blamed := map[string]struct{}{}
	if rejection != "" {
		blamed, rejection = blamedNames(sent, rejection), truncate(rejection)
	}
	names := make([]string, 0, len(sent))
	for name := range sent {
		if _, bad := blamed[name]; bad {
			w.rejections[name] = rejection
		} else {
			delete(w.rejections, name)
		}
		names = append(names, name)
	}
	return names
}

// blamedNames are the names in a rejection's message; all that were sent, when it has none or was truncated. Envoy accepts the valid
// clusters of a response and names the others.
func blamedNames(sent map[string]struct{}, rejection string) map[string]struct{} {
	if strings.HasSuffix(rejection, truncatedSuffix) {
		return sent
	}
	names := map[string]struct{}{}
	for name := range sent {
		if mentionsName(rejection, name) {
			names[name] = struct{}{}
		}
	}
	if len(names) == 0 {
		return sent
	}
	return names
}

// mentionsName: a text with ns/web/8080 or other-ns/web/80 doesn't mention ns/web/80.
func mentionsName(text, name string) bool {
	for at := 0; ; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return false
		}
		begin := at + i
		end := begin + len(name)
		if (begin == 0 || !isNameByte(text[begin-1])) && (end == len(text) || !isNameByte(text[end])) {
			return true
		}
		at = end
	}
}

func isNameByte(c byte) bool {
	return c == '-' || c == '/' || c == '@' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// ackState says whether the client may see any of some clusters, given with their namespaces, and whether it has accepted all of those
// that it may see. It needs the table's mutex.
func (w *watch) ackState(namespaces map[string]string) (visible, complete bool) {
	nothingPending := !w.allDirty && len(w.dirty)+len(w.unacked)+len(w.rejections) == 0
	for name, namespace := range namespaces {
		if !w.scope.allows(namespace) {
			continue
		}
		if nothingPending {
			return true, true
		}
		visible = true
		if _, rejected := w.rejections[name]; rejected || !w.hasAcked(name) {
			return true, false
		}
	}
	return visible, true
}

// hasAcked says whether the client has accepted the resource of a name as it is served. It needs the table's mutex.
func (w *watch) hasAcked(name string) bool {
	if _, marked := w.dirty[name]; marked || w.allDirty {
		return false
	}
	for _, names := range w.unacked {
		if _, isSent := names[name]; isSent {
			return false
		}
	}
	return true
}

// Messages of clients are written to statuses, Events and logs, and searched for names of resources.
const (
	// maxRejectionBytes of a message are read. Envoy sends 4096 bytes, and truncatedSuffix where its message was longer.
	maxRejectionBytes = 8 << 10
	truncatedSuffix   = "...(truncated)"
	// maxMessageBytes of it are reported.
	maxMessageBytes = 1 << 10
	// maxCertificateNames of a certificate are reported.
	maxCertificateNames = 5
)

// sanitize returns a client's message, as far as it is read, as one line of valid text without control characters.
func sanitize(raw string) string {
	line := strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, clip(raw, maxRejectionBytes)))
	if len(raw) > maxRejectionBytes {
		line += truncatedSuffix
	}
	return line
}

// truncate returns as much of a message as is reported.
func truncate(message string) string {
	if len(message) <= maxMessageBytes {
		return message
	}
	return clip(message, maxMessageBytes-len("…")) + "…"
}

// clip returns the first bytes of a text, without a character that is cut in two.
func clip(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

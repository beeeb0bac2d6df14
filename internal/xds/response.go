package xds

import (
	"context"
	"strconv"

	"github.com/cespare/xxhash/v2"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
)

// deltaResponse gets its resources when it is sent: the subscription belongs to the stream's goroutine then, so what the client has is
// updated in place, which costs only what changed.
type deltaResponse struct {
	watch        *watch
	request      *discovery.DeltaDiscoveryRequest
	subscription cache.Subscription
	version      string
}

var _ cache.DeltaResponse = (*deltaResponse)(nil)

// GetDeltaDiscoveryResponse is called once, right before sending.
func (r *deltaResponse) GetDeltaDiscoveryResponse() (*discovery.DeltaDiscoveryResponse, error) {
	d := r.watch.takeDifference(r.subscription, false)
	r.version = versionOf(d.updated)
	out := &discovery.DeltaDiscoveryResponse{TypeUrl: r.request.GetTypeUrl(), RemovedResources: d.removed, SystemVersionInfo: r.version}
	out.ProtoReflect().SetUnknown(encoded(d.updated, func(e *entry) []byte { return e.deltaResource }))
	return out, nil
}

func (r *deltaResponse) GetDeltaRequest() *discovery.DeltaDiscoveryRequest { return r.request }
func (r *deltaResponse) GetSystemVersion() (string, error)                 { return r.version, nil }
func (r *deltaResponse) GetResponseVersion() string                        { return r.version }
func (r *deltaResponse) GetNextVersionMap() map[string]string              { return r.GetReturnedResources() }
func (r *deltaResponse) GetReturnedResources() map[string]string {
	return r.subscription.ReturnedResources()
}
func (r *deltaResponse) GetContext() context.Context { return context.Background() }

// sotwResponse is the same for the state of the world. It always has all clusters: the client removes those that it doesn't have.
type sotwResponse struct {
	watch        *watch
	request      *discovery.DiscoveryRequest
	subscription cache.Subscription
	version      string
}

var _ cache.Response = (*sotwResponse)(nil)

// GetDiscoveryResponse is called once, right before sending.
func (r *sotwResponse) GetDiscoveryResponse() (*discovery.DiscoveryResponse, error) {
	entries := r.watch.takeDifference(r.subscription, cache.ResourceRequiresFullStateInSotw(r.request.GetTypeUrl())).updated
	r.version = versionOf(entries)
	out := &discovery.DiscoveryResponse{TypeUrl: r.request.GetTypeUrl(), VersionInfo: r.version}
	out.ProtoReflect().SetUnknown(encoded(entries, func(e *entry) []byte { return e.sotwResource }))
	return out, nil
}

func (r *sotwResponse) GetRequest() *discovery.DiscoveryRequest { return r.request }
func (r *sotwResponse) GetVersion() (string, error)             { return r.version, nil }
func (r *sotwResponse) GetResponseVersion() string              { return r.version }
func (r *sotwResponse) GetReturnedResources() map[string]string {
	return r.subscription.ReturnedResources()
}
func (r *sotwResponse) GetContext() context.Context { return context.Background() }

// encoded are the resources of a response as the bytes of its field. They are set as unknown fields, which a message writes as they are:
// so ten thousand resources for each of many streams are copied, and not encoded again.
func encoded(entries []*entry, of func(*entry) []byte) []byte {
	size := 0
	for _, e := range entries {
		size += fieldSize(responseResources, len(of(e)))
	}
	b := make([]byte, 0, size)
	for _, e := range entries {
		b = appendField(b, responseResources, of(e))
	}
	return b
}

// versionOf entries is the hash of their versions, in their order.
func versionOf(entries []*entry) string {
	h := xxhash.New()
	for _, e := range entries {
		_, _ = h.WriteString(e.version) // never fails
	}
	return strconv.FormatUint(h.Sum64(), 16)
}

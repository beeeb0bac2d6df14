package xds

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
)

// deltaResponse is filled when it is sent: the subscription is then the stream's own, so what the client knows is
// updated in place, at the cost of what changed.
type deltaResponse struct {
	feed         *feed
	request      *discovery.DeltaDiscoveryRequest
	subscription cache.Subscription
	version      string
}

var _ cache.DeltaResponse = (*deltaResponse)(nil)

// GetDeltaDiscoveryResponse is called once, right before sending.
func (r *deltaResponse) GetDeltaDiscoveryResponse() (*discovery.DeltaDiscoveryResponse, error) {
	d := r.feed.tell(r.subscription, false)
	out := &discovery.DeltaDiscoveryResponse{TypeUrl: r.request.GetTypeUrl(), RemovedResources: d.removed}
	out.Resources = make([]*discovery.Resource, 0, len(d.updated))
	for _, e := range d.updated {
		out.Resources = append(out.Resources, e.wire)
	}
	r.version = versionOf(d.updated)
	out.SystemVersionInfo = r.version
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

// stateResponse is the same for the state of the world. Clusters are always told in full: what isn't there is gone.
type stateResponse struct {
	feed         *feed
	request      *discovery.DiscoveryRequest
	subscription cache.Subscription
	version      string
}

var _ cache.Response = (*stateResponse)(nil)

// GetDiscoveryResponse is called once, right before sending.
func (r *stateResponse) GetDiscoveryResponse() (*discovery.DiscoveryResponse, error) {
	entries := r.feed.tell(r.subscription, cache.ResourceRequiresFullStateInSotw(r.request.GetTypeUrl())).updated
	r.version = versionOf(entries)
	out := &discovery.DiscoveryResponse{TypeUrl: r.request.GetTypeUrl(), VersionInfo: r.version}
	for _, e := range entries {
		out.Resources = append(out.Resources, e.wire.GetResource())
	}
	return out, nil
}

func (r *stateResponse) GetRequest() *discovery.DiscoveryRequest { return r.request }
func (r *stateResponse) GetVersion() (string, error)             { return r.version, nil }
func (r *stateResponse) GetResponseVersion() string              { return r.version }
func (r *stateResponse) GetReturnedResources() map[string]string {
	return r.subscription.ReturnedResources()
}
func (r *stateResponse) GetContext() context.Context { return context.Background() }

// versionOf entries is the hash of their names and versions, in their order.
func versionOf(entries []*entry) string {
	h := sha256.New()
	for _, e := range entries {
		_, _ = io.WriteString(h, e.wire.GetName()+"\x00"+e.version()+"\x00") // never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:hashLength/2])
}

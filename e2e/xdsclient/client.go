// Package xdsclient plays an Envoy towards an xDS server, over the delta protocol: it asks for all clusters and for their
// endpoints, answers each response, and counts what was on the wire. A real Envoy is in e2e/envoy; this one is cheap enough
// to have many of them, and can refuse what a test wants it to.
package xdsclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// Options of a client.
type Options struct {
	// Node is what the client says of itself.
	Node *corev3.Node
	// Clusters that the client has already, with their versions, as an Envoy that reconnects has.
	Clusters map[string]string
	// Reject says what is wrong with a cluster; "" accepts it. The others of the response are accepted, as Envoy does.
	Reject func(*clusterv3.Cluster) string
	// RejectEndpoints says the same of a cluster's endpoints.
	RejectEndpoints func(*endpointv3.ClusterLoadAssignment) string
	// Mute has the client answer nothing, as an Envoy whose main thread is stuck.
	Mute bool
}

// Wire counts what came over a stream.
type Wire struct {
	ClusterResponses, EndpointResponses int
	// Clusters and Endpoints are how often each was sent, by name; Removed how often a removal was.
	Clusters, Endpoints, Removed map[string]int
}

// Client is one stream.
type Client struct {
	options Options
	stream  discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

	mu        sync.Mutex
	clusters  map[string]*clusterv3.Cluster
	versions  map[string]string
	endpoints map[string]*endpointv3.ClusterLoadAssignment
	services  map[string]string // cluster → the name of its endpoints
	wire      Wire
	err       error
	ended     chan struct{}
}

// Connect opens a stream; it ends with the context.
func Connect(ctx context.Context, conn grpc.ClientConnInterface, o Options) (*Client, error) {
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, fmt.Errorf("open an xDS stream: %w", err)
	}
	c := &Client{
		options: o, stream: stream, versions: map[string]string{}, ended: make(chan struct{}), services: map[string]string{},
		clusters: map[string]*clusterv3.Cluster{}, endpoints: map[string]*endpointv3.ClusterLoadAssignment{},
	}
	c.ResetWire()
	first := &discovery.DeltaDiscoveryRequest{Node: o.Node, TypeUrl: resource.ClusterType, InitialResourceVersions: o.Clusters}
	// io.EOF means that the server has ended the stream; receive learns why.
	if err := stream.Send(first); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("ask for clusters: %w", err)
	}
	go c.receive()
	return c, nil
}

func (c *Client) receive() {
	defer close(c.ended)
	for {
		r, err := c.stream.Recv()
		if err == nil {
			err = c.take(r)
		}
		if err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
	}
}

func (c *Client) take(r *discovery.DeltaDiscoveryResponse) error {
	if c.options.Mute {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.GetTypeUrl() == resource.EndpointType {
		return c.takeEndpoints(r)
	}
	return c.takeClusters(r)
}

func (c *Client) takeClusters(r *discovery.DeltaDiscoveryResponse) error {
	c.wire.ClusterResponses++
	answer := &discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
	next := &discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType}
	for _, sent := range r.GetResources() {
		c.wire.Clusters[sent.GetName()]++
		cluster := &clusterv3.Cluster{}
		if err := proto.Unmarshal(sent.GetResource().GetValue(), cluster); err != nil {
			return fmt.Errorf("decode cluster %s: %w", sent.GetName(), err)
		}
		if c.options.Reject != nil {
			if message := c.options.Reject(cluster); message != "" {
				answer.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: message}
				continue
			}
		}
		c.clusters[sent.GetName()], c.versions[sent.GetName()] = cluster, sent.GetVersion()
		c.follow(sent.GetName(), cluster.GetEdsClusterConfig().GetServiceName(), next)
	}
	for _, name := range r.GetRemovedResources() {
		c.wire.Removed[name]++
		delete(c.clusters, name)
		delete(c.versions, name)
		c.follow(name, "", next)
	}
	if err := c.stream.Send(answer); err != nil {
		return err
	}
	if len(next.ResourceNamesSubscribe)+len(next.ResourceNamesUnsubscribe) == 0 {
		return nil
	}
	return c.stream.Send(next)
}

// follow asks for the endpoints under a new name, and no more for those under the old one.
func (c *Client) follow(cluster, service string, r *discovery.DeltaDiscoveryRequest) {
	old := c.services[cluster]
	if old == service {
		return
	}
	if old != "" {
		r.ResourceNamesUnsubscribe = append(r.ResourceNamesUnsubscribe, old)
		delete(c.endpoints, old)
		delete(c.services, cluster)
	}
	if service != "" {
		r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, service)
		c.services[cluster] = service
	}
}

func (c *Client) takeEndpoints(r *discovery.DeltaDiscoveryResponse) error {
	c.wire.EndpointResponses++
	answer := &discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
	for _, sent := range r.GetResources() {
		c.wire.Endpoints[sent.GetName()]++
		endpoints := &endpointv3.ClusterLoadAssignment{}
		if err := proto.Unmarshal(sent.GetResource().GetValue(), endpoints); err != nil {
			return fmt.Errorf("decode endpoints %s: %w", sent.GetName(), err)
		}
		if endpoints.GetClusterName() != sent.GetName() {
			return fmt.Errorf("endpoints %s came as %s", endpoints.GetClusterName(), sent.GetName())
		}
		if c.options.RejectEndpoints != nil {
			if message := c.options.RejectEndpoints(endpoints); message != "" {
				answer.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: message}
				continue
			}
		}
		c.endpoints[sent.GetName()] = endpoints
	}
	for _, name := range r.GetRemovedResources() {
		c.wire.Removed[name]++
	}
	return c.stream.Send(answer)
}

// Clusters that the client has accepted, by name.
func (c *Client) Clusters() map[string]*clusterv3.Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.clusters)
}

// Versions of the clusters that the client has accepted, by name.
func (c *Client) Versions() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.versions)
}

// Hosts of a cluster, host:port; nil while it has no endpoints.
func (c *Client) Hosts(cluster string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var hosts []string
	for _, locality := range c.endpoints[c.services[cluster]].GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			a := e.GetEndpoint().GetAddress().GetSocketAddress()
			hosts = append(hosts, fmt.Sprintf("%s:%d", a.GetAddress(), a.GetPortValue()))
		}
	}
	return hosts
}

// Wire gives what came since the stream was opened, or since ResetWire.
func (c *Client) Wire() Wire {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.wire
	w.Clusters, w.Endpoints, w.Removed = maps.Clone(w.Clusters), maps.Clone(w.Endpoints), maps.Clone(w.Removed)
	return w
}

// ResetWire begins to count anew.
func (c *Client) ResetWire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wire = Wire{Clusters: map[string]int{}, Endpoints: map[string]int{}, Removed: map[string]int{}}
}

// Ended is closed once the stream has; then Err says why.
func (c *Client) Ended() <-chan struct{} { return c.ended }

// Err is why the stream ended.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Ask sends a request of the test's own.
func (c *Client) Ask(r *discovery.DeltaDiscoveryRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stream.Send(r)
}

package xds

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// entry is one resource as it is sent, encoded once for all streams. It is immutable.
type entry struct {
	name, version string
	namespace     string // of the cluster's Service; it decides which identities may see the entry
	// deltaResource is an encoded discovery.Resource, for the delta protocol; sotwResource is the encoded Any in it, for the state of the
	// world.
	deltaResource, sotwResource []byte
	// nameless are endpoints without their name; nil for a cluster.
	nameless []byte
}

func newEntry(typeURL, name, namespace, version string, body []byte) *entry {
	anySize := fieldSize(anyType, len(typeURL)) + fieldSize(anyValue, len(body))
	b := make([]byte, 0, fieldSize(resourceName, len(name))+fieldSize(resourceVersion, len(version))+fieldSize(resourceAny, anySize))
	b = appendField(appendField(b, resourceName, name), resourceVersion, version)
	b = protowire.AppendVarint(protowire.AppendTag(b, resourceAny, protowire.BytesType), uint64(anySize))
	begin := len(b)
	b = appendField(appendField(b, anyType, typeURL), anyValue, body)
	return &entry{name: name, version: version, namespace: namespace, deltaResource: b, sotwResource: b[begin:]}
}

// Numbers of the fields of discovery.Resource and Any, and of the resources in responses of both protocols.
const (
	resourceVersion, resourceAny, resourceName = 1, 2, 3
	anyType, anyValue                          = 1, 2
	responseResources                          = 2
)

func appendField[T string | []byte](b []byte, number protowire.Number, value T) []byte {
	b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.BytesType), uint64(len(value)))
	return append(b, value...)
}

func fieldSize(number protowire.Number, length int) int {
	return protowire.SizeTag(number) + protowire.SizeBytes(length)
}

// equal says whether clients would see no difference between two entries.
func (e *entry) equal(other *entry) bool {
	return other != nil && e.name == other.name && e.version == other.version && e.namespace == other.namespace
}

// deterministic: the same message has the same bytes in each process of one build, and so the same version.
var deterministic = proto.MarshalOptions{Deterministic: true}

// hashLength of versions, in hexadecimal digits.
const hashLength = 32

func hash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:hashLength/2])
}

// encodeCluster validates a cluster by Envoy's own schema, and returns its entry and the name under which it subscribes to its endpoints,
// NAME#HASH. That name changes with the cluster: Envoy replaces a changed cluster by a new one, which warms until it gets its endpoints, and
// these aren't sent again under a name that Envoy has already.
func encodeCluster(name, namespace string, cluster *clusterv3.Cluster) (e *entry, service string, err error) {
	if err := cluster.ValidateAll(); err != nil {
		return nil, "", err
	}
	nameless, err := deterministic.Marshal(cluster)
	if err != nil {
		return nil, "", fmt.Errorf("encode: %w", err)
	}
	service = name + "#" + hash(nameless)[:16]
	named := proto.CloneOf(cluster)
	named.EdsClusterConfig.ServiceName = service
	body, err := deterministic.Marshal(named)
	if err != nil {
		return nil, "", fmt.Errorf("encode: %w", err)
	}
	return newEntry(resource.ClusterType, name, namespace, hash(body), body), service, nil
}

// encodeEndpoints leaves the name out: endpoints are served under several names, while old and new clusters use them.
func encodeEndpoints(endpoints *endpointv3.ClusterLoadAssignment) ([]byte, error) {
	nameless := proto.CloneOf(endpoints)
	nameless.ClusterName = "x" // the schema wants one
	if err := nameless.ValidateAll(); err != nil {
		return nil, err
	}
	nameless.ClusterName = ""
	body, err := deterministic.Marshal(nameless)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return body, nil
}

// clusterNameField is the number of ClusterLoadAssignment.cluster_name.
const clusterNameField = 1

// endpointsEntry puts a name before nameless endpoints: fields may come in any order.
func endpointsEntry(name, namespace, version string, nameless []byte) *entry {
	body := make([]byte, 0, len(nameless)+fieldSize(clusterNameField, len(name)))
	body = appendField(body, clusterNameField, name)
	e := newEntry(resource.EndpointType, name, namespace, version, append(body, nameless...))
	e.nameless = nameless
	return e
}

// named is the entry under a name: endpoints may have others than the newest.
func (e *entry) named(name string) *entry {
	if e.name == name {
		return e
	}
	return endpointsEntry(name, e.namespace, e.version, e.nameless)
}

// clusterOf is the cluster that subscribes to endpoints under a name; "" when no cluster does.
func clusterOf(service string) string {
	i := strings.LastIndexByte(service, '#')
	if i < 0 {
		return ""
	}
	return service[:i]
}

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

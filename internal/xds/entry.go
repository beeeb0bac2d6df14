package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// entry is one resource as it goes over the wire, encoded once for all streams. It doesn't change.
type entry struct {
	namespace string // of the Service it stands for; decides who sees it
	wire      *discovery.Resource
}

func newEntry(typeURL, name, namespace, version string, body []byte) *entry {
	return &entry{namespace: namespace, wire: &discovery.Resource{
		Name: name, Version: version, Resource: &anypb.Any{TypeUrl: typeURL, Value: body},
	}}
}

func (e *entry) version() string { return e.wire.GetVersion() }

// same is true when e tells clients what other does.
func (e *entry) same(other *entry) bool {
	return other != nil && e.version() == other.version() && e.namespace == other.namespace
}

// deterministic: the same message has the same bytes in each process of one build, and so the same version.
var deterministic = proto.MarshalOptions{Deterministic: true}

// hashLength of versions, in hexadecimal digits.
const hashLength = 32

func hash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:hashLength/2])
}

// encodeCluster validates a cluster as Envoy's own schema does, and gives what is sent, and the name under which the
// cluster asks for its endpoints (empty where it doesn't). That name changes with the cluster: Envoy makes a changed cluster
// anew and waits for its endpoints, which aren't sent again under a name that it has already.
func encodeCluster(name, namespace string, cluster *clusterv3.Cluster) (*entry, string, error) {
	if cluster.GetName() != name {
		return nil, "", fmt.Errorf("the cluster is named %q", cluster.GetName())
	}
	if err := cluster.ValidateAll(); err != nil {
		return nil, "", err
	}
	body, err := deterministic.Marshal(cluster)
	if err != nil {
		return nil, "", fmt.Errorf("encode: %w", err)
	}
	version := hash(body)
	if cluster.GetType() != clusterv3.Cluster_EDS {
		return newEntry(resource.ClusterType, name, namespace, version, body), "", nil
	}
	service := cluster.GetEdsClusterConfig().GetServiceName()
	switch {
	case cluster.GetEdsClusterConfig() == nil:
		return nil, "", fmt.Errorf("it is of type EDS and has no eds_cluster_config")
	case service == "":
		service = name + "#" + version[:16]
		named := proto.CloneOf(cluster)
		named.EdsClusterConfig.ServiceName = service
		if body, err = deterministic.Marshal(named); err != nil {
			return nil, "", fmt.Errorf("encode: %w", err)
		}
	case clusterOf(service) != name:
		return nil, "", fmt.Errorf("it asks for endpoints as %q instead of %s#HASH", service, name)
	}
	return newEntry(resource.ClusterType, name, namespace, version, body), service, nil
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
	body := make([]byte, 0, len(nameless)+len(name)+protowire.SizeTag(clusterNameField)+protowire.SizeVarint(uint64(len(name))))
	body = protowire.AppendTag(body, clusterNameField, protowire.BytesType)
	body = protowire.AppendString(body, name)
	return newEntry(resource.EndpointType, name, namespace, version, append(body, nameless...))
}

// clusterOf is the cluster that asks for endpoints under a name; "" when no cluster does.
func clusterOf(service string) string {
	i := strings.LastIndexByte(service, '#')
	if i < 0 {
		return ""
	}
	return service[:i]
}

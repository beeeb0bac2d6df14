// Package envoy makes the configuration with which an Envoy gets its clusters and endpoints from Autohealer.
package envoy

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"sigs.k8s.io/yaml"
)

const (
	// serverCluster is the Envoy's name for Autohealer.
	serverCluster = "autohealer_xds"
	// connectTimeout, and how often a silent connection is tried, and how long it may take to answer.
	connectTimeout, pingInterval, pingTimeout = 5 * time.Second, 30 * time.Second, 10 * time.Second
)

// Options of a bootstrap.
type Options struct {
	// Server is Autohealer's xDS address, host:port.
	Server string
	// NodeID and NodeCluster are what Envoy calls itself, in its logs and to others; Autohealer doesn't read them.
	NodeID, NodeCluster string
	// AdminPort on 127.0.0.1; 0 for any.
	AdminPort uint32
	// EjectionLog is the file where Envoy logs ejections, one JSON object a line; "" for none.
	EjectionLog string
	// EjectionsPort is where Autohealer may ask whom Envoy has ejected; 0 for nowhere. It needs TLS and an admin page.
	EjectionsPort uint32
	// EjectionsAddress has that port; "::" takes connections of both families.
	EjectionsAddress string
	// Plaintext speaks without TLS; what follows has no meaning then.
	Plaintext bool
	TLS       TLS
}

// TLS is how Envoy and Autohealer know each other. Files are PEM, and Envoy's to read.
type TLS struct {
	CertFile, KeyFile, CAFile string
	// ServerName is a DNS name in the server's certificate; "" for the host of Options.Server.
	ServerName string
	// ResourcesDir is where the files of Secrets are; "" has Envoy read certificates once, at its start.
	ResourcesDir string
}

// Bootstrap gives the configuration.
func Bootstrap(o Options) (*bootstrapv3.Bootstrap, error) {
	server, err := o.server()
	if err != nil {
		return nil, err
	}
	ads := &corev3.ConfigSource{
		ResourceApiVersion: corev3.ApiVersion_V3, ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
	b := &bootstrapv3.Bootstrap{
		Node: &corev3.Node{Id: o.NodeID, Cluster: o.NodeCluster},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			CdsConfig: ads,
			AdsConfig: &corev3.ApiConfigSource{
				ApiType: corev3.ApiConfigSource_DELTA_GRPC, TransportApiVersion: corev3.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
				GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: serverCluster}}}},
			},
		},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{server}},
		Admin:           &bootstrapv3.Admin{Address: socket("127.0.0.1", o.AdminPort)},
	}
	if o.EjectionLog != "" {
		b.ClusterManager = &bootstrapv3.ClusterManager{OutlierDetection: &bootstrapv3.ClusterManager_OutlierDetection{EventLogPath: o.EjectionLog}}
	}
	if o.EjectionsPort != 0 {
		if err := o.addEjections(b); err != nil {
			return nil, err
		}
	}
	if err := b.ValidateAll(); err != nil {
		return nil, err
	}
	return b, nil
}

// server is the cluster by which Envoy reaches Autohealer.
func (o Options) server() (*clusterv3.Cluster, error) {
	host, port, err := splitAddress(o.Server)
	if err != nil {
		return nil, err
	}
	http2, err := anypb.New(&httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{ConnectionKeepalive: &corev3.KeepaliveSettings{
				Interval: durationpb.New(pingInterval), Timeout: durationpb.New(pingTimeout),
			}},
		}},
	}})
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	kind := clusterv3.Cluster_STRICT_DNS
	if _, err := netip.ParseAddr(host); err == nil {
		kind = clusterv3.Cluster_STATIC
	}
	c := &clusterv3.Cluster{
		Name: serverCluster, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: kind}, ConnectTimeout: durationpb.New(connectTimeout),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: serverCluster, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socket(host, port)}}}},
		}}},
	}
	if !o.Plaintext {
		c.TransportSocket, err = o.TLS.socket(host)
	}
	return c, err
}

func splitAddress(address string) (string, uint32, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("the server's address: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || host == "" {
		return "", 0, fmt.Errorf("the server's address %q isn't HOST:PORT", address)
	}
	return host, uint32(port), nil
}

func socket(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// YAML writes a message as Envoy reads it from a file ending in .yaml.
func YAML(m proto.Message) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	out, err := yaml.JSONToYAML(text)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return out, nil
}

// secretFile of a name, in the directory of resources.
func (t TLS) secretFile(name string) string { return filepath.Join(t.ResourcesDir, name+".yaml") }

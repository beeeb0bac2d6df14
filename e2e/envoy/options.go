package envoy

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// Listener is a port of Envoy's in front of one cluster.
type Listener struct {
	Name    string
	Cluster string
	// TCP passes bytes on; else it speaks HTTP.
	TCP bool
	// Timeout of its route, for HTTP. Default: Envoy's, 15s.
	Timeout time.Duration
}

// Options of an Envoy.
type Options struct {
	// Bootstrap are the arguments of envoy-bootstrap, with --server. Admin port and log of ejections are the harness's.
	Bootstrap []string
	// Listeners that there are to be: the test's own, or of those that Envoy gets by Config the names.
	Listeners []Listener
	// Config is all of the configuration, as JSON, instead of what envoy-bootstrap prints.
	Config []byte
	// Change may change the configuration before Envoy reads it.
	Change func(*bootstrapv3.Bootstrap)
}

// Binary is the Envoy's path. Where it was left out on purpose the test is skipped; where it is merely missing, it fails.
func Binary(t testing.TB) string {
	t.Helper()
	if os.Getenv("SKIP_ENVOY") == "1" {
		t.Skip("SKIP_ENVOY is 1: no Envoy")
	}
	dir, err := cluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "envoy")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("there is no Envoy: %v; `make envoy` puts one there, SKIP_ENVOY=1 does without", err)
	}
	return path
}

// listener of a test, on a port that the kernel chooses.
func (l Listener) message() (*listenerv3.Listener, error) {
	var filter proto.Message = &tcpv3.TcpProxy{StatPrefix: l.Name, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: l.Cluster}}
	name := "envoy.filters.network.tcp_proxy"
	if !l.TCP {
		timeout := durationpb.New(l.Timeout)
		if l.Timeout == 0 {
			timeout = nil
		}
		router, err := anypb.New(&routerv3.Router{})
		if err != nil {
			return nil, fmt.Errorf("encode the router: %w", err)
		}
		name = "envoy.filters.network.http_connection_manager"
		filter = &hcmv3.HttpConnectionManager{
			StatPrefix:  l.Name,
			HttpFilters: []*hcmv3.HttpFilter{{Name: "envoy.filters.http.router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router}}},
			RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
				Name:             l.Name,
				ValidateClusters: wrapperspb.Bool(false), // clusters come later
				VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
					Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
					Action: &routev3.Route_Route{Route: &routev3.RouteAction{
						ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: l.Cluster}, Timeout: timeout,
					}},
				}}}},
			}},
		}
	}
	config, err := anypb.New(filter)
	if err != nil {
		return nil, fmt.Errorf("encode listener %s: %w", l.Name, err)
	}
	return &listenerv3.Listener{
		Name: l.Name,
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 0},
		}}},
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config}}}}},
	}, nil
}

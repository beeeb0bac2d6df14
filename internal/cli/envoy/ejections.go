package envoy

import (
	"errors"
	"fmt"
	"net/netip"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	ejectionsListener = "autohealer_ejections"
	// adminCluster is Envoy's own admin page.
	adminCluster = "autohealer_admin"
)

// addEjections lets Autohealer ask whom Envoy has ejected: a listener in front of two of the admin page's paths, for who shows
// the server's certificate. The admin page itself, which can stop Envoy, stays on loopback.
func (o Options) addEjections(b *bootstrapv3.Bootstrap) error {
	switch {
	case o.Plaintext:
		return errors.New("the port for ejections needs TLS: without, whoever reaches it may ask")
	case o.AdminPort == 0:
		return errors.New("the port for ejections needs a port of the admin page that is known")
	}
	host, _, err := splitAddress(o.Server)
	if err != nil {
		return err
	}
	transport, err := anypb.New(&tlsv3.DownstreamTlsContext{
		RequireClientCertificate: wrapperspb.Bool(true),
		CommonTlsContext:         o.TLS.context(o.TLS.serverName(host)),
		// A resumed session isn't verified anew, and the server's certificate may have been replaced since.
		SessionTicketKeysType: &tlsv3.DownstreamTlsContext_DisableStatelessSessionResumption{DisableStatelessSessionResumption: true},
	})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	ip, err := netip.ParseAddr(o.EjectionsAddress)
	if err != nil {
		return fmt.Errorf("the address of the port for ejections: %w", err)
	}
	address := socket(ip.String(), o.EjectionsPort)
	address.GetSocketAddress().Ipv4Compat = ip == netip.IPv6Unspecified()
	manager, err := askedOnly("/clusters", "/stats")
	if err != nil {
		return err
	}
	b.StaticResources.Listeners = append(b.StaticResources.Listeners, &listenerv3.Listener{
		Name: ejectionsListener, Address: address,
		FilterChains: []*listenerv3.FilterChain{{
			TransportSocket: &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: transport}},
			Filters:         []*listenerv3.Filter{{Name: "envoy.filters.network.http_connection_manager", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: manager}}},
		}},
	})
	b.StaticResources.Clusters = append(b.StaticResources.Clusters, &clusterv3.Cluster{
		Name: adminCluster, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}, ConnectTimeout: durationpb.New(connectTimeout),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: adminCluster, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socket("127.0.0.1", o.AdminPort)}}}},
		}}},
	})
	return nil
}

// askedOnly passes GET of some paths on to the admin page, and nothing else.
func askedOnly(paths ...string) (*anypb.Any, error) {
	router, err := anypb.New(&routerv3.Router{})
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	host := &routev3.VirtualHost{Name: ejectionsListener, Domains: []string{"*"}}
	for _, path := range paths {
		host.Routes = append(host.Routes, &routev3.Route{
			Match: &routev3.RouteMatch{
				PathSpecifier: &routev3.RouteMatch_Path{Path: path},
				Headers: []*routev3.HeaderMatcher{{Name: ":method", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
					StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "GET"}},
				}}},
			},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: adminCluster}}},
		})
	}
	manager, err := anypb.New(&hcmv3.HttpConnectionManager{
		StatPrefix:     ejectionsListener,
		HttpFilters:    []*hcmv3.HttpFilter{{Name: "envoy.filters.http.router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router}}},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{Name: ejectionsListener, VirtualHosts: []*routev3.VirtualHost{host}}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return manager, nil
}

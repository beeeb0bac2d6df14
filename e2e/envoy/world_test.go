package envoy

import (
	"cmp"
	"context"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/xds"
)

const web = "shop/web/80"

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// control is what a test serves to its Envoys.
type control struct {
	t        *testing.T
	options  xds.Options
	server   *xds.Server
	stop     func()
	snapshot xds.Snapshot
}

func serve(t *testing.T, o xds.Options) *control {
	t.Helper()
	c := &control{t: t, options: o}
	c.snapshot = xds.Snapshot{Clusters: map[string]xds.Cluster{}}
	c.options.Address = cmp.Or(o.Address, "127.0.0.1:0")
	c.start()
	t.Cleanup(func() { c.stop() })
	return c
}

// start a server, empty as after a restart, on the address of the one before.
func (c *control) start() {
	c.t.Helper()
	server, err := xds.NewServer(c.options)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	c.server = server
	c.stop = func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
		c.stop = func() {}
	}
	NewWithT(c.t).Eventually(server.Addr, "10s").ShouldNot(BeNil(), "the server listens")
	c.options.Address = server.Addr().String()
}

// detection changes an outlier detection as the product makes it: one failure counts and the rest is off, swept often.
type detection func(*clusterv3.Cluster)

// cluster as the product makes it, with hosts; without a detection it detects nothing.
func (c *control) cluster(name string, detect detection, hosts ...*Backend) {
	cluster := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		ConnectTimeout:       durationpb.New(time.Second),
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ResourceApiVersion: corev3.ApiVersion_V3, ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
	}
	if detect != nil {
		cluster.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{Value: 0}}
		cluster.OutlierDetection = &clusterv3.OutlierDetection{
			Interval: durationpb.New(100 * time.Millisecond), BaseEjectionTime: durationpb.New(5 * time.Minute), MaxEjectionTime: durationpb.New(10 * time.Minute),
			Consecutive_5Xx: wrapperspb.UInt32(5), EnforcingConsecutive_5Xx: wrapperspb.UInt32(100), MaxEjectionPercent: wrapperspb.UInt32(100),
			EnforcingSuccessRate: wrapperspb.UInt32(0), EnforcingConsecutiveGatewayFailure: wrapperspb.UInt32(0),
		}
		detect(cluster)
	}
	namespace, _, _ := strings.Cut(name, "/")
	c.snapshot.Clusters[name] = xds.Cluster{Message: cluster, Endpoints: endpointsOf(name, hosts), Namespace: namespace}
}

// hosts gives a cluster others.
func (c *control) hosts(name string, hosts ...*Backend) {
	changed := c.snapshot.Clusters[name]
	changed.Endpoints = endpointsOf(name, hosts)
	c.snapshot.Clusters[name] = changed
}

func endpointsOf(name string, hosts []*Backend) *endpointv3.ClusterLoadAssignment {
	locality := &endpointv3.LocalityLbEndpoints{}
	for _, b := range hosts {
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: b.Port},
			}}}},
		}})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{locality}}
}

// publish what the test has made, as the product does: a new snapshot of the same messages.
func (c *control) publish(gone ...string) {
	c.server.Set(c.t.Context(), xds.Snapshot{Clusters: maps.Clone(c.snapshot.Clusters), Gone: gone})
	NewWithT(c.t).Eventually(c.server.Ready, "10s").Should(BeTrue(), "it is published")
}

func (c *control) envoy(listeners ...Listener) *Envoy {
	c.t.Helper()
	return Start(c.t, Options{Bootstrap: []string{"--server", c.options.Address, "--plaintext"}, Listeners: listeners})
}

// acked waits until n Envoys have accepted a cluster as it is.
func (c *control) acked(name string, n int) {
	c.t.Helper()
	NewWithT(c.t).Eventually(func() [2]int {
		connected, acked := c.server.CountProxies([]string{name})
		return [2]int{connected, acked}
	}, "10s").Should(Equal([2]int{n, n}))
	NewWithT(c.t).Expect(c.server.Rejections()[name]).To(BeEmpty())
}

func backends(t *testing.T, n int) []*Backend {
	t.Helper()
	all := make([]*Backend, n)
	for i := range all {
		all[i] = NewBackend(t)
	}
	return all
}

// Package outlierpolicy measures how soon Envoys know of a change: driving the xDS server alone, against a bare server that knows what to
// send (begin at Xds), and the whole way of one edit through API server and manager (Envoys). Clients that decode everything play Envoys.
package outlierpolicy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/bench/testbed"
	"github.com/resourcestack/autohealer/internal/xds"
)

const (
	envoyCount = 16
	// hosts of each Service.
	hosts = 3
	// betweenEdits is a pause, so that each is pushed by itself.
	betweenEdits = 150 * time.Millisecond
	// acceptWithin for all Envoys to accept what they were sent.
	acceptWithin = 2 * time.Minute
	globalRounds = 3
)

// Bench measures OutlierPolicies.
type Bench struct {
	*testbed.Bed
	// Services that Envoys have.
	Services int
	// Edits of one policy, and of one Service's endpoints.
	Edits int
}

// ourServer serves Services to Envoys that are a process of their own, and knows when they have accepted what is new.
type ourServer struct {
	server   *xds.Server
	snapshot xds.Snapshot
	names    []string
	answers  atomic.Int64 // names in reports of progress
}

// Xds measures how fast Envoys accept changes of 10,000 Services with three endpoints each; 16 clients in a
// process of their own decode everything. The control plane has nothing to do with it.
func (b *Bench) Xds(ctx context.Context) (err error) {
	b.Say("%d services × %d endpoints, %d delta clients", b.Services, hosts, envoyCount)
	ctx, stop := context.WithCancel(ctx)
	s := &ourServer{}
	before := heap()
	done, err := s.start(ctx, b.Services)
	if err != nil {
		stop()
		return err
	}
	defer func() { stop(); err = errors.Join(err, <-done) }()
	envoys, err := startEnvoys(ctx, s.server.Addr().String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, envoys.End()) }()
	if err := s.until("the first configuration", func() bool { return s.answers.Load() >= int64(len(s.names)*(1+2*envoyCount)) }); err != nil {
		return err
	}
	perService := float64(heap()-before) / float64(len(s.names)) / 1024
	b.Report.Checked(fmt.Sprintf("xDS: heap of a service with its messages, %d Envoys connected", envoyCount), fmt.Sprintf("%.1f KiB", perService), "≤ 12 KiB", perService <= 12)
	bare, stopBare, err := startBare(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopBare()) }()
	if err := b.single(ctx, s, bare); err != nil {
		return err
	}
	return b.global(ctx, s, bare, envoys)
}

// edit is one thing that is edited, and what goes over the wire for it.
type edit struct {
	what    string
	change  func(c *xds.Cluster, i int)
	answers int64 // the push, and each Envoy's acknowledgements
	sent    float64
	bare    func(name string, i int) ([]*discovery.DeltaDiscoveryResponse, error)
}

var edits = []edit{
	{"one policy's edit", func(c *xds.Cluster, i int) { c.Message = clusterOf(c.Message.GetName(), uint32(100+i)) }, 1 + 2*envoyCount, 2 * envoyCount, bareEdit},
	{"one Service's endpoints", func(c *xds.Cluster, i int) { c.Endpoints = endpointsOf(i + 7) }, 1 + envoyCount, envoyCount, bareEndpoints},
}

// single edits one thing at a time, and in turn sends the same from a bare loop.
func (b *Bench) single(ctx context.Context, s *ourServer, bare *bareServer) error {
	for _, edit := range edits {
		var ours, theirs []time.Duration
		sent := sentResources()
		for i := range b.Edits {
			time.Sleep(betweenEdits)
			name := s.names[(i*7919)%len(s.names)]
			changed := s.snapshot.Clusters[name]
			edit.change(&changed, i)
			s.snapshot.Clusters[name] = changed
			want := s.answers.Load() + edit.answers
			began := time.Now()
			s.publish(ctx)
			if err := s.until(edit.what, func() bool { return s.answers.Load() >= want }); err != nil {
				return err
			}
			ours = append(ours, time.Since(began))
			began = time.Now()
			responses, err := edit.bare(name, i)
			if err != nil {
				return err
			}
			bare.send(responses...)
			theirs = append(theirs, time.Since(began))
		}
		b.Report.Checked(fmt.Sprintf("xDS: %s → last ACK over %d Envoys, p50 and p99 of %d", edit.what, envoyCount, b.Edits),
			report.P50P99(ours), "p99 < 100 ms", report.Quantile(ours, .99) < 100*time.Millisecond)
		b.Report.Value("the same of a bare loop that encodes it and sends it", report.P50P99(theirs))
		each := (sentResources() - sent) / float64(b.Edits)
		b.Report.Checked(fmt.Sprintf("xDS: resources sent for %s, all Envoys together", edit.what), fmt.Sprintf("%.2f", each), fmt.Sprintf("%.0f", edit.sent), each == edit.sent)
	}
	return nil
}

// global edits what concerns all clusters, against sending them once to as many Envoys. Ours are asked for their endpoints too.
func (b *Bench) global(ctx context.Context, s *ourServer, bare *bareServer, envoys *testbed.Process) error {
	var ours, reference, oursAll, referenceAll, spent, spentBare report.Series
	add := func(to *report.Series, d time.Duration) { *to = append(*to, d.Seconds()*1000) }
	for round := range globalRounds {
		time.Sleep(betweenEdits)
		for name, changed := range s.snapshot.Clusters {
			changed.Message = clusterOf(name, uint32(1000+round))
			s.snapshot.Clusters[name] = changed
		}
		want := s.answers.Load() + int64(len(s.names)*(1+2*envoyCount))
		began, before := time.Now(), spentWith(envoys)
		s.publish(ctx)
		last := s.names[0]
		if err := s.until("the global edit", func() bool {
			_, acked := s.server.CountProxies([]string{last})
			return s.answers.Load() > want-int64(len(s.names)*2*envoyCount) && acked == envoyCount
		}); err != nil {
			return err
		}
		add(&ours, time.Since(began))
		if err := s.until("the endpoints after a global edit", func() bool { return s.answers.Load() >= want }); err != nil {
			return err
		}
		add(&oursAll, time.Since(began))
		add(&spent, spentWith(envoys)-before)
		messages := make(map[string]*clusterv3.Cluster, len(s.snapshot.Clusters))
		for name, of := range s.snapshot.Clusters {
			messages[name] = of.Message
		}
		began = time.Now()
		response, err := encode(resource.ClusterType, messages)
		if err != nil {
			return err
		}
		bare.send(response)
		add(&reference, time.Since(began))
		began, before = time.Now(), spentWith(bare.envoys)
		responses, err := bareGlobal(s.snapshot, round)
		if err != nil {
			return err
		}
		bare.send(responses...)
		add(&referenceAll, time.Since(began))
		add(&spentBare, spentWith(bare.envoys)-before)
	}
	b.Report.Ratio(fmt.Sprintf("xDS: global edit, all %d clusters accepted by %d Envoys, against encoding and sending them once, ms", len(s.names), envoyCount),
		"%.0f", ours, reference, nil)
	b.Report.Ratio("the same with the endpoints that each changed cluster asks for, all accepted, against sending clusters and endpoints once, ms",
		"%.0f", oursAll, referenceAll, report.AtMost(1.5))
	b.Report.Ratio("processor time of server and Envoys for that, ms", "%.0f", spent, spentBare, nil)
	return nil
}

// spentWith is the processor time of this process and of another one until now.
func spentWith(other *testbed.Process) time.Duration {
	return testbed.OwnProcessorTime() + other.ProcessorTime()
}

func (s *ourServer) start(ctx context.Context, services int) (<-chan error, error) {
	s.snapshot = xds.Snapshot{Clusters: make(map[string]xds.Cluster, services)}
	for i := range services {
		namespace := fmt.Sprintf("team-%03d", i%100)
		name := fmt.Sprintf("%s/service-%05d/8080", namespace, i)
		s.names = append(s.names, name)
		s.snapshot.Clusters[name] = xds.Cluster{Message: clusterOf(name, 5), Endpoints: endpointsOf(i), Namespace: namespace}
	}
	server, err := xds.NewServer(xds.Options{Address: "127.0.0.1:0", OnProgress: func(names []string) { s.answers.Add(int64(len(names))) }})
	if err != nil {
		return nil, err
	}
	s.server = server
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	s.publish(ctx)
	return done, s.until("the server", func() bool { return server.Ready() && server.Addr() != nil })
}

func (s *ourServer) publish(ctx context.Context) {
	s.server.Set(ctx, xds.Snapshot{Clusters: maps.Clone(s.snapshot.Clusters)})
}

func (s *ourServer) until(what string, done func() bool) error {
	for deadline := time.Now().Add(acceptWithin); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("wait for %s: not within %s", what, acceptWithin)
		}
	}
	return nil
}

// clusterOf is one as the product makes it.
func clusterOf(name string, threshold uint32) *clusterv3.Cluster {
	zero := wrapperspb.UInt32(0)
	return &clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ResourceApiVersion: corev3.ApiVersion_V3, ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
		CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{}},
		OutlierDetection: &clusterv3.OutlierDetection{
			Consecutive_5Xx: wrapperspb.UInt32(threshold), EnforcingConsecutive_5Xx: wrapperspb.UInt32(100), MaxEjectionPercent: wrapperspb.UInt32(10),
			EnforcingSuccessRate: zero, EnforcingConsecutiveGatewayFailure: zero, AlwaysEjectOneHost: wrapperspb.Bool(true),
		},
	}
}

func endpointsOf(i int) *endpointv3.ClusterLoadAssignment {
	locality := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Zone: "zone-a"}}
	for host := range hosts {
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: fmt.Sprintf("10.%d.%d.%d", host, i/250%250, i%250), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8080},
			}}}},
		}})
	}
	return &endpointv3.ClusterLoadAssignment{Endpoints: []*endpointv3.LocalityLbEndpoints{locality}}
}

func heap() uint64 {
	m := testbed.OwnMemory()
	return m.HeapAlloc
}

// sentResources so far, by the server's own metric.
func sentResources() float64 {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return 0
	}
	var sum float64
	for _, family := range families {
		if family.GetName() == "autohealer_xds_sent_resources_total" {
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

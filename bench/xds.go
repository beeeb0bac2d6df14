package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/resourcestack/autohealer/internal/xds"
)

const (
	xdsClients = 16
	// xdsHosts of each Service.
	xdsHosts = 3
	// xdsPause between edits, so that each is pushed by itself.
	xdsPause = 150 * time.Millisecond
	// xdsTimeout for all Envoys to accept what they were sent.
	xdsTimeout = 2 * time.Minute
	xdsRounds  = 3
)

// pusher serves Services to Envoys that are a process of their own, and knows when they have accepted what is new.
type pusher struct {
	server   *xds.Server
	snapshot xds.Snapshot
	names    []string
	answers  atomic.Int64 // names in reports of progress
}

// xds measures how fast Envoys are told of changes of 10,000 Services with three endpoints each; 16 delta clients in a
// process of their own decode everything. The control plane has nothing to do with it.
func (b *bench) xds(ctx context.Context) (err error) {
	b.say("%d services × %d endpoints, %d delta clients", b.size.services, xdsHosts, xdsClients)
	ctx, stop := context.WithCancel(ctx)
	p := &pusher{}
	before := heap()
	done, err := p.start(ctx, b.size.services)
	if err != nil {
		stop()
		return err
	}
	defer func() { stop(); err = errors.Join(err, <-done) }()
	envoys, input, _, err := startServing(ctx, envoysRole, probeLoad{Addresses: []string{p.server.Addr().String()}, Targets: xdsClients})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, input.Close(), envoys.Wait()) }()
	if err := p.until("the first configuration", func() bool { return p.answers.Load() >= int64(len(p.names)*(1+2*xdsClients)) }); err != nil {
		return err
	}
	perService := float64(heap()-before) / float64(len(p.names)) / 1024
	b.report.absolute(row{
		what: fmt.Sprintf("xDS: heap of a service with its messages, %d Envoys connected", xdsClients),
		ours: fmt.Sprintf("%.1f KiB", perService), goal: "≤ 12 KiB", reached: perService <= 12,
	})
	raw, stopRaw, err := startRaw(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopRaw()) }()
	if err := b.single(p, raw); err != nil {
		return err
	}
	return b.global(p, raw, strconv.Itoa(envoys.Process.Pid))
}

// edit is one thing that is edited, and what goes over the wire for it.
type edit struct {
	what    string
	change  func(p *pusher, name string, i int)
	answers int64 // the push, and each Envoy's acknowledgements
	sent    float64
	raw     func(name string, i int) ([]*discovery.DeltaDiscoveryResponse, error)
}

var edits = []edit{
	{"one policy's edit", func(p *pusher, name string, i int) { p.snapshot.Clusters[name] = benchCluster(name, uint32(100+i)) }, 1 + 2*xdsClients, 2 * xdsClients, rawEdit},
	{"one Service's endpoints", func(p *pusher, name string, i int) { p.snapshot.Endpoints[name] = benchEndpoints(i + 7) }, 1 + xdsClients, xdsClients,
		func(name string, i int) ([]*discovery.DeltaDiscoveryResponse, error) { return rawEndpoints(name, i) }},
}

// single edits one thing at a time, and in turn sends the same from a bare loop.
func (b *bench) single(p *pusher, raw *rawServer) error {
	for _, edit := range edits {
		var took, bare []time.Duration
		sent := sentResources()
		for i := range b.size.edits {
			time.Sleep(xdsPause)
			name := p.names[(i*7919)%len(p.names)]
			edit.change(p, name, i)
			want := p.answers.Load() + edit.answers
			began := time.Now()
			p.publish()
			if err := p.until(edit.what, func() bool { return p.answers.Load() >= want }); err != nil {
				return err
			}
			took = append(took, time.Since(began))
			began = time.Now()
			responses, err := edit.raw(name, i)
			if err != nil {
				return err
			}
			raw.send(responses...)
			bare = append(bare, time.Since(began))
		}
		p50, p99 := quantile(took, .5), quantile(took, .99)
		b.report.absolute(row{
			what: fmt.Sprintf("xDS: %s → last ACK over %d Envoys, p50 and p99 of %d", edit.what, xdsClients, b.size.edits),
			ours: milliseconds(p50) + ", " + milliseconds(p99), goal: "p99 < 100 ms", reached: p99 < 100*time.Millisecond,
		})
		b.report.absolute(row{
			what: "the same of a bare loop that encodes it and sends it",
			ours: milliseconds(quantile(bare, .5)) + ", " + milliseconds(quantile(bare, .99)),
		})
		each := (sentResources() - sent) / float64(b.size.edits)
		b.report.absolute(row{
			what: fmt.Sprintf("xDS: resources sent for %s, all Envoys together", edit.what),
			ours: fmt.Sprintf("%.2f", each), goal: fmt.Sprintf("%.0f", edit.sent), reached: each == edit.sent,
		})
	}
	return nil
}

// global edits what concerns all clusters, against sending them once to as many clients. Ours are asked for their endpoints too.
func (b *bench) global(p *pusher, raw *rawServer, envoys string) error {
	var ours, reference, oursAll, referenceAll, spent, spentRaw series
	for round := range xdsRounds {
		time.Sleep(xdsPause)
		for _, name := range p.names {
			p.snapshot.Clusters[name] = benchCluster(name, uint32(1000+round))
		}
		want := p.answers.Load() + int64(len(p.names)*(1+2*xdsClients))
		began, before := time.Now(), spentWith(envoys)
		p.publish()
		last := p.names[0]
		if err := p.until("the global edit", func() bool {
			return p.answers.Load() > want-int64(len(p.names)*2*xdsClients) && p.server.Proxies(last).Acked == xdsClients
		}); err != nil {
			return err
		}
		ours = append(ours, time.Since(began).Seconds()*1000)
		if err := p.until("the endpoints after a global edit", func() bool { return p.answers.Load() >= want }); err != nil {
			return err
		}
		oursAll = append(oursAll, time.Since(began).Seconds()*1000)
		spent = append(spent, (spentWith(envoys)-before).Seconds()*1000)
		began = time.Now()
		response, err := encodeRaw(resource.ClusterType, p.snapshot.Clusters)
		if err != nil {
			return err
		}
		raw.send(response)
		reference = append(reference, time.Since(began).Seconds()*1000)
		began, before = time.Now(), spentWith(raw.envoys)
		responses, err := rawGlobal(p.snapshot, round)
		if err != nil {
			return err
		}
		raw.send(responses...)
		referenceAll = append(referenceAll, time.Since(began).Seconds()*1000)
		spentRaw = append(spentRaw, (spentWith(raw.envoys)-before).Seconds()*1000)
	}
	w := row{
		what: fmt.Sprintf("xDS: global edit, all %d clusters accepted by %d Envoys, against encoding and sending them once, ms", len(p.names), xdsClients),
		ours: ours.text("%.0f"), reference: reference.text("%.0f"), ratio: ours.over(reference), goal: "≤ 1.5",
	}
	w.reached = w.ratio.median() <= 1.5
	b.report.ratio(w)
	b.report.ratio(row{
		what: "the same with the endpoints that each changed cluster asks for, all accepted, against sending clusters and endpoints once, ms",
		ours: oursAll.text("%.0f"), reference: referenceAll.text("%.0f"), ratio: oursAll.over(referenceAll),
	})
	b.report.ratio(row{
		what: "processor time of server and Envoys for that, ms",
		ours: spent.text("%.0f"), reference: spentRaw.text("%.0f"), ratio: spent.over(spentRaw),
	})
	return nil
}

// spentWith is the processor time of this process and of another one until now.
func spentWith(pid string) time.Duration {
	other, _ := cpuTime(pid) // 0 on systems without /proc
	var own syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own) // it can't fail for oneself
	return other + time.Duration(own.Utime.Nano()+own.Stime.Nano())
}

func (p *pusher) start(ctx context.Context, services int) (<-chan error, error) {
	p.snapshot = xds.Snapshot{Clusters: map[string]*clusterv3.Cluster{}, Endpoints: map[string]*endpointv3.ClusterLoadAssignment{}, Owners: map[string]types.NamespacedName{}}
	for i := range services {
		owner := types.NamespacedName{Namespace: fmt.Sprintf("team-%03d", i%100), Name: fmt.Sprintf("service-%05d", i)}
		name := owner.String() + "/8080"
		p.names = append(p.names, name)
		p.snapshot.Clusters[name], p.snapshot.Endpoints[name], p.snapshot.Owners[name] = benchCluster(name, 5), benchEndpoints(i), owner
	}
	server, err := xds.NewServer(xds.Options{Address: "127.0.0.1:0", Progressed: func(names []string) { p.answers.Add(int64(len(names))) }})
	if err != nil {
		return nil, err
	}
	p.server = server
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	p.publish()
	return done, p.until("the server", func() bool { return server.Ready() && server.Addr() != nil })
}

func (p *pusher) publish() {
	p.server.Set(xds.Snapshot{Clusters: maps.Clone(p.snapshot.Clusters), Endpoints: maps.Clone(p.snapshot.Endpoints), Owners: p.snapshot.Owners})
}

func (p *pusher) until(what string, done func() bool) error {
	for deadline := time.Now().Add(xdsTimeout); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("wait for %s: not within %s", what, xdsTimeout)
		}
	}
	return nil
}

// benchCluster is one as the product makes it.
func benchCluster(name string, threshold uint32) *clusterv3.Cluster {
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

func benchEndpoints(i int) *endpointv3.ClusterLoadAssignment {
	locality := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Zone: "zone-a"}}
	for host := range xdsHosts {
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: fmt.Sprintf("10.%d.%d.%d", host, i/250%250, i%250), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8080},
			}}}},
		}})
	}
	return &endpointv3.ClusterLoadAssignment{Endpoints: []*endpointv3.LocalityLbEndpoints{locality}}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
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

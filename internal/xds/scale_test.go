package xds

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

// fleet serves so many clusters to 16 streams that have them all. change changes one cluster's endpoints, has the streams answered, and
// returns how many resources they were sent.
func fleet(t testing.TB, clusters int) (change func() int) {
	t.Helper()
	s, err := NewServer(Options{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	snapshot := Snapshot{Clusters: map[string]Cluster{}}
	for i := range clusters {
		name := fmt.Sprintf("shop/web-%d/80", i)
		snapshot.Clusters[name] = Cluster{testCluster(name, 5), testEndpoints(1001), "shop"}
	}
	s.Set(t.Context(), snapshot)
	var woken []func() int
	var requests []func()
	for range 16 {
		w, sub := newWatch(s.endpoints, "", Scope{All: true}), stream.NewDeltaSubscription(names(s.endpoints), nil, nil, true)
		take := func() int { return len(w.takeDifference(sub, false).updated) }
		q := &request{subscription: sub, respond: func() { woken = append(woken, take) }}
		requests = append(requests, func() { w.handleRequest(q, nil, false, false) })
		requests[len(requests)-1]()
	}
	answer := func() (sent int) {
		for _, take := range woken {
			sent += take()
		}
		woken = woken[:0]
		for _, ask := range requests {
			ask()
		}
		return sent
	}
	if sent := answer(); sent != 16*clusters {
		t.Fatalf("16 streams were told %d resources of %d clusters", sent, clusters)
	}
	port := uint32(2000)
	return func() int {
		port++
		changed := snapshot.Clusters["shop/web-7/80"]
		changed.Endpoints = testEndpoints(port)
		snapshot.Clusters["shop/web-7/80"] = changed
		s.Set(t.Context(), snapshot)
		return answer()
	}
}

func TestAChangeCostsTheSameInAnyFleet(t *testing.T) {
	allocations := map[int]float64{}
	for _, clusters := range []int{100, 10000} {
		change := fleet(t, clusters)
		sent := 0
		allocations[clusters] = testing.AllocsPerRun(50, func() { sent += change() })
		if sent != 51*16 { // one more to warm up
			t.Errorf("%d clusters: 51 changes told 16 streams %d resources", clusters, sent)
		}
	}
	t.Logf("allocations of one endpoint's change over 16 streams: %.0f with 100 clusters, %.0f with 10,000", allocations[100], allocations[10000])
	if allocations[10000] > 1.2*allocations[100] {
		t.Error("they grow with the fleet")
	}
}

func BenchmarkOneEndpointsChangeOver10000ClustersAnd16Streams(b *testing.B) {
	change := fleet(b, 10000)
	b.ReportAllocs()
	for b.Loop() {
		change()
	}
}

const (
	// stormStreams reconnect at once, each connection having stormShare of them.
	stormStreams, stormShare = 1000, 20
	stormClusters            = 100
)

// connectAll connects all of the streams at the same time.
func (w *env) connectAll(o xdsclient.Options) []*xdsclient.Client {
	w.t.Helper()
	conns := make([]*grpc.ClientConn, stormStreams/stormShare)
	for i := range conns {
		conns[i] = w.conn(nil)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	all := make([]*xdsclient.Client, stormStreams)
	var connecting errgroup.Group
	for i := range all {
		connecting.Go(func() (err error) {
			all[i], err = xdsclient.Connect(ctx, conns[i/stormShare], o)
			return err
		})
	}
	if err := connecting.Wait(); err != nil {
		w.t.Fatal(err)
	}
	return all
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestAThousandEnvoysThatReconnectAtOnceAreServed(t *testing.T) {
	g, first := NewWithT(t), start(t, Options{})
	for i := range stormClusters {
		first.serve(fmt.Sprintf("shop/web-%d/80", i), 5, uint32(1000+i))
	}
	first.set()
	known := first.connect(xdsclient.Options{})
	g.Eventually(known.Versions, "10s").Should(HaveLen(stormClusters))

	second := start(t, Options{}) // another replica, or the same after a restart
	second.snapshot = first.snapshot
	second.set()
	accepted := func(name string) func() Proxies {
		return func() Proxies { return proxies(second.server, name) }
	}
	before, began := heapInUse(), time.Now()
	all := second.connectAll(xdsclient.Options{Clusters: known.Versions()})
	g.Eventually(accepted("shop/web-0/80"), "60s").Should(Equal(Proxies{Connected: stormStreams, Acked: stormStreams}))
	t.Logf("%d streams reconnected in %s", stormStreams, time.Since(began).Round(time.Millisecond))
	after := heapInUse()
	each := int64(after-before) / stormStreams >> 10
	t.Logf("%d KiB of heap for each stream with its client, which knows %d clusters", each, stormClusters)
	g.Expect(each).To(BeNumerically("<", 512))

	began = time.Now()
	second.serve("shop/web-7/80", 6, 1007)
	second.set()
	g.Eventually(accepted("shop/web-7/80"), "60s").Should(Equal(Proxies{Connected: stormStreams, Acked: stormStreams}))
	t.Logf("all have an edit in %s", time.Since(began).Round(time.Millisecond))
	for _, client := range all {
		g.Eventually(func() []string { return client.Hosts("shop/web-7/80") }, "60s").Should(Equal([]string{"127.0.0.1:1007"}))
		wire := client.Wire()
		g.Expect(wire.Clusters).To(Equal(map[string]int{"shop/web-7/80": 1}), "what they had isn't sent again")
		g.Expect(wire.Removed).To(BeEmpty())
		g.Expect(client.Err()).NotTo(HaveOccurred())
	}
}

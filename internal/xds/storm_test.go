package xds

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

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

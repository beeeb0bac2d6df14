package xds

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"

	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

func TestAClusterThatIsOnlyMissingStays(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.serve("shop/db/5432", 5, 2001)
	w.set()
	client := w.connect(xdsclient.Options{})
	g.Eventually(func() []string { return client.Hosts("shop/web/80") }, "5s").ShouldNot(BeEmpty())

	delete(w.snapshot.Clusters, "shop/web/80")
	w.set()
	w.serve("shop/db/5432", 6, 2001)
	w.set()
	g.Eventually(func() int { return client.Wire().Clusters["shop/db/5432"] }, "5s").Should(Equal(2))
	g.Expect(client.Clusters()).To(HaveKey("shop/web/80"))
	g.Expect(client.Wire().Removed).To(BeEmpty())

	w.set("shop/web/80") // now it is confirmed
	g.Eventually(client.Clusters, "5s").ShouldNot(HaveKey("shop/web/80"))
	g.Expect(client.Wire().Removed).To(Equal(map[string]int{"shop/web/80": 1}))
	g.Expect(client.Clusters()).To(HaveKey("shop/db/5432"))
}

func TestAClusterThatIsToGoIsServedUntilItMay(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	g, w := NewWithT(t), start(t, Options{Clock: now})
	edges := []string{"shop/web/80@httproute/a", "shop/web/80@httproute/b"} // their routes are gone, and the Service isn't
	w.serve("shop/web/80", 5, 1001)
	w.serve(edges[0], 5, 1001)
	w.serve(edges[1], 5, 1001)
	w.set()
	client := w.connect(xdsclient.Options{})
	g.Eventually(client.Clusters, "5s").Should(HaveLen(3))

	w.serve(edges[0], 5, 1002)
	w.set(edges...)
	g.Eventually(func() []string { return client.Hosts(edges[0]) }, "5s").Should(Equal([]string{"127.0.0.1:1002"}), "its endpoints are followed meanwhile")
	g.Expect(client.Wire().Removed).To(BeEmpty())
	now.SetTime(now.Now().Add(10 * time.Minute))
	w.set(edges...)
	g.Eventually(client.Clusters, "5s").ShouldNot(HaveKey(edges[0]))
	w.set(edges[0]) // before the publisher knows of it
	delete(w.snapshot.Clusters, edges[0])
	w.serve("shop/web/80", 6, 1001)
	w.set()
	g.Eventually(func() int { return client.Wire().Clusters["shop/web/80"] }, "5s").Should(Equal(2))
	g.Expect(client.Wire().Clusters[edges[0]]).To(Equal(1))
}

func TestMoreThanATenthIsNotRemovedAtATime(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	g, w := NewWithT(t), start(t, Options{Clock: now})
	for i := range 20 {
		w.serve(fmt.Sprintf("shop/s%02d/80", i), 5, 1001)
	}
	w.set()
	client := w.connect(xdsclient.Options{})
	g.Eventually(client.Clusters, "5s").Should(HaveLen(20))

	gone := []string{"shop/s00/80", "shop/s01/80", "shop/s02/80", "shop/s03/80", "shop/s04/80"}
	for _, name := range gone {
		delete(w.snapshot.Clusters, name)
	}
	w.set(gone...)
	first := now.Now().Add(10 * time.Minute)
	g.Expect(w.server.DelayedRemovals()).To(Equal(DelayedRemovals{Clusters: gone, Start: first}))
	now.SetTime(first.Add(-time.Second))
	w.set(gone...)
	g.Expect(w.server.DelayedRemovals().Clusters).To(HaveLen(5), "somebody may look")
	now.SetTime(first)
	w.set(gone...)
	g.Expect(w.server.DelayedRemovals()).To(Equal(DelayedRemovals{Clusters: gone[2:], Start: first}))
	g.Eventually(client.Clusters, "5s").Should(HaveLen(18), "then a tenth goes")
	now.SetTime(first.Add(59 * time.Second))
	w.set(gone[2:]...)
	g.Expect(w.server.DelayedRemovals().Clusters).To(HaveLen(3))
	now.SetTime(first.Add(time.Minute))
	w.set(gone[2:]...)
	g.Eventually(client.Clusters, "5s").Should(HaveLen(17), "of eighteen one, a minute later")
	w.set(gone[3])
	g.Eventually(client.Clusters, "5s").Should(HaveLen(16))
	g.Expect(w.server.DelayedRemovals()).To(BeZero(), "what isn't too much goes at once")
	g.Expect(client.Clusters()).To(HaveKey("shop/s04/80"), "it isn't said to be gone any more")
}

func TestTheOnlyClusterMayGo(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	client := w.connect(xdsclient.Options{})
	g.Eventually(client.Clusters, "5s").Should(HaveLen(1))
	delete(w.snapshot.Clusters, "shop/web/80")
	w.set("shop/web/80")
	g.Eventually(client.Clusters, "5s").Should(BeEmpty())
}

func TestWhatOnlyAClientKnowsStaysUntilItIsConfirmedToBeGone(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	// The replica that it was connected to knew two more.
	client := w.connect(xdsclient.Options{Clusters: map[string]string{"shop/new/80": "v1", "shop/old/80": "v1"}})
	g.Eventually(client.Clusters, "5s").Should(HaveKey("shop/web/80"))
	g.Expect(client.Wire().Removed).To(BeEmpty())

	w.set("shop/old/80")
	g.Eventually(func() map[string]int { return client.Wire().Removed }, "5s").Should(Equal(map[string]int{"shop/old/80": 1}))
}

func TestAClusterThatComesBackIsServed(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	client := w.connect(xdsclient.Options{})
	g.Eventually(client.Clusters, "5s").Should(HaveLen(1))
	delete(w.snapshot.Clusters, "shop/web/80")
	w.set("shop/web/80")
	w.serve("shop/web/80", 5, 1002)
	w.set()
	g.Eventually(func() []string { return client.Hosts("shop/web/80") }, "5s").Should(Equal([]string{"127.0.0.1:1002"}))
}

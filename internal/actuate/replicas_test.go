package actuate

import (
	"context"
	"errors"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/resourcestack/autohealer/e2e/xdsclient"
	"github.com/resourcestack/autohealer/internal/xds"
)

// replica serves shop/web/80.
func replica(t *testing.T, c client.Client, id string, now *testclock.FakeClock) *Replicas {
	t.Helper()
	server, err := xds.NewServer(xds.Options{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	message := &clusterv3.Cluster{Name: "shop/web/80", EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{}}
	server.Set(ctx, xds.Snapshot{Clusters: map[string]xds.Cluster{"shop/web/80": {Message: message, Namespace: "shop"}}})
	NewWithT(t).Eventually(server.Addr, "5s").ShouldNot(BeNil())
	return &Replicas{Reader: c, Writer: c, Namespace: "autohealer-system", ID: id, Server: server, Clock: now}
}

func (r *Replicas) connect(t *testing.T) {
	t.Helper()
	conn, err := grpc.NewClient(r.Server.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := xdsclient.Connect(t.Context(), conn, xdsclient.Options{}); err != nil {
		t.Fatal(err)
	}
	NewWithT(t).Eventually(r.Server.Report, "5s").Should(HaveField("Clients", Equal([]xds.Clients{{Connected: 1}})))
}

func (r *Replicas) tells(t *testing.T) {
	t.Helper()
	if err := r.exchange(t.Context(), r.Server.Report()); err != nil {
		t.Fatal(err)
	}
}

func together(r *Replicas) [2]int {
	connected, acked := r.Server.CountProxies([]string{"shop/web/80"})
	return [2]int{connected, acked}
}

func TestReplicasCountEachOthersEnvoys(t *testing.T) {
	g := NewWithT(t)
	c, now := fake.NewClientBuilder().Build(), testclock.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	leader, follower := replica(t, c, "leader", now), replica(t, c, "follower", now)
	stored := func() map[string]string {
		var m corev1.ConfigMap
		_ = c.Get(t.Context(), types.NamespacedName{Namespace: "autohealer-system", Name: "autohealer-envoys"}, &m)
		return m.Data
	}
	g.Expect(leader.Known()).To(BeFalse())
	leader.tells(t)
	g.Expect(leader.Known()).To(BeTrue(), "there is nobody")
	g.Expect(stored()).To(BeNil(), "and nothing is written then")

	follower.connect(t)
	follower.tells(t)
	leader.tells(t)
	g.Expect(together(leader)).To(Equal([2]int{1, 1}))

	first := stored()["follower"]
	now.Step(9 * time.Second)
	follower.tells(t)
	g.Expect(stored()["follower"]).To(Equal(first), "nothing is written without need")
	now.Step(time.Second)
	follower.tells(t)
	g.Expect(stored()["follower"]).NotTo(Equal(first))
	leader.tells(t)

	for range 29 {
		now.Step(time.Second)
		leader.tells(t)
	}
	g.Expect(together(leader)).To(Equal([2]int{1, 1}), "it may be late")
	now.Step(time.Second)
	leader.tells(t)
	g.Expect(together(leader)).To(Equal([2]int{0, 0}), "it is gone")
	g.Expect(stored()).To(BeEmpty())
	follower.tells(t)
	leader.tells(t)
	g.Expect(together(leader)).To(Equal([2]int{1, 1}), "it wasn't")

	g.Expect(follower.exchange(t.Context(), xds.Report{})).To(Succeed())
	leader.tells(t)
	g.Expect(together(leader)).To(Equal([2]int{0, 0}), "it said that it goes")
}

// unreadable is an API server that says nothing.
type unreadable struct{ client.Reader }

func (unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("it is down")
}

func TestWhatCannotBeReadIsNotKnown(t *testing.T) {
	g := NewWithT(t)
	r := replica(t, fake.NewClientBuilder().Build(), "leader", testclock.NewFakeClock(time.Now()))
	r.Reader = unreadable{}
	g.Expect(r.exchange(t.Context(), r.Server.Report())).NotTo(Succeed())
	g.Expect(r.Known()).To(BeFalse())

	c, now := fake.NewClientBuilder().Build(), testclock.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	leader, follower := replica(t, c, "leader", now), replica(t, c, "follower", now)
	follower.connect(t)
	follower.tells(t)
	leader.tells(t)
	now.Step(entryTTL)
	g.Expect(leader.Known()).To(BeFalse(), "nobody could read the entries for so long")
	leader.tells(t)
	g.Expect(leader.Known()).To(BeTrue())
	g.Expect(together(leader)).To(Equal([2]int{1, 1}), "who couldn't be read wasn't silent")
	var stored corev1.ConfigMap
	g.Expect(c.Get(t.Context(), types.NamespacedName{Namespace: "autohealer-system", Name: "autohealer-envoys"}, &stored)).To(Succeed())
	stored.Data["newer"] = "{"
	g.Expect(c.Update(t.Context(), &stored)).To(Succeed())
	leader.tells(t)
	g.Expect(leader.Known()).To(BeFalse(), "another version's entry")

	r.Server.Serves = func() bool { return false }
	g.Expect(r.exchange(t.Context(), r.Server.Report())).To(MatchError(ContainSubstring("isn't known to be this installation's")))
}

// TestStatusesAreLookedAtWhenNothingIsKnownAnyMore, such as after the right to read the ConfigMap is gone: else they would go on to claim.
func TestStatusesAreLookedAtWhenNothingIsKnownAnyMore(t *testing.T) {
	g := NewWithT(t)
	now := testclock.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	r := replica(t, fake.NewClientBuilder().Build(), "leader", now)
	r.tells(t)
	looked := 0
	r.Server.OnProgress = func([]string) { looked++ }
	r.Reader = unreadable{}
	exchange := func() { g.Expect(r.exchange(t.Context(), r.Server.Report())).NotTo(Succeed()) }
	now.Step(entryTTL - time.Second)
	exchange()
	g.Expect(looked).To(BeZero())
	now.Step(time.Second)
	exchange()
	exchange()
	g.Expect(looked).To(Equal(1))
	g.Expect(r.Known()).To(BeFalse())
}

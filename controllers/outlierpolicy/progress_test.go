package outlierpolicy

import (
	"context"
	"errors"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/xdsclient"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/xds"
)

// serving runs an xDS server that has some clusters.
func serving(t *testing.T, names ...string) *actuate.Clusters {
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
	snapshot := xds.Snapshot{Clusters: map[string]xds.Cluster{}}
	for _, name := range names {
		key := key(t, name)
		snapshot.Clusters[name] = xds.Cluster{Message: outlier.NewCluster(&outlier.Assignment{Key: key}), Namespace: key.Service.Namespace}
	}
	server.Set(t.Context(), snapshot)
	NewWithT(t).Eventually(func() bool { return server.Ready() && server.Addr() != nil }, "10s").Should(BeTrue())
	return &actuate.Clusters{Server: server}
}

func connect(t *testing.T, to *actuate.Clusters, o xdsclient.Options) (leave func()) {
	t.Helper()
	conn, err := grpc.NewClient(to.Server.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	if _, err := xdsclient.Connect(ctx, conn, o); err != nil {
		t.Fatal(err)
	}
	return cancel
}

func TestAPausedOrUnconfirmedClusterIsNotProgrammed(t *testing.T) {
	g := NewWithT(t)
	envoys := serving(t, "shop/web/80")
	of := func(c cluster) string {
		c.Assignment = &outlier.Assignment{Key: key(t, "shop/web/80")}
		condition, _ := programmedCondition([]cluster{c}, envoys, policy.Pause{By: "outage"})
		return string(condition.Status) + " " + condition.Reason + ": " + condition.Message
	}
	g.Expect(of(cluster{paused: true})).To(Equal("False Paused: outage: Envoys keep 1 of 1 clusters as they were."))
	g.Expect(of(cluster{unconfirmed: errors.New("it was replaced")})).To(And(HavePrefix("False Pending: "), ContainSubstring("it was replaced")))
}

func TestHowFarEnvoysAreWithDefaults(t *testing.T) {
	g := NewWithT(t)
	global, namespaced, idle := stored(systemNamespace, "default", 9), stored("shop", "default", 5), stored("bank", "default", 5)
	otherNamespace := service("web", 80)
	otherNamespace.Namespace = "post"
	snap := snapshotWith(t, []*v1alpha1.OutlierPolicy{global, namespaced, idle}, []*corev1.Service{service("web", 80), otherNamespace}, "")
	envoys := serving(t, "shop/web/80", "post/web/80")
	programmed := func(op *v1alpha1.OutlierPolicy) func() string {
		return func() string {
			a := statusOf(op, snap, envoys, nil).Ancestors[0]
			g.Expect(a.AncestorRef).To(Equal(v1alpha1.OutlierAncestorReference{Kind: "Namespace", Name: op.Namespace}))
			c := meta.FindStatusCondition(a.Conditions, "Programmed")
			return string(c.Status) + " " + c.Reason + ": " + c.Message
		}
	}
	const nobody = "Unknown NoProxies: No Envoy that may see it is connected."
	const nothing = "Unknown NoClusters: It holds for no cluster, so there is nothing that Envoys could have."
	g.Expect(programmed(global)()).To(Equal(nobody))
	g.Expect(programmed(namespaced)()).To(Equal(nobody))
	g.Expect(programmed(idle)()).To(Equal(nothing))

	connect(t, envoys, xdsclient.Options{})
	const all = "True Programmed: 1 of 1 connected Envoys acknowledged the clusters."
	g.Eventually(programmed(global), "5s").Should(Equal(all))
	g.Expect(programmed(namespaced)()).To(Equal(all))
	g.Expect(programmed(idle)()).To(Equal(nothing))

	cause := connect(t, envoys, xdsclient.Options{Mute: true})
	g.Eventually(programmed(global), "5s").Should(Equal("False Pending: 1 of 2 connected Envoys acknowledged the clusters."))
	cause()
	g.Eventually(programmed(global), "5s").Should(Equal(all))

	connect(t, envoys, xdsclient.Options{Reject: func(c *clusterv3.Cluster) string {
		if c.GetName() == "post/web/80" {
			return "post/web/80: no"
		}
		return ""
	}})
	g.Eventually(programmed(global), "5s").Should(Equal("False Nacked: post/web/80: post/web/80: no"))
	g.Eventually(programmed(namespaced), "5s").Should(Equal("True Programmed: 2 of 2 connected Envoys acknowledged the clusters."))
}

// Package installations tests that of two installations in one cluster one acts.
package installations

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

func TestInstallations(t *testing.T) {
	suite.Run(t, "Installations")
}

const (
	annotation = "autohealer.resourcestack.com/installation"
	// second is the manager of the other installation, and other its namespace.
	second cluster.Component = "second"
	other  string            = "other"
)

var (
	h *harness.Harness
	// xds is where the second serves Envoys.
	xds string
)

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	var err error
	h, err = harness.Start(ctx, harness.Options{Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(h.Stop()).To(Succeed()) })
	_, err = h.AddNodes(ctx, 10, cluster.NodeOptions{Prefix: "worker"})
	Expect(err).NotTo(HaveOccurred())
	Expect(h.StartManager(ctx)).To(Succeed())
})

func configuration(ctx context.Context) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	return c, h.Client.Get(ctx, client.ObjectKey{Name: "autohealer"}, c)
}

// mark is of the installation in a namespace.
func mark(ctx context.Context, name string) string {
	GinkgoHelper()
	var namespace corev1.Namespace
	Expect(h.Client.Get(ctx, client.ObjectKey{Name: name}, &namespace)).To(Succeed())
	return name + "/" + string(namespace.UID)
}

func kubectl(ctx context.Context, args ...string) {
	GinkgoHelper()
	_, err := h.Kubectl(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
}

// ask the second for clusters, as an Envoy does; an error is why there are none.
func ask(ctx context.Context) error {
	conn, err := grpc.NewClient(xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing depends on it
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client, err := xdsclient.Connect(ctx, conn, xdsclient.Options{})
	if err != nil {
		return err
	}
	for client.Wire().ClusterResponses == 0 {
		select {
		case <-client.Ended():
			return client.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// taints of a node.
func taints(ctx context.Context, node string) ([]corev1.Taint, error) {
	var n corev1.Node
	err := h.Client.Get(ctx, client.ObjectKey{Name: node}, &n)
	return n.Spec.Taints, err
}

var _ = Describe("two installations", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		kubectl(ctx, "create", "namespace", other)
		kubectl(ctx, "create", "serviceaccount", "-n", other, harness.ServiceAccount)
		kubectl(ctx, "create", "clusterrolebinding", "second", "--clusterrole=cluster-admin", "--serviceaccount="+other+":"+harness.ServiceAccount)
		account, err := h.ServiceAccountKubeconfig(ctx, other, harness.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		brief, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		xds = cluster.FreeAddress()
		Expect(h.StartReplica(brief, second, "--kubeconfig="+account, "--namespace="+other, "--xds-bind-address="+xds)).NotTo(Succeed(), "it must not get ready")
	})

	It("have one that acts, and one that stands aside and says so", func(ctx SpecContext) {
		Expect(configuration(ctx)).To(HaveField("Annotations", HaveKeyWithValue(annotation, mark(ctx, harness.Namespace))))
		Eventually(h.Ready).WithContext(ctx).WithArguments(second).Should(MatchError(ContainSubstring("[-]installation failed")))
		before, err := configuration(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(h.Client.Create(ctx, fixture.NewSet("broken", "example.com/broken", "NoSchedule", "Broken"))).To(Succeed())
		Expect(h.SetCondition(ctx, "worker-0", "Broken", corev1.ConditionTrue, cluster.ConditionOptions{})).To(Succeed())
		Eventually(taints).WithContext(ctx).WithArguments("worker-0").Should(ContainElement(HaveField("Key", "example.com/broken")), "the first acts")
		Expect(h.Client.Get(ctx, client.ObjectKey{Namespace: other, Name: "autohealer-manager"}, &coordinationv1.Lease{})).NotTo(Succeed(), "the second leads nobody")
		Expect(configuration(ctx)).To(HaveField("ResourceVersion", before.ResourceVersion), "and leaves the webhook alone")
		Expect(h.Ready(ctx, harness.Manager)).To(Succeed())
		Eventually(ask).WithContext(ctx).Should(MatchError(ContainSubstring("isn't known to be this installation's")), "nor has it Envoys told anything")
	})

	It("change places when the first one's namespace is gone", func(ctx SpecContext) {
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		Expect(h.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: harness.Namespace}})).To(Succeed())
		Eventually(configuration).WithContext(ctx).Should(HaveField("Annotations", HaveKeyWithValue(annotation, mark(ctx, other))))
		Eventually(h.Ready).WithContext(ctx).WithArguments(second).Should(Succeed())
		Eventually(ask).WithContext(ctx).Should(Succeed())
		Expect(h.SetCondition(ctx, "worker-0", "Broken", corev1.ConditionFalse, cluster.ConditionOptions{})).To(Succeed())
		Eventually(taints).WithContext(ctx).WithArguments("worker-0").ShouldNot(ContainElement(HaveField("Key", "example.com/broken")), "the second undoes what the first did, by its record")
	})

	It("are scraped as the ServiceMonitor says, in whatever namespace", func(ctx SpecContext) {
		monitor := overlaid(ctx)
		Expect(monitor.Namespace).To(Equal(other))
		endpoint := monitor.Spec.Endpoints[0]
		var secret corev1.Secret
		Expect(h.Client.Get(ctx, client.ObjectKey{Namespace: monitor.Namespace, Name: endpoint.TLSConfig.CA.Secret.Name}, &secret)).To(Succeed())
		trusted := x509.NewCertPool()
		Expect(trusted.AppendCertsFromPEM(secret.Data[endpoint.TLSConfig.CA.Secret.Key])).To(BeTrue())
		token, err := h.Scraper(ctx)
		Expect(err).NotTo(HaveOccurred())
		Eventually(h.ScrapeOver).WithContext(ctx).WithArguments(&tls.Config{ServerName: endpoint.TLSConfig.ServerName, RootCAs: trusted}, second, token).
			Should(ContainSubstring("\nautohealer_installation_conflict 0\n"))
	})

	It("leave a manager that isn't elected waiting, too", func(ctx SpecContext) {
		Expect(h.Install(ctx)).To(Succeed())
		brief, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		Expect(h.StartReplica(brief, "third", "--leader-elect=false", "--kubeconfig="+h.Kubeconfig)).NotTo(Succeed())
		Expect(configuration(ctx)).To(HaveField("Annotations", HaveKeyWithValue(annotation, mark(ctx, other))))
	})
})

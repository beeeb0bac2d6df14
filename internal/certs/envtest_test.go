package certs

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// startAPIServer starts a real one and fails, rather than skips, where its binaries are missing.
func startAPIServer(t *testing.T) *rest.Config {
	t.Helper()
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		dir = filepath.Join("..", "..", "bin")
	}
	for _, binary := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(dir, binary)); err != nil {
			t.Fatalf("%v: run make controlplane", err)
		}
	}
	environment := &envtest.Environment{BinaryAssetsDirectory: dir}
	config, err := environment.Start()
	if err != nil {
		t.Fatalf("start API server: %v", err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Errorf("stop API server: %v", err)
		}
	})
	return config
}

// serveRefusals answers every admission review with a refusal, over the provider's certificate, and counts them. Each
// connection serves one request, so that each request is a handshake.
func serveRefusals(t *testing.T, provider *SelfSigned) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	server := &http.Server{
		ReadHeaderTimeout: time.Second,
		ErrorLog:          slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelError),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			var review admissionv1.AdmissionReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "refused over TLS"}}
			_ = json.NewEncoder(w).Encode(review)
		}),
	}
	server.SetKeepAlivesEnabled(false)
	config := &tls.Config{}
	provider.TLSConfig(config)
	listener, err := tls.Listen("tcp", net.JoinHostPort("127.0.0.1", "0"), config)
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return "https://" + listener.Addr().String(), asked
}

// startReplica runs a manager with nothing but the provider. Of several one leads; the others must serve as well.
func startReplica(t *testing.T, config *rest.Config, provider *SelfSigned) {
	t.Helper()
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		LeaderElection: true, LeaderElectionID: "a", LeaderElectionNamespace: "autohealer-system", LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		t.Fatalf("make manager: %v", err)
	}
	if err := provider.SetupWithManager(mgr); err != nil {
		t.Fatalf("set up: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
}

// refusingConfiguration sends ConfigMaps of one namespace to the URLs, one webhook each.
func refusingConfiguration(namespace string, urls ...string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "autohealer"}}
	for i, url := range urls {
		config.Webhooks = append(config.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name:                    string(rune('a'+i)) + ".example.org",
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: ptr.To(url)},
			FailurePolicy:           ptr.To(admissionregistrationv1.Fail),
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		})
	}
	return config
}

func TestARealAPIServerTrustsTwoReplicasThroughoutARotation(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an API server")
	}
	g := NewWithT(t)
	ctx := t.Context()
	restConfig := startAPIServer(t)
	c, err := client.New(restConfig, client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "autohealer-system"}})).To(Succeed())

	options := Options{
		Namespace: "autohealer-system", SecretName: "autohealer-webhook-cert", WebhookConfiguration: "autohealer",
		Hosts: []string{"127.0.0.1"}, CALife: 18 * time.Second, LeafLife: 9 * time.Second, Settle: 3 * time.Second,
	}
	first, second := NewSelfSigned(options), NewSelfSigned(options)
	firstURL, firstAsked := serveRefusals(t, first)
	secondURL, secondAsked := serveRefusals(t, second)
	g.Expect(c.Create(ctx, refusingConfiguration("autohealer-system", firstURL, secondURL))).To(Succeed())
	startReplica(t, restConfig, first)
	startReplica(t, restConfig, second)

	g.Eventually(func() error { return first.Ready(nil) }, "20s").Should(Succeed())
	g.Eventually(func() error { return second.Ready(nil) }, "20s").Should(Succeed())
	firstCA := first.serving.Load().Leaf.Issuer.CommonName
	refused := func() error {
		return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "autohealer-system", GenerateName: "a-"}})
	}
	g.Eventually(refused, "10s").Should(MatchError(ContainSubstring("refused over TLS")), "the API server learns of the bundle")

	// Every single request is refused by one of us, in words that only come through a handshake that succeeded, until the
	// second CA has signed and the first one is no longer trusted.
	bundle := func() []byte {
		config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		g.Expect(c.Get(ctx, client.ObjectKey{Name: "autohealer"}, config)).To(Succeed())
		return config.Webhooks[1].ClientConfig.CABundle
	}
	g.Eventually(func() []string {
		g.Expect(refused()).To(MatchError(ContainSubstring("refused over TLS")))
		return authorities(g, bundle())
	}, "60s", "100ms").ShouldNot(ContainElement(firstCA))
	g.Expect(firstAsked.Load()).To(BeNumerically(">", 0))
	g.Expect(secondAsked.Load()).To(BeNumerically(">", 0))
}

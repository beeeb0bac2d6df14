package world

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

const (
	// identity is in the certificates of Envoys that may see all namespaces.
	identity = "spiffe://example.org/ns/edge/sa/envoy"
	// serverName is in the manager's certificate.
	serverName = "autohealer-xds." + harness.Namespace + ".svc"
)

// Envoys are those that connect to the manager.
type Envoys struct {
	address string
	clients *envoy.Authority
	dir     string
}

// NewEnvoys is for suites that start Autohealer with their ManagerArgs.
func NewEnvoys() *Envoys {
	ginkgo.GinkgoHelper()
	e := &Envoys{address: cluster.FreeAddress(), clients: envoy.NewAuthority(ginkgo.GinkgoTB()), dir: ginkgo.GinkgoT().TempDir()}
	gomega.Expect(os.WriteFile(e.clientCA(), e.clients.PEM(), 0o600)).To(gomega.Succeed())
	return e
}

func (e *Envoys) clientCA() string { return filepath.Join(e.dir, "clients.crt") }

// ManagerArgs let the manager serve them.
func (e *Envoys) ManagerArgs() []string {
	return []string{"--xds-bind-address=" + e.address, "--xds-client-ca=" + e.clientCA(), "--xds-client=" + identity + "=*"}
}

// StartEnvoy starts a real one that may see all namespaces; it ends with the spec.
func (w *World) StartEnvoy(ctx context.Context, e *Envoys, listeners ...envoy.Listener) *envoy.Envoy {
	ginkgo.GinkgoHelper()
	return w.StartEnvoyAs(ctx, e, identity, listeners...)
}

// PlayEnvoy connects what plays an Envoy; it ends with the spec.
func (w *World) PlayEnvoy(ctx context.Context, e *Envoys, o xdsclient.Options) {
	ginkgo.GinkgoHelper()
	dir := w.certificates(ctx, e, identity)
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	pem, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	roots := x509.NewCertPool()
	gomega.Expect(roots.AppendCertsFromPEM(pem)).To(gomega.BeTrue())
	conn, err := grpc.NewClient(e.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, RootCAs: roots, ServerName: serverName,
	})))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(conn.Close)
	streaming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ginkgo.DeferCleanup(cancel)
	_, err = xdsclient.Connect(streaming, conn, o)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}

// certificates writes those of an Envoy with an identity, and whom it trusts, into a directory.
func (w *World) certificates(ctx context.Context, e *Envoys, identity string) (dir string) {
	ginkgo.GinkgoHelper()
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	gomega.Expect(w.Client.Get(ctx, client.ObjectKey{Name: "autohealer"}, webhook)).To(gomega.Succeed())
	dir = ginkgo.GinkgoT().TempDir()
	e.clients.Write(dir, identity, webhook.Webhooks[0].ClientConfig.CABundle) // the CA of the webhook's certificate signs this one, too
	return dir
}

// StartEnvoyAs starts one with another identity in its certificate.
func (w *World) StartEnvoyAs(ctx context.Context, e *Envoys, name string, listeners ...envoy.Listener) *envoy.Envoy {
	ginkgo.GinkgoHelper()
	dir := w.certificates(ctx, e, name)
	return envoy.Start(ginkgo.GinkgoTB(), envoy.Options{ //nolint:contextcheck // it ends with the spec
		Bootstrap: []string{
			"--server", e.address, "--server-name=" + serverName, "--resources-dir=" + dir,
			"--cert=" + filepath.Join(dir, "tls.crt"), "--key=" + filepath.Join(dir, "tls.key"), "--ca=" + filepath.Join(dir, "ca.crt"),
		},
		Listeners: listeners,
		Change:    func(b *bootstrapv3.Bootstrap) { b.DynamicResources.CdsConfig.InitialFetchTimeout = durationpb.New(1e9) },
	})
}

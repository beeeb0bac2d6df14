package faults

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// proxy stands between the manager and the API server and can silence single watches.
type proxy struct{ *faultproxy.Watches }

func startProxy() *proxy {
	GinkgoHelper()
	watches, err := faultproxy.StartWatches(w.URL, w.CACert)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(watches.Stop)
	return &proxy{watches}
}

// kubeconfig is the manager's, by way of the proxy.
func (p *proxy) kubeconfig(ctx context.Context) string {
	GinkgoHelper()
	direct, err := w.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(w.Dir, "proxied.kubeconfig")
	Expect(p.Kubeconfig(direct, path)).To(Succeed())
	return path
}

func (p *proxy) silence(path string) { p.Silence(path) }
func (p *proxy) speak(path string)   { p.Speak(path) }

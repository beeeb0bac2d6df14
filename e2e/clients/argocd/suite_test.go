package argocd

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/clients/gitops"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
)

const (
	specTime = 6 * time.Minute

	// controller is Argo CD's part that applies and deletes.
	controller cluster.Component = "argocd-application-controller"
)

var w *gitops.World

func TestArgoCD(t *testing.T) {
	suite.Run(t, "Argo CD")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	w = gitops.Start(ctx, "argocd", "argocd", "docs/how-to/argo-cd.md")
	startArgoCD(ctx)
}, NodeTimeout(2*time.Minute))

// installation is what Argo CD reads about itself, besides its ConfigMap.
const installation = `
apiVersion: v1
kind: Secret
metadata: {name: argocd-secret, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
stringData: {server.secretkey: any}
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default, namespace: argocd}
spec:
  sourceRepos: ["*"]
  destinations: [{server: "*", namespace: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
`

const configMap = `
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-cm, labels: {app.kubernetes.io/part-of: argocd}}
`

func startArgoCD(ctx SpecContext) {
	GinkgoHelper()
	w.Run(ctx, "apply", "--server-side", "-f", filepath.Join(w.BinDir, "argocd-crds.yaml"))
	w.Run(ctx, "create", "namespace", "argocd")
	Eventually(ctx, func() error { return w.Apply(ctx, installation) }).Should(Succeed(), "once its kinds are served")
	dir := filepath.Join(w.Dir, "argocd")
	gitops.Write(dir, "argo-cd.yaml", configMap)
	component, err := filepath.Rel(dir, gitops.Path("config/argocd"))
	Expect(err).NotTo(HaveOccurred())
	gitops.Write(dir, "kustomization.yaml", "namespace: argocd\nresources: [argo-cd.yaml]\ncomponents: ["+component+"]\n")
	w.Run(ctx, "apply", "-k", dir)

	redis, repoServer, repoMetrics, controllerMetrics := freePort(), freePort(), freePort(), freePort()
	w.StartProgram(ctx, "argocd-redis", func(context.Context) error {
		connection, err := net.Dial("tcp", local(redis))
		if err == nil {
			err = connection.Close()
		}
		return err
	}, filepath.Join(w.BinDir, "argocd-redis"), local(redis))
	startProgram := func(name cluster.Component, health string, args ...string) {
		GinkgoHelper()
		w.StartProgram(ctx, name, cluster.HTTPReady("http://"+health), append([]string{
			"/usr/bin/env", "ARGOCD_BINARY_NAME=" + string(name), "ARGOCD_FAKE_IN_CLUSTER=true", "KUBECONFIG=" + w.Kubeconfig,
			"PATH=" + w.BinDir + ":" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "GIT_CONFIG_GLOBAL=/dev/null", "ARGOCD_GPG_ENABLED=false",
			"ARGOCD_PLUGINSOCKFILEPATH=" + dir, "ARGOCD_TLS_DATA_PATH=" + dir, "ARGOCD_SSH_DATA_PATH=" + dir, "ARGOCD_GPG_DATA_PATH=" + dir,
			filepath.Join(w.BinDir, "argocd"), "--redis=" + local(redis),
		}, args...)...)
	}
	startProgram("argocd-repo-server", local(repoMetrics)+"/healthz?full=true", "--disable-tls",
		"--address=127.0.0.1", fmt.Sprintf("--port=%d", repoServer), "--metrics-address=127.0.0.1", fmt.Sprintf("--metrics-port=%d", repoMetrics))
	startProgram(controller, local(controllerMetrics)+"/healthz", "--namespace=argocd",
		"--repo-server="+local(repoServer), "--repo-server-plaintext", fmt.Sprintf("--metrics-port=%d", controllerMetrics),
		"--persist-resource-health",                // its own API server isn't here to be asked
		"--app-resync=20", "--app-resync-jitter=0") // timeout.reconciliation: when it looks again at what it missed, as that a CRD is established
}

// startStandby starts it anew while another one leads: it judges, and writes no status. The function ends that.
func startStandby(ctx SpecContext) (lead func()) {
	GinkgoHelper()
	Expect(w.StopComponent(gitops.Manager)).To(Succeed())
	var leases coordinationv1.LeaseList
	Expect(w.Admin.List(ctx, &leases, client.InNamespace(harness.Namespace))).To(Succeed())
	Expect(leases.Items).To(HaveLen(1))
	lease, other, long, now := &leases.Items[0], "another", int32(3600), metav1.NowMicro()
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &other, &long, &now
	Expect(w.Admin.Update(ctx, lease)).To(Succeed())
	lead = sync.OnceFunc(func() { Expect(w.Admin.Delete(context.Background(), lease)).To(Succeed()) })
	DeferCleanup(lead)
	w.StartManager(ctx)
	return lead
}

func freePort() int {
	GinkgoHelper()
	port, err := cluster.FreePort()
	Expect(err).NotTo(HaveOccurred())
	return port
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

package argocd

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

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
	kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(c.BinDir, "argocd-crds.yaml"))
	kubectl(ctx, "create", "namespace", "argocd")
	Eventually(ctx, func() error { return apply(ctx, installation) }).Should(Succeed(), "once its kinds are served")
	dir := filepath.Join(c.Dir, "argocd")
	write(dir, "argo-cd.yaml", configMap)
	component, err := filepath.Rel(dir, absolute("config/argocd"))
	Expect(err).NotTo(HaveOccurred())
	write(dir, "kustomization.yaml", "namespace: argocd\nresources: [argo-cd.yaml]\ncomponents: ["+component+"]\n")
	kubectl(ctx, "apply", "-k", dir)

	redis, repoServer, repoMetrics, controller := freePort(), freePort(), freePort(), freePort()
	start(ctx, "argocd-redis", func(context.Context) error {
		connection, err := net.Dial("tcp", local(redis))
		if err == nil {
			err = connection.Close()
		}
		return err
	}, filepath.Join(c.BinDir, "argocd-redis"), local(redis))
	startProgram := func(name cluster.Component, health string, args ...string) {
		GinkgoHelper()
		start(ctx, name, cluster.HTTPReady("http://"+health), append([]string{
			"/usr/bin/env", "ARGOCD_BINARY_NAME=" + string(name), "ARGOCD_FAKE_IN_CLUSTER=true", "KUBECONFIG=" + c.Kubeconfig,
			"PATH=" + c.BinDir + ":" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "GIT_CONFIG_GLOBAL=/dev/null", "ARGOCD_GPG_ENABLED=false",
			"ARGOCD_PLUGINSOCKFILEPATH=" + dir, "ARGOCD_TLS_DATA_PATH=" + dir, "ARGOCD_SSH_DATA_PATH=" + dir, "ARGOCD_GPG_DATA_PATH=" + dir,
			filepath.Join(c.BinDir, "argocd"), "--redis=" + local(redis),
		}, args...)...)
	}
	startProgram("argocd-repo-server", local(repoMetrics)+"/healthz?full=true", "--disable-tls",
		"--address=127.0.0.1", fmt.Sprintf("--port=%d", repoServer), "--metrics-address=127.0.0.1", fmt.Sprintf("--metrics-port=%d", repoMetrics))
	startProgram("argocd-application-controller", local(controller)+"/healthz", "--namespace=argocd",
		"--repo-server="+local(repoServer), "--repo-server-plaintext", fmt.Sprintf("--metrics-port=%d", controller),
		"--persist-resource-health") // its own API server isn't here to be asked
}

// start starts a program: its path, and its arguments.
func start(ctx SpecContext, name cluster.Component, ready func(context.Context) error, command ...string) {
	GinkgoHelper()
	Expect(c.AddProgram(name, command[0], command[1:], ready)).To(Succeed())
	Expect(c.StartComponent(ctx, name)).To(Succeed())
}

func freePort() int {
	GinkgoHelper()
	port, err := cluster.FreePort()
	Expect(err).NotTo(HaveOccurred())
	return port
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// absolute is the path of something in this repository.
func absolute(path string) string {
	GinkgoHelper()
	path, err := filepath.Abs(filepath.Join(root, path))
	Expect(err).NotTo(HaveOccurred())
	return path
}

func write(dir, name, text string) {
	GinkgoHelper()
	path := filepath.Join(dir, name)
	Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
}

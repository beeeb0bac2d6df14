package flux

import (
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/resourcestack/autohealer/e2e/clients/gitops"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
)

const specTime = 6 * time.Minute

var w *gitops.World

func TestFlux(t *testing.T) {
	suite.Run(t, "Flux")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	w = gitops.Start(ctx, "helm-controller", "flux", "docs/how-to/flux.md")
	serveRepository(ctx)
	startFlux(ctx)
}, NodeTimeout(2*time.Minute))

var _ = JustAfterEach(func(ctx SpecContext) {
	if CurrentSpecReport().Failed() && w != nil {
		AddReportEntry("Flux says", w.Run(ctx, "get", "gitrepositories,kustomizations,helmreleases", "-A"))
		AddReportEntry("logs stay", w.KeepLogs())
	}
}, NodeTimeout(specTime))

func startFlux(ctx SpecContext) {
	GinkgoHelper()
	w.Run(ctx, "apply", "--server-side", "-f", filepath.Join(w.BinDir, "flux.yaml"))
	w.Run(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
	w.Run(ctx, "create", "namespace", "flux-system")
	artifacts := cluster.FreeAddress()
	start(ctx, "source-controller", "--storage-path="+w.Dir, "--storage-addr="+artifacts, "--storage-adv-addr="+artifacts)
	start(ctx, "kustomize-controller", "--requeue-dependency=1s")
	start(ctx, "helm-controller")
}

// start starts one of Flux's controllers.
func start(ctx SpecContext, name cluster.Component, args ...string) {
	GinkgoHelper()
	health := cluster.FreeAddress()
	command := []string{"/usr/bin/env", "KUBECONFIG=" + w.Kubeconfig, "TMPDIR=" + w.Dir, filepath.Join(w.BinDir, string(name)), "--health-addr=" + health, "--metrics-addr=0"}
	w.StartProgram(ctx, name, cluster.HTTPReady("http://"+health+"/readyz"), append(command, args...)...)
}

package flux

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// helmed says whether there is a helm-controller.
func helmed() bool {
	_, err := os.Stat(filepath.Join(c.BinDir, "helm-controller"))
	return err == nil
}

// withHelm is what a patch adds to the release, for a manager outside of the cluster, whose pods are ready when it is.
const withHelm = `
resources: [release.yaml]
patches:
- target: {kind: HelmRelease, name: autohealer}
  patch: |
    - {op: add, path: /spec/values/webhook, value: {url: "https://127.0.0.1:%d/validate"}}
    - {op: add, path: /spec/values/replicas, value: %d}
`

func releases() {
	It("is ready when a HelmRelease in it is", func(ctx SpecContext) {
		if !helmed() {
			Skip("there is no bin/helm-controller, with its kinds in bin/helm-controller.yaml: its module can't be had from every Go proxy")
		}
		release := schema.GroupVersionKind{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"}
		state := func() (string, error) {
			is, err := object(ctx, release, harness.Namespace, "autohealer")
			if err != nil {
				return "", err
			}
			return stateOf(is)
		}
		manifest, err := howTo.File("autohealer/release.yaml")
		Expect(err).NotTo(HaveOccurred())
		files := chart()
		files["autohealer/install.yaml"], files["autohealer/release.yaml"] = "", manifest
		files["autohealer/kustomization.yaml"] = fmt.Sprintf(withHelm, webhookPort, 2)
		commit(ctx, files)
		install(ctx)
		Eventually(ctx, state).Should(beReady())
		startManager(ctx)
		for _, k := range []kustomization{installation, guardrails, policies} {
			Eventually(ctx, k.state).Should(beReady())
		}

		By("an upgrade")
		commit(ctx, map[string]string{"autohealer/kustomization.yaml": fmt.Sprintf(withHelm, webhookPort, 3)})
		Eventually(ctx, installation.state).Should(beReady())
		Expect(state()).To(beReady())
		Expect(kubectl(ctx, "get", "deployment", "-n", harness.Namespace, harness.ServiceAccount, "-o", "jsonpath={.status.readyReplicas}")).To(Equal("3"))
	}, NodeTimeout(specTime))
}

// chart is the chart's files.
func chart() map[string]string {
	GinkgoHelper()
	files := map[string]string{}
	dir := os.DirFS(root)
	Expect(fs.WalkDir(dir, "charts/autohealer", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			var text []byte
			text, err = fs.ReadFile(dir, path)
			files[path] = string(text)
		}
		return err
	})).To(Succeed())
	return files
}

package flux

import (
	"context"
	"fmt"
	"io/fs"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/e2e/clients/gitops"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// notInAPod is gitops' Patches, by the chart's values.
const notInAPod = `
resources: [release.yaml]
patches:
- target: {kind: HelmRelease, name: autohealer}
  patch: |
    - {op: add, path: /spec/values/webhook, value: {url: "%s"}}
    - {op: add, path: /spec/values/podLabels, value: {autohealer.test/unready: "true"}}
    - {op: add, path: /spec/values/replicas, value: %d}
`

func releases() {
	It("installs and upgrades by a HelmRelease, which is ready when the manager is", func(ctx SpecContext) {
		manifest, err := w.Guide.File("autohealer/release.yaml")
		Expect(err).NotTo(HaveOccurred())
		files := chart()
		files["autohealer/install.yaml"], files["autohealer/release.yaml"] = "", manifest
		files["autohealer/kustomization.yaml"] = fmt.Sprintf(notInAPod, w.WebhookURL(), 2)
		commit(ctx, files)
		install(ctx)
		By("a manager that isn't ready yet")
		w.ExpectPods(ctx)
		Eventually(ctx, releaseState).Should(Equal("InProgress, Ready=Unknown: Running 'install' action with timeout of 5m0s"))
		w.StartManager(ctx)
		Eventually(ctx, releaseState).Should(beReady())
		for _, k := range []kustomization{installation, guardrails, policies} {
			Eventually(ctx, k.state).Should(beReady())
		}

		By("an upgrade")
		commit(ctx, map[string]string{"autohealer/kustomization.yaml": fmt.Sprintf(notInAPod, w.WebhookURL(), 3)})
		Eventually(ctx, func(ctx SpecContext) (string, error) { w.ReadyPods(ctx); return installation.state(ctx) }).Should(beReady())
		Expect(releaseState(ctx)).To(beReady())
		Expect(w.Run(ctx, "get", "deployment", "-n", harness.Namespace, harness.ServiceAccount, "-o", "jsonpath={.spec.replicas}")).To(Equal("3"))
	}, NodeTimeout(specTime))
}

func releaseState(ctx context.Context) (string, error) {
	is, err := get(ctx, schema.GroupVersionKind{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"}, harness.Namespace, "autohealer")
	if err != nil {
		return "", err
	}
	return stateOf(is)
}

// chart is the chart's files.
func chart() map[string]string {
	GinkgoHelper()
	files := map[string]string{}
	root := os.DirFS(gitops.Path("."))
	Expect(fs.WalkDir(root, "charts/autohealer", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, path)
		files[path] = string(text)
		return err
	})).To(Succeed())
	return files
}

package uninstall

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/page"
)

var _ = Describe("docs/how-to/uninstall.md", func() {
	It("has commands that work, and shows what they say", func(ctx SpecContext) {
		p, err := page.Read(h.Root(), "docs/how-to/uninstall.md")
		Expect(err).NotTo(HaveOccurred())
		commands := p.Commands()
		Expect(commands).To(HaveExactElements(
			HaveField("Text", "kubectl get autohealer -A -o yaml > policies.yaml"),
			HaveField("Text", "kubectl autohealer uninstall --dry-run=server"),
			HaveField("Text", "kubectl autohealer uninstall"),
			HaveField("Text", "kubectl delete conditionsets,healthcheckregistrations,outlierpolicies,probeconfigs,weederconfigs --all -A"),
			HaveField("Text", "kubectl delete -k config/default"),
		))
		reader := page.Reader{Dir: GinkgoT().TempDir(), Env: []string{"KUBECONFIG=" + h.Kubeconfig, "PATH=" + h.BinDir + ":" + os.Getenv("PATH"), "KUBECACHEDIR=" + GinkgoT().TempDir()}}
		Expect(page.Checkout(h.Root(), reader.Dir)).To(Succeed())
		follow := func(command page.Command) {
			GinkgoHelper()
			said, err := reader.Run(ctx, command.Text, "y\n")
			Expect(err).NotTo(HaveOccurred(), "%s\n%s", command.Text, said)
			Expect(command.Differs(strings.ReplaceAll(said, "(y/N): ", "(y/N): y\n"))).To(BeEmpty()) // a terminal shows what was typed
		}
		installAndBreak(ctx)
		follow(commands[0])
		Expect(os.ReadFile(filepath.Join(reader.Dir, "policies.yaml"))).To(ContainSubstring("kind: ProbeConfig"))
		follow(commands[1])
		follow(commands[2])
		expectNothingLeft(ctx)

		By("without the plugin")
		installAndBreak(ctx)
		follow(commands[3])
		follow(commands[4])
		stop()
		Eventually(traces).WithContext(ctx).Should(ContainElement(ContainSubstring("hold-until")), "which only the plugin takes off")
		Expect(h.Done(ctx)).To(Equal(h.Nothing()))
		Expect(uninstall(ctx, "--yes")).To(succeeds)
		expectNothingLeft(ctx)
	}, NodeTimeout(specTime))
})

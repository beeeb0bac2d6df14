package admission

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("kubectl autohealer validate --live", func() {
	It("says what the webhook says, with the rights that its page asks for and no others", func(ctx SpecContext) {
		kubeconfig := hookAccount(ctx)
		for _, text := range []string{
			manifest("live", `{type: Live, effect: NoSchedule, taintKey: example.com/live, conditions: {KernelDeadlock: {status: false}}}`),
			// Only an API server knows that this account may not delete pods.
			"apiVersion: autohealer.resourcestack.com/v1alpha1\nkind: WeederConfig\nmetadata: {name: live, namespace: default}\nspec: {servicesAndDependantSelectors: {nobody: {podSelectors: [{matchLabels: {a: b}}]}}}\n",
		} {
			path := file(text)
			cmd := exec.CommandContext(ctx, filepath.Join(h.BinDir, "kubectl-autohealer"), "validate", "-f", path, "--live", "--kubeconfig", kubeconfig)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			said, err := cmd.Output()
			exit, exited := errors.AsType[*exec.ExitError](err)
			Expect(exited && exit.ExitCode() == 1).To(BeTrue(), "%v: %s", err, stderr.String())
			Expect(stderr.String()).To(BeEmpty(), "nothing that it may not ask")
			Expect(string(said)).NotTo(ContainSubstring("Skipped("))
			refusals := anyRule.FindAllString(refused(ctx, "create", "-f", path), -1)
			Expect(refusals).NotTo(BeEmpty())
			for _, refusal := range refusals {
				Expect(string(said)).To(ContainSubstring(refusal))
			}
		}
	}, NodeTimeout(specTime))
})

// anyRule is what one rule says in a refusal.
var anyRule = regexp.MustCompile(`[a-z]+/[a-z-]+: [^\n]*?\(docs/[^)]*\)`)

package admission

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
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

	It("says of what is stored already what a server-side apply says, during an incident too", func(ctx SpecContext) {
		const spec = `type: Incident, effect: NoSchedule, taintKey: example.com/incident, for: 10m, includeControlPlane: false, nodeSelector: {matchLabels: {}}, conditions: {IncidentBroken: {status: true}}`
		with := func(more string) string { return file(manifest("incident", "{"+spec+more+"}")) }
		unchanged := with("")
		evicting := file(strings.Replace(manifest("incident", "{"+spec+"}"), "NoSchedule", "NoExecute", 1))
		removedAfterwards("incident")
		accepted(ctx, "apply", "--server-side", "-f", unchanged)
		report(ctx, "IncidentBroken", corev1.ConditionTrue, nodes(ctx, 3, "incident")...)
		dryRun := func(manifest string) (string, error) {
			return kubectl(ctx, "apply", "--server-side", "--dry-run=server", "-f", manifest)
		}
		Eventually(func() string {
			output, _ := dryRun(evicting) // the refusal is waited for
			return output
		}).Should(ContainSubstring("conditionset/would-exceed-limit: "), "the webhook knows of the incident")
		kubeconfig := hookAccount(ctx)
		said := map[string]int{}
		for name, manifest := range map[string]string{
			"unchanged": unchanged, "evicting": evicting, "recovering later": with(", recoverAfter: 2m"), "only observing": with(", mode: Observe"),
			"with a label": file(strings.Replace(manifest("incident", "{"+spec+"}"), "name: incident\n", "name: incident\n  labels: {team: nodes}\n", 1)),
		} {
			output, err := dryRun(manifest)
			code, told := runIn(ctx, ".", "kubectl-autohealer validate --live -f "+manifest+" --kubeconfig "+kubeconfig)
			admitted := code == 0
			Expect(admitted).To(Equal(err == nil), "%s: the API server says\n%s\nand validate\n%s", name, output, told)
			for _, finding := range anyRule.FindAllString(output, -1) {
				why, _, _ := strings.Cut(finding, " (https://") // the page comes last in the one, and before the note that it was so before in the other
				Expect(told).To(ContainSubstring(why), name)
			}
			said[name] = code
		}
		Expect(said).To(And(HaveKeyWithValue("unchanged", 0), HaveKeyWithValue("with a label", 0), HaveKeyWithValue("recovering later", 0), HaveKeyWithValue("evicting", 1)))
	}, NodeTimeout(specTime))
})

// anyRule is what one rule says in a refusal.
var anyRule = regexp.MustCompile(`[a-z]+/[a-z-]+: [^\n]*?\(https://[^)]*\)`)

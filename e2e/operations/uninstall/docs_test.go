package uninstall

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// shown are the commands of the page in its order, each with the lines that it shows.
func shown() (commands []string, lines map[string][]string) {
	GinkgoHelper()
	page, err := os.ReadFile(filepath.Join(h.Root(), "docs", "how-to", "uninstall.md"))
	Expect(err).NotTo(HaveOccurred())
	lines = map[string][]string{}
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		command := ""
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSuffix(line, "\n")
			if next, isCommand := strings.CutPrefix(line, "$ "); isCommand {
				command = next
				commands = append(commands, command)
			} else if line != "…" {
				lines[command] = append(lines[command], line)
			}
		}
	}
	return commands, lines
}

var (
	moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	// inline are the page's commands in its text.
	inline = regexp.MustCompile("`(kubectl (?:get|delete)[^`]*)`")
)

// run runs one of the page's commands as it stands there, in the repository's root.
func run(ctx SpecContext, command, input string) string {
	GinkgoHelper()
	sh := exec.CommandContext(ctx, "sh", "-c", command)
	sh.Dir, sh.Stdin = h.Root(), strings.NewReader(input)
	sh.Env = append(os.Environ(), "KUBECONFIG="+h.Kubeconfig, "PATH="+h.BinDir+":"+os.Getenv("PATH"), "KUBECACHEDIR="+GinkgoT().TempDir())
	var out bytes.Buffer
	sh.Stdout, sh.Stderr = &out, &out
	Expect(sh.Run()).To(Succeed(), "%s\n%s", command, &out)
	return out.String()
}

// expectShown expects that a page shows what its command says, in this order.
func expectShown(command, said string, lines []string) {
	GinkgoHelper()
	rest := moment.ReplaceAllString(said, "T")
	for _, line := range lines {
		line = moment.ReplaceAllString(line, "T")
		_, after, there := strings.Cut(rest, line+"\n")
		Expect(there).To(BeTrue(), "%s doesn't say, or not in this order: %s\nit says\n%s", command, line, said)
		rest = after
	}
}

var _ = Describe("docs/how-to/uninstall.md", func() {
	It("has commands that work, and shows what they say", func(ctx SpecContext) {
		commands, lines := shown()
		Expect(commands).To(Equal([]string{
			"kubectl autohealer uninstall --dry-run=server", "kubectl autohealer uninstall",
			"kubectl delete conditionsets,healthcheckregistrations,outlierpolicies,probeconfigs,weederconfigs --all -A", "kubectl delete -k config/default",
		}))
		installAndBreak(ctx)
		page, err := os.ReadFile(filepath.Join(h.Root(), "docs", "how-to", "uninstall.md"))
		Expect(err).NotTo(HaveOccurred())
		save := inline.FindStringSubmatch(string(page))[1]
		into := filepath.Join(GinkgoT().TempDir(), "policies.yaml")
		run(ctx, strings.Replace(save, "policies.yaml", into, 1), "")
		Expect(os.ReadFile(into)).To(ContainSubstring("kind: ProbeConfig"))
		for _, command := range commands[:2] {
			said := run(ctx, command, "y\n")
			expectShown(command, strings.ReplaceAll(said, "(y/N): ", "(y/N): y\n"), lines[command]) // a terminal shows what was typed
		}
		expectNothingLeft(ctx)

		By("without the plugin")
		installAndBreak(ctx)
		for _, command := range commands[2:] {
			expectShown(command, run(ctx, command, ""), lines[command])
		}
		stop()
		Eventually(traces).WithContext(ctx).Should(ContainElement(ContainSubstring("hold-until")), "which only the plugin takes off")
		Expect(h.Done(ctx)).To(Equal(h.Nothing()))
		Expect(uninstall(ctx, "--yes")).To(succeeds)
		expectNothingLeft(ctx)
	}, NodeTimeout(specTime))
})

package admission

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/e2e/page"
)

// preMerge is the page about validation before a merge.
func preMerge() *page.Page {
	GinkgoHelper()
	p, err := page.Read(h.Root(), "docs/how-to/validate-before-merge.md")
	Expect(err).NotTo(HaveOccurred())
	return p
}

// fileOf is the page's file of this name.
func fileOf(p *page.Page, name string) string {
	GinkgoHelper()
	text, err := p.File(name)
	Expect(err).NotTo(HaveOccurred())
	return text
}

// argocd is the namespace that the page's hook runs in.
func argocd(ctx context.Context) {
	GinkgoHelper()
	Expect(client.IgnoreAlreadyExists(h.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "argocd"}}))).To(Succeed())
}

// hookAccount is a kubeconfig of the page's account, with the rights that it has there and no others.
func hookAccount(ctx context.Context) string {
	GinkgoHelper()
	argocd(ctx)
	_, err := h.Apply(ctx, fileOf(preMerge(), "account.yaml"))
	Expect(err).NotTo(HaveOccurred())
	kubeconfig, err := h.ServiceAccountKubeconfig(ctx, "argocd", "validate-policies")
	Expect(err).NotTo(HaveOccurred())
	return kubeconfig
}

var _ = Describe("The page about validation before a merge", func() {
	It("has an account for Argo CD's hook that may ask all that it asks, and a hook that kustomize and the API server take", func(ctx SpecContext) {
		p, dir := preMerge(), GinkgoT().TempDir()
		argocd(ctx)
		Expect(os.Mkdir(filepath.Join(dir, "policies"), 0o700)).To(Succeed())
		policy := manifest("hooked", `{type: Hooked, effect: NoSchedule, taintKey: example.com/hooked, conditions: {KernelDeadlock: {status: false}}}`)
		for name, text := range map[string]string{
			"kustomization.yaml": fileOf(p, "kustomization.yaml"), "presync.yaml": fileOf(p, "presync.yaml"), "policies/kernel-deadlock.yaml": policy,
		} {
			Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)).To(Succeed())
		}
		built, err := h.Kubectl(ctx, "kustomize", dir)
		Expect(err).NotTo(HaveOccurred())
		var job batchv1.Job
		var files corev1.ConfigMap
		for _, document := range regexp.MustCompile(`(?m)^---\n`).Split(built, -1) {
			var meta metav1.TypeMeta
			Expect(yaml.Unmarshal([]byte(document), &meta)).To(Succeed())
			switch meta.Kind {
			case "Job":
				Expect(yaml.UnmarshalStrict([]byte(document), &job)).To(Succeed())
			case "ConfigMap":
				Expect(yaml.UnmarshalStrict([]byte(document), &files)).To(Succeed())
			}
		}
		spec := job.Spec.Template.Spec
		Expect(spec.Volumes[0].ConfigMap.Name).To(Equal(files.Name), "the hook judges what is synced")
		Expect(files.Namespace).To(Equal(job.Namespace))
		Expect(files.Data).To(Equal(map[string]string{"kernel-deadlock.yaml": policy}))
		for _, object := range []client.Object{&files, &job} {
			Expect(object.GetAnnotations()).To(HaveKeyWithValue("argocd.argoproj.io/hook", "PreSync"))
			Expect(h.Client.Create(ctx, object, client.DryRunAll)).To(Succeed())
		}

		By("running the hook's command with its account")
		Expect([]string{job.Namespace, spec.ServiceAccountName}).To(Equal([]string{"argocd", "validate-policies"}))
		kubeconfig := hookAccount(ctx)
		mounted := strings.NewReplacer("/policies", filepath.Join(dir, "policies"))
		command := append(spec.Containers[0].Command, spec.Containers[0].Args...)
		for i := range command {
			command[i] = mounted.Replace(command[i])
		}
		code, said := runIn(ctx, dir, strings.Join(command, " ")+" --kubeconfig "+kubeconfig)
		Expect(code).To(Equal(1), said)
		Expect(said).To(ContainSubstring("conditionset/matches-healthy-nodes"))
		Expect(said).NotTo(Or(ContainSubstring("warning: node leases"), ContainSubstring("Skipped(")), "nothing that it may not ask")
	}, NodeTimeout(specTime))

	It("has commands for GitHub and GitLab that run as they stand there", func(ctx SpecContext) {
		dir, commands := GinkgoT().TempDir(), 0
		Expect(os.Mkdir(filepath.Join(dir, "policies"), 0o700)).To(Succeed())
		good := manifest("good", `{type: Good, effect: NoSchedule, taintKey: example.com/good, conditions: {KernelDeadlock: {status: true}}}`)
		bad := manifest("bad", `{type: Bad, effect: NoSchedule, taintKey: example.com/bad, conditions: {KernelDeadlock: {status: false}}}`)
		for _, block := range preMerge().Blocks {
			for _, command := range ciCommands(block.Text) {
				commands++
				for want, text := range []string{good, bad} { // what the second one wrote is looked at
					Expect(os.WriteFile(filepath.Join(dir, "policies", "policy.yaml"), []byte(text), 0o600)).To(Succeed())
					code, said := runIn(ctx, dir, command)
					Expect(code).To(Equal(want), "%s: %s", command, said)
				}
				for _, written := range regexp.MustCompile(`> (\S+)`).FindAllStringSubmatch(command, -1) {
					Expect(block.Text).To(MatchRegexp(`(junit|sarif_file): `+regexp.QuoteMeta(written[1])+`\}`), "what is written is handed on")
					text, err := os.ReadFile(filepath.Join(dir, written[1]))
					Expect(err).NotTo(HaveOccurred())
					Expect(string(text)).To(ContainSubstring("conditionset/matches-healthy-nodes"))
				}
			}
		}
		Expect(commands).To(Equal(3), "two for GitHub, one for GitLab")
	}, NodeTimeout(specTime))
})

// ciCommands are those of a workflow's steps, or of a pipeline's script; of other YAML there are none.
func ciCommands(text string) (commands []string) {
	GinkgoHelper()
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct{ Run string }
		}
	}
	var pipeline map[string]struct{ Script []string }
	if yaml.Unmarshal([]byte(text), &workflow) == nil {
		for _, job := range workflow.Jobs {
			for _, step := range job.Steps {
				if step.Run != "" {
					commands = append(commands, step.Run)
				}
			}
		}
	}
	if yaml.Unmarshal([]byte(text), &pipeline) == nil {
		for _, job := range pipeline {
			commands = append(commands, job.Script...)
		}
	}
	return commands
}

// runIn runs a shell's command line with the plugin on the PATH.
func runIn(ctx SpecContext, dir, line string) (code int, said string) {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+h.BinDir+string(os.PathListSeparator)+os.Getenv("PATH"))
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); cmd.ProcessState == nil {
		Expect(err).NotTo(HaveOccurred())
	}
	return cmd.ProcessState.ExitCode(), output.String()
}

package admission

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var _ = Describe("kubectl autohealer validate --live", func() {
	It("says what the webhook says, with the rights that its page asks for and no others", func(ctx SpecContext) {
		page, err := os.ReadFile(filepath.Join(h.Root(), "docs", "how-to", "validate-before-merge.md"))
		Expect(err).NotTo(HaveOccurred())
		text := regexp.MustCompile("(?s)apiVersion: rbac[^\n]*\nkind: ClusterRole\n.*?```").Find(page)
		role := &rbacv1.ClusterRole{}
		Expect(yaml.UnmarshalStrict(bytes.TrimSuffix(text, []byte("```")), role)).To(Succeed())
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: role.Name}}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: role.Name}},
		}
		Expect(h.Client.Create(ctx, role)).To(Succeed())
		Expect(h.Client.Create(ctx, account)).To(Succeed())
		Expect(h.Client.Create(ctx, binding)).To(Succeed())
		kubeconfig, err := h.ServiceAccountKubeconfig(ctx, "default", role.Name)
		Expect(err).NotTo(HaveOccurred())

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

package operations

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

var _ = Describe("kubectl autohealer", func() {
	It("says in one line that there is no API server or no such context, and what it may not ask", func(ctx SpecContext) {
		kubeconfig, err := os.ReadFile(w.Kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		dead := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(os.WriteFile(dead, []byte(strings.ReplaceAll(string(kubeconfig), w.URL, "https://"+cluster.Unserved())), 0o600)).To(Succeed())
		_, err = w.Kubectl(ctx, "create", "serviceaccount", "-n", "default", "stranger")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := w.Kubectl(ctx, "delete", "serviceaccount", "-n", "default", "stranger")
			Expect(err).NotTo(HaveOccurred())
		})
		stranger, err := w.ServiceAccountKubeconfig(ctx, "default", "stranger")
		Expect(err).NotTo(HaveOccurred())
		for _, verb := range []string{
			"status", "status -w", "history", "explain node/a", "explain deployment/a", "freeze", "thaw", "undo --all", "undo node/a", "reset conditionset/a", "check",
			"uninstall --dry-run", "uninstall --yes", "facts export",
		} {
			args := strings.Fields(verb)
			Expect(pluginAs(ctx, dead, args...)).To(SatisfyAll(HaveField("Code", 2), HaveField("Out", BeEmpty()), HaveField("Err",
				MatchRegexp(`^error: [^\n]*can't reach the API server https://`+cluster.Unserved()+` of context "[^"]+": dial tcp `+cluster.Unserved()+`: connect: connection refused \(kubectl config get-contexts [^\n]*\)\n$`))), verb)
			Expect(plugin(ctx, append(args, "--context=nowhere")...)).To(Equal(said{2, "",
				"error: find the cluster: context \"nowhere\" does not exist (kubectl config view shows what there is; --kubeconfig and --context choose)\n"}), verb)
			if verb == "status -w" {
				continue // it goes on, and shows what it may
			}
			got := pluginAs(ctx, stranger, args...)
			Expect(got.Code).NotTo(BeZero(), verb)
			Expect(got.Out+got.Err).To(And(ContainSubstring(`User "system:serviceaccount:default:stranger" cannot `), Not(MatchRegexp(`(?m)^[EWI]\d{4} `))), verb)
		}
	})
})

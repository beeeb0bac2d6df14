package world

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// Previous is the version that is upgraded from, which hack/previous names: its config and crds, in a directory that goes with the spec,
// and its manager. Where that isn't built, the spec is skipped.
func Previous(ctx context.Context) (tree, manager string) {
	ginkgo.GinkgoHelper()
	bin, err := cluster.BinDir()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	manager = filepath.Join(bin, "previous", "manager")
	if _, err := os.Stat(manager); err != nil {
		ginkgo.Skip("there is no manager of the version before: make previous builds it, in a clone that has its commit")
	}
	root, err := cluster.ModuleRoot()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ref, err := os.ReadFile(filepath.Join(root, "hack", "previous", "ref"))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	tree = ginkgo.GinkgoT().TempDir()
	unpack := exec.CommandContext(ctx, "sh", "-c", `git -C "$1" archive "$2" config crds | tar -x -C "$3"`, "sh", root, strings.TrimSpace(string(ref)), tree)
	out, err := unpack.CombinedOutput()
	gomega.Expect(err).NotTo(gomega.HaveOccurred(), "%s", out)
	return tree, manager
}

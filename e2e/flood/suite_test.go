// Package flood attacks the port of the webhook as anyone can who reaches it, without credentials, while the manager has the memory
// that it is installed with.
package flood

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
)

// What config/manager/deployment.yaml gives the manager.
const (
	memoryLimit = 1 << 30
	goMemLimit  = "921MiB"
)

var (
	h *harness.Harness
	// confined says that the kernel kills the manager above the limit; elsewhere its memory is measured.
	confined bool
)

func TestFlood(t *testing.T) {
	log.SetLogger(logr.Discard()) // there is a warning for each object; the first logger counts
	suite.Run(t, "A flood of reviews")
}

var _ = suite.OfFailures(func() *harness.Harness { return h })

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	h, err = harness.Start(ctx, harness.Options{Out: GinkgoWriter, ManagerArgs: []string{"--leader-elect=false"}})
	Expect(err).NotTo(HaveOccurred())
	group, remove := memoryGroup()
	confined = group != ""
	DeferCleanup(func() {
		Expect(h.Stop()).To(Succeed())
		remove()
	})
	// It joins the cgroup before it becomes the manager, which has the environment that it is installed with.
	script := fmt.Sprintf("#!/bin/sh\n[ -z %[1]q ] || echo $$ >%[1]q/cgroup.procs || exit 1\nunset GOGC\nGOMEMLIMIT=%[2]s exec %[3]q \"$@\"\n", group, goMemLimit, h.Program)
	h.Program = filepath.Join(h.Dir, "manager.sh")
	Expect(os.WriteFile(h.Program, []byte(script), 0o700)).To(Succeed())
	Expect(h.StartManager(ctx)).To(Succeed())
}, NodeTimeout(2*time.Minute))

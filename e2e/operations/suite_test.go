package operations

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
)

func TestOperations(t *testing.T) {
	suite.Run(t, "Operations")
}

const (
	none  = ""
	repel = "NoSchedule"
	evict = "NoExecute"
)

var w *fixture.World

var _ = suite.OfFailures(func() *harness.Harness { return w.Started() })

var _ = BeforeSuite(func(ctx SpecContext) {
	// One manager needs no election, and a restarted one would wait for the dead one's lease.
	w = fixture.Start(ctx, "--leader-elect=false")
})

var _ = AfterEach(func(ctx SpecContext) { w.CheckInvariants(ctx) })

// said is what a run of the plugin said.
type said struct {
	Code     int
	Out, Err string
}

// plugin runs the kubectl plugin as the admin.
func plugin(ctx context.Context, args ...string) said {
	GinkgoHelper()
	return pluginAs(ctx, w.Kubeconfig, args...)
}

func pluginAs(ctx context.Context, kubeconfig string, args ...string) said {
	GinkgoHelper()
	var out, errOut bytes.Buffer
	command := exec.CommandContext(ctx, filepath.Join(w.BinDir, "kubectl-autohealer"), append(args, "--kubeconfig="+kubeconfig)...)
	command.Stdout, command.Stderr = &out, &errOut
	err := command.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		Expect(err).NotTo(HaveOccurred(), "run `make build`")
	}
	got := said{command.ProcessState.ExitCode(), out.String(), errOut.String()}
	_, _ = fmt.Fprintf(GinkgoWriter, "$ kubectl autohealer %s\n%s%s", strings.Join(args, " "), got.Out, got.Err)
	return got
}

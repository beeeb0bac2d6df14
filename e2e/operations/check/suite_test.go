// Package check tests that kubectl autohealer check names exactly the part of an installation that is broken: each spec breaks
// one, on a real API server with a manager that works.
package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
)

func TestCheck(t *testing.T) {
	suite.Run(t, "Check")
}

var h *harness.Harness

var _ = suite.OfFailures(func() *harness.Harness { return h })

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	var err error
	h, err = harness.Start(ctx, harness.Options{Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(h.Stop()).To(Succeed()) })
	_, err = h.AddNodes(ctx, 3, cluster.NodeOptions{Prefix: "worker"})
	Expect(err).NotTo(HaveOccurred())
	Expect(h.StartManager(ctx)).To(Succeed())
	Expect(h.Deploy(ctx, harness.Namespace)).To(Succeed())
})

// Each spec finds the installation sound, and leaves it so.
var _ = BeforeEach(func(ctx SpecContext) { expectSound(ctx) })

func expectSound(ctx context.Context) {
	GinkgoHelper()
	Eventually(check).WithContext(ctx).WithArguments(h.Kubeconfig).Should(BeEmpty())
}

// mend applies the installation again, once the spec is over.
func mend() {
	GinkgoHelper()
	DeferCleanup(func(ctx SpecContext) {
		kubectl(ctx, "delete", "validatingwebhookconfiguration", "autohealer", "--ignore-not-found") // with what others put there
		Expect(h.Install(ctx)).To(Succeed())
	})
}

func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := h.Kubectl(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

// said is what a run of the plugin said.
type said struct {
	Code     int
	Out, Err string
}

func plugin(ctx context.Context, kubeconfig string, args ...string) said {
	GinkgoHelper()
	var out, errOut bytes.Buffer
	command := exec.CommandContext(ctx, filepath.Join(h.BinDir, "kubectl-autohealer"), append(args, "--kubeconfig="+kubeconfig)...)
	command.Stdout, command.Stderr = &out, &errOut
	err := command.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		Expect(err).NotTo(HaveOccurred(), "run `make build`")
	}
	return said{command.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// report is what the verb prints as JSON.
type report struct {
	APIVersion, Kind string
	Sound            bool
	Parts            []struct {
		Name, State, Looked, First string
		Findings                   []struct{ Message, Do string }
	}
}

// finding is one of a part that isn't sound.
type finding struct{ Part, State, First, Message, Do string }

// check gives all that isn't sound.
func check(ctx context.Context, kubeconfig string) ([]finding, error) {
	GinkgoHelper()
	got := plugin(ctx, kubeconfig, "check", "-o", "json")
	var r report
	if err := json.Unmarshal([]byte(got.Out), &r); err != nil {
		return nil, errors.New(got.Out + got.Err)
	}
	var found []finding
	for _, p := range r.Parts {
		if p.State != "Sound" {
			Expect(p.Looked).To(BeEmpty(), "what isn't sound isn't praised")
		}
		for _, f := range p.Findings {
			found = append(found, finding{p.Name, p.State, p.First, f.Message, f.Do})
		}
	}
	Expect(r.Sound).To(Equal(len(found) == 0))
	Expect(got.Code).To(Equal(map[bool]int{true: 0, false: 1}[r.Sound]))
	return found, nil
}

// broken gives the parts and messages of all that isn't sound.
func broken(ctx context.Context) ([]finding, error) { return check(ctx, h.Kubeconfig) }

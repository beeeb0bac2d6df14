package certificates

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
)

const (
	// settle is the managers' --cert-settle: far more than this API server takes to learn of a bundle.
	settle = 5 * time.Second
	// specTime bounds one spec; some replace every manager twice.
	specTime = 4 * time.Minute
)

var (
	h *harness.Harness
	// c is an admin's client that knows cert-manager's kinds.
	c client.Client
	// managers are those that run, behind a service that the API server calls.
	managers *service
)

func TestCertificates(t *testing.T) {
	suite.Run(t, "Serving certificates")
}

var _ = suite.OfFailures(func() *harness.Harness { return h })

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	h, err = harness.Start(ctx, harness.Options{
		Out: GinkgoWriter, ManagerArgs: []string{"--leader-elect", "--cert-settle=" + settle.String()},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return h.Stop() })
	scheme := harness.Scheme()
	Expect(cmv1.AddToScheme(scheme)).To(Succeed())
	c, err = client.New(h.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	managers, err = newService()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(managers.close)
	kubectl(ctx, "patch", "validatingwebhookconfiguration", "autohealer", "--type=json", "-p",
		`[{"op":"replace","path":"/webhooks/0/clientConfig/url","value":"https://`+managers.address()+`/validate"}]`)
	kubectl(ctx, "apply", "-f", filepath.Join(h.Root(), "config", "certmanager", "component", "manager_role.yaml"))
}, NodeTimeout(specTime))

var _ = AfterEach(func() {
	if CurrentSpecReport().Failed() {
		for _, name := range managers.names() {
			text, err := os.ReadFile(h.Log(name))
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			GinkgoWriter.Printf("%s: %v\n%s\n", name, err, strings.Join(lines[max(0, len(lines)-30):], "\n"))
		}
	}
})

func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	output, err := h.Kubectl(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
	return output
}

// definitions is the directory of cert-manager's CRDs, in the module that this one depends on.
func definitions(ctx context.Context) string {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager")
	output, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		Expect(string(exit.Stderr)).To(BeEmpty())
	}
	Expect(err).NotTo(HaveOccurred())
	return filepath.Join(strings.TrimSpace(string(output)), "deploy", "crds")
}

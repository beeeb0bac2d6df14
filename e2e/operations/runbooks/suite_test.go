// Package runbooks drills the pages of docs/runbooks: what an alert is about is brought about, its metric says so, the page's
// commands show what the page shows, and what the page says to do ends it.
package runbooks

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/operations/world"
	"github.com/resourcestack/autohealer/e2e/page"
	"github.com/resourcestack/autohealer/e2e/timings"
)

func TestRunbooks(t *testing.T) {
	suite.Run(t, "Runbooks")
}

var (
	h *world.World
	// token of who may read metrics.
	token string
)

var _ = suite.OfFailures(func() *harness.Harness { return h.Started() })

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	// With --cert-settle, one that finds another CA trusted beside its own, as after the drill of certificates, needn't wait for long.
	started, err := harness.Start(ctx, harness.Options{Out: GinkgoWriter, Timings: timings.OfSuites(), ManagerArgs: []string{"--probe-loopback", "--cert-settle=1s"}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(started.Stop()).To(Succeed()) })
	h = world.On(started)
	_, err = h.AddNodes(ctx, 12, cluster.NodeOptions{Prefix: "worker"})
	Expect(err).NotTo(HaveOccurred())
	Expect(h.StartManager(ctx)).To(Succeed())
	Expect(h.Deploy(ctx, harness.Namespace)).To(Succeed())
	token, err = h.Scraper(ctx)
	Expect(err).NotTo(HaveOccurred())

	set := fixture.NewSet("kernel-deadlock", "example.com/kernel-deadlock", "NoSchedule", "KernelDeadlock")
	set.Spec.Type = "KernelDeadlock"
	Expect(h.Client.Create(ctx, set)).To(Succeed())
	Eventually(scrape).WithContext(ctx).Should(ContainSubstring("\n" + `autohealer_conditionset_nodes{policy="kernel-deadlock",state="selected"} 12` + "\n"))
})

// first is the number of the node that falls sick first: 0 for the pages that name one. One and the same node in each drill would flap.
var first int

func worker(i int) string { return fmt.Sprintf("worker-%d", (first+i)%12) }

// sick turns so many nodes sick, and all others healthy.
func sick(ctx context.Context, n int) {
	GinkgoHelper()
	for i := range 12 {
		status := "False"
		if i < n {
			status = "True"
		}
		_, err := h.Kubectl(ctx, "patch", "node", worker(i), "--subresource=status", "-p",
			`{"status":{"conditions":[{"type":"KernelDeadlock","status":"`+status+`","lastHeartbeatTime":"`+time.Now().UTC().Format(time.RFC3339)+`"}]}}`)
		Expect(err).NotTo(HaveOccurred())
	}
}

// scrape reads the manager's metrics as Prometheus does.
func scrape(ctx context.Context) (string, error) { return h.Scrape(ctx, harness.Manager, token) }

// value is that of one of the manager's series.
func value(ctx context.Context, series string) (float64, error) {
	text, err := scrape(ctx)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if number, is := strings.CutPrefix(line, series+" "); is {
			return strconv.ParseFloat(strings.TrimSpace(number), 64)
		}
	}
	return 0, fmt.Errorf("the manager has no series %s", series)
}

// scrapeServer reads the API server's metrics.
func scrapeServer(ctx context.Context) (string, error) {
	c, err := rest.HTTPClientFor(h.Config)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+"/metrics", nil)
	if err != nil {
		return "", err
	}
	response, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("read metrics: %s", response.Status)
	}
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := h.Kubectl(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

// expectSound is for what a page says to do: afterwards all is well.
func expectSound(ctx context.Context) {
	GinkgoHelper()
	Eventually(run).WithContext(ctx).WithArguments(check).Should(HaveSuffix("The installation is sound.\n"))
}

// expectPage runs a command that a page shows until it prints what the page shows.
func expectPage(ctx context.Context, name, command string) {
	GinkgoHelper()
	p, err := page.Read(h.Root(), "docs/runbooks/"+name)
	Expect(err).NotTo(HaveOccurred())
	for _, c := range p.Commands() {
		if c.Text == command {
			expectCommand(ctx, c)
			return
		}
	}
	Fail(name + " has no command " + command)
}

// expectWholePage runs a page's commands, one after the other.
func expectWholePage(ctx context.Context, name string) {
	GinkgoHelper()
	p, err := page.Read(h.Root(), "docs/runbooks/"+name)
	Expect(err).NotTo(HaveOccurred())
	Expect(p.Commands()).NotTo(BeEmpty(), name)
	for _, c := range p.Commands() {
		expectCommand(ctx, c)
	}
}

func expectCommand(ctx context.Context, c page.Command) {
	GinkgoHelper()
	Eventually(func() string { return c.Differs(run(ctx, c.Text)) }).WithContext(ctx).Should(BeEmpty())
}

// run runs one of the page's commands as it stands there. What it exits with says whether somebody must look.
func run(ctx context.Context, command string) string {
	// The manager is no pod here: its log is a file.
	script := strings.ReplaceAll(command, "kubectl -n autohealer-system logs deployment/autohealer-manager --all-pods --tail=-1", "cat '"+h.Log(harness.Manager)+"'")
	reader := page.Reader{Dir: h.Root(), Env: []string{"KUBECONFIG=" + h.Kubeconfig, "PATH=" + h.BinDir + ":" + os.Getenv("PATH"), "KUBECACHEDIR=" + h.Dir}}
	said, err := reader.Run(ctx, script, "")
	AddReportEntry(command, fmt.Sprint(said, err))
	return said
}

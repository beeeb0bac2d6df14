// Package gitops is what the suites of Argo CD and of Flux share: a control plane where kwok plays the manager's pods, a Git repository, and the manager that
// works, a process that the API server calls by a URL.
package gitops

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/gardener"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/page"
)

const (
	root = "../../.."
	// Manager is the one that works.
	Manager cluster.Component = "manager"
)

// World is a cluster that has nothing of Autohealer yet, and the repository that a tool installs it from.
type World struct {
	*cluster.Cluster
	Admin client.Client
	// Repository is the Git repository's folder.
	Repository string
	// Guide is the tool's page and Concept that about all of them, whose files are applied as they are printed.
	Guide, Concept *page.Page

	node        string
	webhookPort int
}

// Start is for BeforeSuite; the suite is skipped where its tool isn't built, which a target of make does.
func Start(ctx context.Context, program, target, guide string) *World {
	ginkgo.GinkgoHelper()
	gomega.SetDefaultEventuallyTimeout(time.Minute) // these tools try again after five seconds, after ten, and after twenty
	gomega.SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	bin, err := cluster.BinDir()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
		ginkgo.Skip(fmt.Sprintf("there is no bin/%s: make %s builds it", program, target))
	}
	c, err := cluster.Start(ctx, cluster.Options{ControllerManager: true, Scheduler: true, Kwok: true, Out: ginkgo.GinkgoWriter})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(c.Stop)
	w := &World{Cluster: c, Repository: filepath.Join(c.Dir, "git", "cluster")}
	w.Admin, err = client.New(c.Config, client.Options{Scheme: harness.Scheme()})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	nodes, err := c.AddNodes(ctx, 4, cluster.NodeOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	w.node = nodes[0]
	w.Guide, err = page.Read(root, guide)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	w.Concept, err = page.Read(root, "docs/concepts/gitops.md")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	w.webhookPort, err = cluster.FreePort()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(w.Apply(ctx, gardener.Definitions)).To(gomega.Succeed()) // what samples are about
	gomega.Expect(os.MkdirAll(w.Repository, 0o700)).To(gomega.Succeed())
	w.Git(ctx, "init", "--quiet", "--initial-branch=main")
	return w
}

// StartProgram starts a program of the tool.
func (w *World) StartProgram(ctx context.Context, name cluster.Component, ready func(context.Context) error, command ...string) {
	ginkgo.GinkgoHelper()
	gomega.Expect(w.AddProgram(name, command[0], command[1:], ready)).To(gomega.Succeed())
	gomega.Expect(w.StartComponent(ctx, name)).To(gomega.Succeed())
}

// notInAPod has the API server call the manager by a URL, and pods that aren't ready before it is.
const notInAPod = `
patches:
- target: {kind: ValidatingWebhookConfiguration, name: autohealer}
  patch: |
    - {op: remove, path: /webhooks/0/clientConfig/service}
    - {op: add, path: /webhooks/0/clientConfig/url, value: "%s"}
- target: {kind: Deployment, name: autohealer-manager}
  patch: |
    - {op: add, path: /spec/template/metadata/labels/autohealer.test~1unready, value: "true"}
`

// Patches belong into the kustomization.yaml beside install.yaml.
func (w *World) Patches() string { return fmt.Sprintf(notInAPod, w.WebhookURL()) }

// WebhookURL is where the API server calls the manager.
func (w *World) WebhookURL() string {
	return fmt.Sprintf("https://127.0.0.1:%d/validate", w.webhookPort)
}

const pods = "app.kubernetes.io/component=manager"

// ExpectPods waits until the manager's pods are there, which aren't ready.
func (w *World) ExpectPods(ctx context.Context) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, func() string { return w.Run(ctx, "get", "pods", "-n", harness.Namespace, "-l", pods, "-o", "name") }).ShouldNot(gomega.BeEmpty())
}

// StartManager starts the manager by the account that the tool has made; then the pods that play it are ready.
func (w *World) StartManager(ctx context.Context) {
	ginkgo.GinkgoHelper()
	kubeconfig, err := w.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	clientCA := filepath.Join(w.Dir, "envoys.crt")
	gomega.Expect(os.WriteFile(clientCA, envoy.NewAuthority(ginkgo.GinkgoTB()).PEM(), 0o600)).To(gomega.Succeed())
	health := cluster.FreeAddress()
	w.StartProgram(ctx, Manager, cluster.HTTPReady("http://"+health+"/readyz"), filepath.Join(w.BinDir, "manager"),
		"--kubeconfig="+kubeconfig, "--namespace="+harness.Namespace, "--webhook-host=127.0.0.1", fmt.Sprintf("--webhook-port=%d", w.webhookPort),
		"--health-probe-bind-address="+health, "--metrics-bind-address=0", "--cert-settle=1s", "--probe-loopback",
		"--xds-bind-address="+cluster.FreeAddress(), "--xds-client-ca="+clientCA, "--xds-client=spiffe://example.org/edge=*")
	w.ReadyPods(ctx)
}

// ReadyPods has all pods ready that play the manager.
func (w *World) ReadyPods(ctx context.Context) {
	ginkgo.GinkgoHelper()
	w.Run(ctx, "label", "pods", "-n", harness.Namespace, "-l", pods, "autohealer.test/unready-")
}

// Run runs kubectl as the cluster's admin.
func (w *World) Run(ctx context.Context, args ...string) string {
	ginkgo.GinkgoHelper()
	said, err := w.Kubectl(ctx, args...)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return said
}

// Shell runs what a page has its readers run.
func (w *World) Shell(ctx context.Context, script string) (string, error) {
	return page.Reader{Dir: w.Dir, Env: []string{"PATH=" + w.BinDir + ":" + os.Getenv("PATH"), "KUBECONFIG=" + w.Kubeconfig}}.Run(ctx, script, "")
}

// Apply applies manifests as whoever has set up the cluster does.
func (w *World) Apply(ctx context.Context, manifests string) error {
	_, err := w.KubectlWithInput(ctx, strings.NewReader(manifests), "apply", "--server-side", "--force-conflicts", "-f", "-")
	return err
}

// Refusal is what the API server says of a policy, in the words that a tool's field manager sees.
func (w *World) Refusal(ctx context.Context, policy, fieldManager string) string {
	ginkgo.GinkgoHelper()
	_, err := w.KubectlWithInput(ctx, strings.NewReader(policy), "apply", "--server-side", "--field-manager="+fieldManager, "--dry-run=server", "-f", "-")
	gomega.Expect(err).To(gomega.HaveOccurred())
	_, sentence, denied := strings.Cut(strings.TrimSpace(err.Error()), " request: ")
	gomega.Expect(denied).To(gomega.BeTrue(), err.Error())
	return sentence
}

// Commit commits files; one without text is removed.
func (w *World) Commit(ctx context.Context, files map[string]string) {
	ginkgo.GinkgoHelper()
	for name, text := range files {
		if text == "" {
			gomega.Expect(os.Remove(filepath.Join(w.Repository, name))).To(gomega.Succeed())
		} else {
			Write(w.Repository, name, text)
		}
	}
	w.Git(ctx, "add", "--all")
	w.Git(ctx, "-c", "user.name=e2e", "-c", "user.email=e2e@example.org", "commit", "--quiet", "--message=e2e")
}

// Head is the newest commit.
func (w *World) Head(ctx context.Context) string {
	ginkgo.GinkgoHelper()
	return strings.TrimSpace(w.Git(ctx, "rev-parse", "HEAD"))
}

// Git runs git in the repository, as if this machine's user had configured nothing.
func (w *World) Git(ctx context.Context, args ...string) string {
	ginkgo.GinkgoHelper()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", w.Repository}, args...)...)
	others := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "GIT_") }) // which may name another repository, as in a hook
	cmd.Env = append(others, "GIT_CONFIG_GLOBAL=/dev/null")
	said, err := cmd.CombinedOutput()
	gomega.Expect(err).NotTo(gomega.HaveOccurred(), string(said))
	return string(said)
}

// Report says whether the first node has a problem.
func (w *World) Report(ctx context.Context, condition corev1.NodeConditionType, status corev1.ConditionStatus) {
	ginkgo.GinkgoHelper()
	gomega.Expect(w.SetCondition(ctx, w.node, condition, status, cluster.ConditionOptions{})).To(gomega.Succeed())
}

// Taints are the keys of the first node's.
func (w *World) Taints(ctx context.Context) (keys []string, err error) {
	var node corev1.Node
	err = w.Admin.Get(ctx, client.ObjectKey{Name: w.node}, &node)
	for _, t := range node.Spec.Taints {
		keys = append(keys, t.Key)
	}
	return keys, err
}

// Set taints nodes that are Broken, with a key of its own.
func Set(name string) string {
	return `apiVersion: autohealer.resourcestack.com/v1alpha1
kind: ConditionSet
metadata:
  name: ` + name + `
spec:
  type: Broken
  effect: NoSchedule
  taintKey: example.com/` + name + `
  conditions: {Broken: {status: true}}
`
}

// Unnamed is a Guardrail that refuses sets whose names begin so.
func Unnamed(prefix string) string {
	return `apiVersion: autohealer.resourcestack.com/v1alpha1
kind: Guardrail
metadata: {name: only}
spec:
  rules:
  - name: named
    kinds: [ConditionSet]
    severity: Deny
    expression: "!object.metadata.name.startsWith('` + prefix + `')"
    messageExpression: "'call it another name'"
    exceptable: true
`
}

// ExceptionFor is what the command of docs/how-to/exceptions.md writes for a policy that rules refuse, with a reason.
func (w *World) ExceptionFor(ctx context.Context, rules, policy string) string {
	ginkgo.GinkgoHelper()
	dir := ginkgo.GinkgoT().TempDir()
	Write(dir, "policy.yaml", policy)
	Write(dir, "rules.yaml", rules)
	hash := exec.CommandContext(ctx, filepath.Join(w.BinDir, "kubectl-autohealer"), "hash", "-f", "policy.yaml", "--rules", "rules.yaml", "-o", "exception")
	hash.Dir = dir
	exception, err := hash.Output()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return strings.Replace(string(exception), `reason: ""`, "reason: The name is older than the rule, OPS-1234.", 1)
}

// Until ends an exception earlier.
func Until(exception string, end time.Time) string {
	return regexp.MustCompile("expiresAt: .*").ReplaceAllString(exception, "expiresAt: "+end.UTC().Format(time.RFC3339))
}

// Write writes a file.
func Write(dir, name, text string) {
	ginkgo.GinkgoHelper()
	path := filepath.Join(dir, name)
	gomega.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(gomega.Succeed())
	gomega.Expect(os.WriteFile(path, []byte(text), 0o600)).To(gomega.Succeed())
}

// Path is that of something in this repository.
func Path(name string) string {
	ginkgo.GinkgoHelper()
	path, err := filepath.Abs(filepath.Join(root, name))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return path
}

// Files are those of this repository that match, by their base names.
func Files(pattern string) map[string]string {
	ginkgo.GinkgoHelper()
	found, err := filepath.Glob(Path(pattern))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	files := map[string]string{}
	for _, file := range found {
		text, err := os.ReadFile(file)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		files[filepath.Base(file)] = string(text)
	}
	gomega.Expect(files).NotTo(gomega.BeEmpty(), pattern)
	return files
}

// File is one of this repository.
func File(name string) string {
	ginkgo.GinkgoHelper()
	return Files(name)[filepath.Base(name)]
}

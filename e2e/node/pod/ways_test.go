//go:build linux

package pod

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/page"
)

const (
	registry = "autohealer.test"
	image    = registry + "/manager"
)

// way is one of docs/how-to/install.md to install Autohealer, and one of docs/how-to/uninstall.md to be rid of it.
type way interface {
	install(ctx context.Context)
	uninstall(ctx context.Context)
}

// machine is what this one takes in all ways: one replica on the one real node, in its network, with ports of its own, and an API server
// that no Service leads to.
type machine struct {
	webhook, metrics, probes int
	apiServer                *url.URL
}

func newMachine() (m machine) {
	GinkgoHelper()
	var err error
	for _, port := range []*int{&m.webhook, &m.metrics, &m.probes} {
		*port, err = cluster.FreePort()
		Expect(err).NotTo(HaveOccurred())
	}
	m.apiServer, err = url.Parse(c.URL)
	Expect(err).NotTo(HaveOccurred())
	return m
}

// kustomized is config/default under the overlay of the install page, with what it says of nodes' networks; the plugin uninstalls it.
type kustomized struct{ dir, overlay string }

func byKustomize() way { return newKustomized() }

func newKustomized() *kustomized {
	GinkgoHelper()
	dir, err := filepath.EvalSymlinks(c.Dir) // which goes also when this program is killed
	Expect(err).NotTo(HaveOccurred())
	dir, err = os.MkdirTemp(dir, "overlay-")
	Expect(err).NotTo(HaveOccurred())
	p, err := page.Read(root, "docs/how-to/install.md")
	Expect(err).NotTo(HaveOccurred())
	var overlay strings.Builder
	for _, b := range p.Blocks {
		if b.File == "kustomization.yaml" {
			overlay.WriteString(b.Text)
		}
	}
	overlay.WriteString("- target: {kind: Deployment, name: autohealer-manager}\n  patch: |\n")
	patch := func(op, path, value string) {
		fmt.Fprintf(&overlay, "    - {op: %s, path: %s, value: %s}\n", op, path, value)
	}
	patch("replace", "/spec/replicas", "1")
	patch("add", "/spec/template/spec/nodeSelector/kubernetes.io~1hostname", real.Name)
	const container = "/spec/template/spec/containers/0"
	m := newMachine()
	for i, port := range []struct {
		flag   string
		number int
	}{{"--webhook-port=%d", m.webhook}, {"--metrics-bind-address=:%d", m.metrics}, {"--health-probe-bind-address=:%d", m.probes}} {
		patch("add", container+"/args/-", fmt.Sprintf(port.flag, port.number))
		patch("replace", fmt.Sprintf("%s/ports/%d/containerPort", container, i), fmt.Sprint(port.number))
	}
	patch("add", container+"/env/-", fmt.Sprintf("{name: KUBERNETES_SERVICE_HOST, value: %s}", m.apiServer.Hostname()))
	patch("add", container+"/env/-", fmt.Sprintf("{name: KUBERNETES_SERVICE_PORT, value: %q}", m.apiServer.Port()))
	return &kustomized{dir, strings.ReplaceAll(overlay.String(), "images.example.org/platform/autohealer", image)}
}

// write has the overlay lie on a base, with the image's tag.
func (k *kustomized) write(base, tag string) {
	GinkgoHelper()
	overlay := strings.NewReplacer("../autohealer/config/default", base, "newTag: v0.1.0", "newTag: "+tag).Replace(k.overlay)
	Expect(os.WriteFile(filepath.Join(k.dir, "kustomization.yaml"), []byte(overlay), 0o600)).To(Succeed())
}

func (k *kustomized) install(ctx context.Context) { k.apply(ctx, root, thisTag) }

// apply installs the version that a tree has, or replaces another by it.
func (k *kustomized) apply(ctx context.Context, tree, tag string) {
	GinkgoHelper()
	base, err := filepath.Rel(k.dir, filepath.Join(tree, "config", "default")) // kustomize takes no absolute path
	Expect(err).NotTo(HaveOccurred())
	k.write(base, tag)
	kubectl(ctx, "apply", "-k", k.dir)
}

func (*kustomized) uninstall(ctx context.Context) {
	GinkgoHelper()
	Expect(byPlugin(ctx)).To(And(ContainSubstring("node/"+ballast[1]+": taint "+taintKey+":NoSchedule removed"), nothingLeft))
}

// byPlugin takes away all that there is.
func byPlugin(ctx context.Context) (string, error) {
	said, err := exec.CommandContext(ctx, filepath.Join(c.BinDir, "kubectl-autohealer"), "uninstall", "--yes", "--kubeconfig="+c.Kubeconfig).CombinedOutput()
	GinkgoWriter.Printf("%s", said)
	return string(said), err
}

var nothingLeft = HaveSuffix("Nothing of Autohealer is left.\n")

// manifest is what make install-manifest writes, under the same patches; kubectl uninstalls it, without the plugin.
type manifest struct{ file string }

func byManifest() way {
	GinkgoHelper()
	k := newKustomized()
	k.write("install.yaml", thisTag)
	out, err := exec.Command("go", "run", "-C", filepath.Join(root, "hack", "gen-chart"), ".", "--root", root, "--manifest", filepath.Join(k.dir, "install.yaml"), "--image", image+":"+thisTag).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	m := &manifest{filepath.Join(k.dir, "patched.yaml")}
	Expect(os.WriteFile(m.file, []byte(kubectl(context.Background(), "kustomize", k.dir)), 0o600)).To(Succeed())
	return m
}

func (m *manifest) install(ctx context.Context) { kubectl(ctx, "apply", "-f", m.file) }

func (m *manifest) uninstall(ctx context.Context) {
	GinkgoHelper()
	deletePolicies(ctx)
	kubectl(ctx, "delete", "-f", m.file)
}

// deletePolicies is the command of the uninstall page.
func deletePolicies(ctx context.Context) {
	GinkgoHelper()
	kubectl(ctx, "delete", "conditionsets,healthcheckregistrations,outlierpolicies,probeconfigs,weederconfigs", "--all", "-A")
}

// chart is a release of it. Helm doesn't uninstall it while a policy is stored, and leaves the kinds to the plugin.
type chart struct{ values string }

func byHelm() way {
	GinkgoHelper()
	if _, err := os.Stat(filepath.Join(c.BinDir, "helm")); err != nil {
		Skip("there is no bin/helm: make helm builds it, and make test-clients runs this")
	}
	m := newMachine()
	h := &chart{filepath.Join(c.Dir, "values.yaml")}
	Expect(os.WriteFile(h.values, fmt.Appendf(nil, `
image: {registry: %s, repository: manager, tag: %s}
replicas: 1
nodeSelector: {kubernetes.io/hostname: %s}
hostNetwork: true
ports: {webhook: %d, metrics: %d, probes: %d}
extraEnv:
- {name: KUBERNETES_SERVICE_HOST, value: %s}
- {name: KUBERNETES_SERVICE_PORT, value: %q}
`, registry, thisTag, real.Name, m.webhook, m.metrics, m.probes, m.apiServer.Hostname(), m.apiServer.Port()), 0o600)).To(Succeed())
	return h
}

func (h *chart) install(ctx context.Context) {
	GinkgoHelper()
	out, err := helm(ctx, "install", "autohealer", filepath.Join(root, "charts", "autohealer"), "--create-namespace", "--values="+h.values)
	Expect(err).NotTo(HaveOccurred(), out)
}

func (h *chart) uninstall(ctx context.Context) {
	GinkgoHelper()
	out, err := helm(ctx, "uninstall", "autohealer")
	Expect(err).To(HaveOccurred(), out)
	Expect(out).To(And(ContainSubstring("Autohealer isn't uninstalled: 1 policy is stored."), ContainSubstring("ConditionSet broken")), "Helm prints the check's log")
	_, err = managerPod(ctx)
	Expect(err).NotTo(HaveOccurred(), "the manager stays")
	Expect(effect(ctx, ballast[1])()).To(Equal(sick), "and so does what it did")

	deletePolicies(ctx)
	out, err = helm(ctx, "uninstall", "autohealer")
	Expect(err).NotTo(HaveOccurred(), out)
	Expect(kubectl(ctx, "get", "crd", "-o", "name")).To(ContainSubstring("conditionsets.autohealer.resourcestack.com"), "the kinds stay")
	// Its rights go before the manager, which leads by its Lease until that ends.
	Eventually(byPlugin).WithContext(ctx).WithTimeout(time.Minute).WithPolling(time.Second).Should(nothingLeft)
	kubectl(ctx, "delete", "namespace", harness.Namespace) // nothing but its label could tell that it is ours
}

func helm(ctx context.Context, args ...string) (string, error) {
	return c.Helm(ctx, "helm", append(args, "--namespace="+harness.Namespace)...)
}

func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := c.Kubectl(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

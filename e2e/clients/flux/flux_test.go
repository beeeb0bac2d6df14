package flux

import (
	"context"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// repository is what Flux reads, and url where.
var repository, url string

func serveRepository(ctx SpecContext) {
	GinkgoHelper()
	repository = filepath.Join(c.Dir, "git", "cluster")
	Expect(os.MkdirAll(repository, 0o700)).To(Succeed())
	git(ctx, "init", "--quiet", "--initial-branch=main")
	server := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(git(ctx, "--exec-path")), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(repository), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null"},
	})
	DeferCleanup(server.Close)
	url = server.URL + "/cluster/.git"
}

// commit commits files; one without text is removed. Flux learns of it as by a webhook.
func commit(ctx SpecContext, files map[string]string) {
	GinkgoHelper()
	for name, text := range files {
		if text == "" {
			Expect(os.Remove(filepath.Join(repository, name))).To(Succeed())
		} else {
			write(repository, name, text)
		}
	}
	git(ctx, "add", "--all")
	git(ctx, "-c", "user.name=e2e", "-c", "user.email=e2e@example.org", "commit", "--quiet", "--message=e2e")
	kubectl(ctx, "annotate", "gitrepository", "--all", "-n", "flux-system", "--overwrite", requestedAt())
}

// requestedAt is the annotation that has Flux look at an object now.
func requestedAt() string {
	return "reconcile.fluxcd.io/requestedAt=" + time.Now().Format(time.RFC3339Nano)
}

func git(ctx context.Context, args ...string) string {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", repository}, args...)...)
	ours := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "GIT_") }) // which may name another repository, as in a hook
	cmd.Env = append(ours, "GIT_CONFIG_GLOBAL=/dev/null")
	said, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(said))
	return string(said)
}

// kustomization is one of Flux's, by its name.
type kustomization string

func (k kustomization) get(ctx context.Context) (*unstructured.Unstructured, error) {
	return object(ctx, schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}, "flux-system", string(k))
}

// reconcile has Flux apply it once more.
func (k kustomization) reconcile(ctx SpecContext) {
	GinkgoHelper()
	kubectl(ctx, "annotate", "kustomization", string(k), "-n", "flux-system", "--overwrite", requestedAt())
	Eventually(ctx, k.state).Should(beReady())
}

// state is what kstatus makes of it, and what its Ready condition says, once Flux has tried the newest commit, and what was asked for since.
func (k kustomization) state(ctx context.Context) (string, error) {
	is, err := k.get(ctx)
	if err != nil {
		return "", err
	}
	tried, _, _ := unstructured.NestedString(is.Object, "status", "lastAttemptedRevision")
	handled, _, _ := unstructured.NestedString(is.Object, "status", "lastHandledReconcileAt")
	if tried != "main@sha1:"+strings.TrimSpace(git(ctx, "rev-parse", "HEAD")) || handled != is.GetAnnotations()["reconcile.fluxcd.io/requestedAt"] {
		return "not tried yet", nil
	}
	return stateOf(is)
}

// stateOf is what kstatus makes of an object, and what its Ready condition says.
func stateOf(is *unstructured.Unstructured) (string, error) {
	computed, err := status.Compute(is)
	if err != nil {
		return "", err
	}
	object, err := status.GetObjectWithConditions(is.Object)
	if err != nil {
		return "", err
	}
	for _, condition := range object.Status.Conditions {
		if condition.Type == "Ready" {
			return computed.Status.String() + ", Ready=" + string(condition.Status) + ": " + condition.Message, nil
		}
	}
	return computed.Status.String(), nil
}

// beReady matches the state of what is.
func beReady() OmegaMatcher { return HavePrefix("Current, Ready=True: ") }

func object(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(kind)
	return is, admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, is)
}

// apply applies manifests as whoever has set up the cluster does.
func apply(ctx SpecContext, manifests string) {
	GinkgoHelper()
	_, err := c.KubectlWithInput(ctx, strings.NewReader(manifests), "apply", "--server-side", "--force-conflicts", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
}

func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	said, err := c.Kubectl(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
	return said
}

func write(dir, name, text string) {
	GinkgoHelper()
	path := filepath.Join(dir, name)
	Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
}

// read is a file of this repository.
func read(name string) string {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(root, name))
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// report says whether the node is Broken.
func report(ctx SpecContext, is corev1.ConditionStatus) {
	GinkgoHelper()
	Expect(c.SetCondition(ctx, node, "Broken", is, cluster.ConditionOptions{})).To(Succeed())
}

// taints are the keys of the node's.
func taints(ctx context.Context) (keys []string, err error) {
	var n corev1.Node
	err = admin.Get(ctx, client.ObjectKey{Name: node}, &n)
	for _, t := range n.Spec.Taints {
		keys = append(keys, t.Key)
	}
	return keys, err
}

package argocd

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// application is one of Argo CD's, and the folder of the Git repository that it syncs.
type application string

// inSync is the state of an Application that has all of the newest commit.
const inSync = "Synced and Healthy"

// create creates it with changes, and removes it and all that is its own in the end. But for them it is that of docs/how-to/argo-cd.md.
func (a application) create(ctx SpecContext, changes ...func(*unstructured.Unstructured)) {
	GinkgoHelper()
	text, err := howTo.File("application.yaml")
	Expect(err).NotTo(HaveOccurred())
	var object unstructured.Unstructured
	Expect(yaml.UnmarshalStrict([]byte(text), &object.Object)).To(Succeed())
	object.SetName(string(a))
	for _, change := range append(changes, with("file://"+repository(), "spec", "source", "repoURL"), with(string(a), "spec", "source", "path")) {
		change(&object)
	}
	Expect(admin.Create(ctx, &object)).To(Succeed())
	DeferCleanup(a.delete)
}

// with changes a field.
func with(value any, fields ...string) func(*unstructured.Unstructured) {
	return func(object *unstructured.Unstructured) {
		GinkgoHelper()
		Expect(unstructured.SetNestedField(object.Object, value, fields...)).To(Succeed())
	}
}

func (a application) delete(ctx SpecContext) {
	GinkgoHelper()
	kubectl(ctx, "delete", "application", "-n", "argocd", string(a), "--ignore-not-found", "--timeout=1m")
}

// commit commits files of its folder; one without text is removed. Argo CD learns of it as by a webhook.
func (a application) commit(ctx SpecContext, files map[string]string) {
	GinkgoHelper()
	for name, text := range files {
		if text == "" {
			Expect(os.Remove(filepath.Join(repository(), string(a), name))).To(Succeed())
		} else {
			write(filepath.Join(repository(), string(a)), name, text)
		}
	}
	git(ctx, "add", "--all")
	git(ctx, "-c", "user.name=e2e", "-c", "user.email=e2e@example.org", "commit", "--quiet", "--message="+string(a))
	a.refresh(ctx, "normal")
}

// refresh has it compared anew; a hard one doesn't believe what Argo CD remembers of the repository.
func (a application) refresh(ctx SpecContext, how string) {
	GinkgoHelper()
	kubectl(ctx, "annotate", "application", "-n", "argocd", "--all", "--overwrite", "argocd.argoproj.io/refresh="+how)
	Eventually(ctx, func(ctx context.Context) (string, error) {
		return c.Kubectl(ctx, "get", "application", "-n", "argocd", "-o", `jsonpath={.items[*].metadata.annotations.argocd\.argoproj\.io/refresh}`)
	}).Should(BeEmpty())
}

// status is what specs look at of an Application's.
type status struct {
	Sync   struct{ Status, Revision string }
	Health struct{ Status string }
	// OperationState is of the last sync.
	OperationState struct {
		Phase, Message string
		RetryCount     int
	}
	Resources []struct {
		Kind, Name, Status string
		Health             struct{ Status, Message string }
	}
	History []any
}

func (a application) status(ctx context.Context) (status, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Application"})
	if err := admin.Get(ctx, client.ObjectKey{Namespace: "argocd", Name: string(a)}, object); err != nil {
		return status{}, err
	}
	text, err := json.Marshal(object.Object["status"])
	if err != nil {
		return status{}, err
	}
	var is status
	return is, json.Unmarshal(text, &is)
}

// state is how Argo CD's list shows it.
func (a application) state(ctx context.Context) (string, error) {
	is, err := a.status(ctx)
	if err != nil {
		return "", err
	}
	if is.Sync.Revision != strings.TrimSpace(git(ctx, "rev-parse", "HEAD")) {
		return "not compared with the newest commit", nil
	}
	return is.Sync.Status + " and " + is.Health.Status, nil
}

// message is what the last sync ended with.
func (a application) message(ctx context.Context) (string, error) {
	is, err := a.status(ctx)
	return is.OperationState.Message, err
}

// health is that of one of its resources, with what its script says.
func (a application) health(ctx context.Context, kind string) (string, error) {
	is, err := a.status(ctx)
	for _, r := range is.Resources {
		if r.Kind == kind {
			return r.Health.Status + ": " + r.Health.Message, err
		}
	}
	return "none", err
}

// repository is where all of them have their folders.
func repository() string { return filepath.Join(c.Dir, "git") }

func git(ctx context.Context, args ...string) string {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", repository()}, args...)...)
	ours := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "GIT_") }) // which may name another repository, as in a hook
	cmd.Env = append(ours, "GIT_CONFIG_GLOBAL=/dev/null")
	said, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(said))
	return string(said)
}

func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	said, err := c.Kubectl(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
	return said
}

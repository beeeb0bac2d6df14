package argocd

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/kinds"
)

// application is one of Argo CD's, and the folder of the Git repository that it syncs.
type application string

// inSync is the state of an Application that has all of the newest commit.
const inSync = "Synced and Healthy"

// create creates it with changes, and removes it and all that is its own in the end. But for them it is that of docs/how-to/argo-cd.md.
func (a application) create(ctx SpecContext, changes ...func(*unstructured.Unstructured)) {
	GinkgoHelper()
	text, err := w.Guide.File("application.yaml")
	Expect(err).NotTo(HaveOccurred())
	var object unstructured.Unstructured
	Expect(yaml.UnmarshalStrict([]byte(text), &object.Object)).To(Succeed())
	object.SetName(string(a))
	for _, change := range append(changes, with("file://"+w.Repository, "spec", "source", "repoURL"), with(string(a), "spec", "source", "path")) {
		change(&object)
	}
	Expect(w.Admin.Create(ctx, &object)).To(Succeed())
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
	_, err := w.Kubectl(ctx, "delete", "application", "-n", "argocd", string(a), "--ignore-not-found", "--timeout=1m")
	Expect(err).NotTo(HaveOccurred(), func() string { return evidence(ctx) })
}

// evidence is what tells why an Application isn't as it should be, or isn't gone: most of it is gone with the control plane.
func evidence(ctx context.Context) string {
	say := func(what ...string) string {
		said, err := w.Kubectl(ctx, append([]string{"get", "-o", "yaml"}, what...)...)
		return fmt.Sprintln(said, err)
	}
	return say("applications", "-n", "argocd") + say(strings.Join(kinds.Names(kinds.All), ","), "-A") + w.LogTail(controller, 40) + "\nlogs stay in " + w.KeepLogs()
}

// commit commits files of its folder; one without text is removed. Argo CD learns of it as by a webhook.
func (a application) commit(ctx SpecContext, files map[string]string) {
	GinkgoHelper()
	inFolder := map[string]string{}
	for name, text := range files {
		inFolder[filepath.Join(string(a), name)] = text
	}
	w.Commit(ctx, inFolder)
	a.refresh(ctx, "normal")
}

// refresh has it compared anew; a hard one doesn't believe what Argo CD remembers of the repository.
func (a application) refresh(ctx SpecContext, how string) {
	GinkgoHelper()
	w.Run(ctx, "annotate", "application", "-n", "argocd", "--all", "--overwrite", "argocd.argoproj.io/refresh="+how)
	Eventually(ctx, func(ctx context.Context) (string, error) {
		return w.Kubectl(ctx, "get", "application", "-n", "argocd", "-o", `jsonpath={.items[*].metadata.annotations.argocd\.argoproj\.io/refresh}`)
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
	if err := w.Admin.Get(ctx, client.ObjectKey{Namespace: "argocd", Name: string(a)}, object); err != nil {
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
	if is.Sync.Revision != w.Head(ctx) {
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

// expectNoDrift compares once more, without what Argo CD remembers: it finds no difference, and has had none to correct.
func (a application) expectNoDrift(ctx SpecContext) {
	GinkgoHelper()
	var before status
	Eventually(ctx, func() (string, error) {
		var err error
		before, err = a.status(ctx)
		return before.OperationState.Phase, err
	}).Should(Equal("Succeeded"), "the sync, which ends after what it applied is compared")
	a.refresh(ctx, "hard")
	Expect(a.state(ctx)).To(HavePrefix("Synced and "))
	after, err := a.status(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(after.History).To(Equal(before.History))
	Expect(after.OperationState).To(Equal(before.OperationState))
}

package flux

import (
	"context"
	"net/http/cgi"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// url is where Flux reads the repository.
var url string

func serveRepository(ctx SpecContext) {
	GinkgoHelper()
	server := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(w.Git(ctx, "--exec-path")), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(w.Repository), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null"},
	})
	DeferCleanup(server.Close)
	url = server.URL + "/cluster/.git"
}

// commit commits files; one without text is removed. Flux learns of it as by a webhook.
func commit(ctx SpecContext, files map[string]string) {
	GinkgoHelper()
	w.Commit(ctx, files)
	w.Run(ctx, "annotate", "gitrepository", "--all", "-n", "flux-system", "--overwrite", requestedAt())
}

// requestedAt is the annotation that has Flux look at an object now.
func requestedAt() string {
	return "reconcile.fluxcd.io/requestedAt=" + time.Now().Format(time.RFC3339Nano)
}

// kustomization is one of Flux's, by its name.
type kustomization string

func (k kustomization) get(ctx context.Context) (*unstructured.Unstructured, error) {
	return get(ctx, schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}, "flux-system", string(k))
}

// reconcile has Flux apply it once more.
func (k kustomization) reconcile(ctx SpecContext) {
	GinkgoHelper()
	w.Run(ctx, "annotate", "kustomization", string(k), "-n", "flux-system", "--overwrite", requestedAt())
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
	if tried != "main@sha1:"+w.Head(ctx) || handled != is.GetAnnotations()["reconcile.fluxcd.io/requestedAt"] {
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

func get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(kind)
	return is, w.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, is)
}

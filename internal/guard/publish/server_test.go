package publish_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/guard/publish"
)

// server is an API server, and a client that keeps the warnings of each request.
type server struct {
	config *rest.Config
	admin  dynamic.Interface
	sets   dynamic.ResourceInterface
	// denied and unchanged count what the objects reached.
	denied    map[string]int
	unchanged int
}

var (
	setsResource     = schema.GroupVersionResource{Group: "autohealer.resourcestack.com", Version: "v1alpha1", Resource: "conditionsets"}
	policiesResource = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}
	bindingsResource = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"}
)

func startServer(t *testing.T) *server {
	t.Helper()
	logf.SetLogger(logr.Discard())
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = filepath.Join("..", "..", "..", "bin")
	}
	if _, err := os.Stat(filepath.Join(assets, "kube-apiserver")); err != nil {
		t.Fatalf("no API server in %s: run `make controlplane`", assets)
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory: assets,
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "crds")},
		ErrorIfCRDPathMissing: true,
	}
	config, err := env.Start()
	if err != nil {
		t.Fatalf("start API server: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop API server: %v", err)
		}
	})
	config.QPS = -1
	config.WarningHandlerWithContext = warnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &server{config: config, admin: client, sets: client.Resource(setsResource)}
}

// warnings collects each request's warnings in its context.
type warnings struct{}

type warningsKey struct{}

type collected struct {
	sync.Mutex
	texts []string
}

func (warnings) HandleWarningHeaderWithContext(ctx context.Context, _ int, _ string, text string) {
	if c, ok := ctx.Value(warningsKey{}).(*collected); ok {
		c.Lock()
		defer c.Unlock()
		c.texts = append(c.texts, text)
	}
}

var _ rest.WarningHandlerWithContext = warnings{}

func (s *server) storeBeforePolicy(t *testing.T, random *rand.Rand, n int) []*unstructured.Unstructured {
	t.Helper()
	var stored []*unstructured.Unstructured
	for i := 0; len(stored) < n; i++ {
		object, err := s.sets.Create(t.Context(), randomSet(random, fmt.Sprintf("stored-%d", i)), metav1.CreateOptions{})
		if apierrors.IsInvalid(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, object)
	}
	return stored
}

// installPolicy installs the policy as it is generated, and a second binding that warns: what one rule says must not hide
// what another does.
func (s *server) installPolicy(t *testing.T, g *guard.Guard) {
	t.Helper()
	text, err := publish.Policy(g, "ConditionSet")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range bytes.Split(text, []byte("---\n"))[1:] {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			t.Fatal(err)
		}
		resource := policiesResource
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			resource = bindingsResource
			warning := object.DeepCopy()
			warning.SetName("warning")
			warning.Object["spec"].(map[string]any)["validationActions"] = []any{"Warn"}
			s.create(t, resource, warning)
		}
		s.create(t, resource, object)
	}
	bad := object(t, `{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: ConditionSet, metadata: {name: probe},
		spec: {type: Ready, effect: NoSchedule, taintKey: example.com/ready, conditions: {Ready: {status: true}}}}`)
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		texts, err := s.ask(t, bad, nil)
		return apierrors.IsForbidden(err) && len(texts) == 1, nil
	})
	if err != nil {
		t.Fatalf("the policy never came into force: %v", err)
	}
}

// checkTypes does what kube-controller-manager does with a policy: what it finds would show in the policy's status.
func (s *server) checkTypes(t *testing.T) {
	t.Helper()
	stored, err := s.admin.Resource(policiesResource).Get(t.Context(), "autohealer-conditionset", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, policy); err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	checker := validating.TypeChecker{
		SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: client},
		RestMapper:     restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)),
	}
	for _, warning := range checker.Check(policy) {
		t.Errorf("%s: %s", warning.FieldRef, warning.Warning)
	}
}

func (s *server) create(t *testing.T, resource schema.GroupVersionResource, object *unstructured.Unstructured) {
	t.Helper()
	if _, err := s.admin.Resource(resource).Create(t.Context(), object, metav1.CreateOptions{FieldValidation: "Strict"}); err != nil {
		t.Fatal(err)
	}
}

// ask gives what the API server says of a creation or an update, without doing it.
func (s *server) ask(t *testing.T, object, old *unstructured.Unstructured) ([]string, error) {
	t.Helper()
	c := &collected{}
	ctx := context.WithValue(t.Context(), warningsKey{}, c)
	var err error
	if old == nil {
		_, err = s.sets.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	} else {
		_, err = s.sets.Update(ctx, object, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	return c.texts, err
}

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]any{}
	if err := utiljson.Unmarshal(asJSON, &content); err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

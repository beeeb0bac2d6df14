package publish_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

	"github.com/resourcestack/autohealer/crds"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/guard/publish"
)

// server is an API server, and a client that keeps the warnings of each request.
type server struct {
	config *rest.Config
	admin  dynamic.Interface
}

// comparison asks a server and the engine about objects of one kind.
type comparison struct {
	*server
	*subject
	objects dynamic.ResourceInterface
	// denied and unchanged count what the objects reached.
	denied               map[string]int
	unchanged, annotated int
}

var (
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
		CRDs:                  definitions(t),
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
	return &server{config: config, admin: client}
}

// definitions are the CRDs. Where a schema says the same as the rules, what it says of values is left out: the rules hold
// behind it, and nothing would ever reach them.
func definitions(t *testing.T) []*extv1.CustomResourceDefinition {
	t.Helper()
	var all []*extv1.CustomResourceDefinition
	for _, of := range subjects {
		text, err := crds.FS.ReadFile("autohealer.resourcestack.com_" + of.plural + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		crd := &extv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			t.Fatal(err)
		}
		if of.relaxed {
			spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = of.relax(spec)
		}
		all = append(all, crd)
	}
	return all
}

func (of *subject) relax(s extv1.JSONSchemaProps) extv1.JSONSchemaProps {
	s.XValidations, s.Minimum, s.Maximum, s.MinItems, s.MinProperties, s.MinLength, s.Pattern = nil, nil, nil, nil, nil, nil, ""
	s.Required = slices.DeleteFunc(s.Required, func(field string) bool { return slices.Contains(of.optional, field) })
	for name, property := range s.Properties {
		s.Properties[name] = of.relax(property)
	}
	if s.Items != nil && s.Items.Schema != nil {
		*s.Items.Schema = of.relax(*s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		*s.AdditionalProperties.Schema = of.relax(*s.AdditionalProperties.Schema)
	}
	return s
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

func (s *server) compare(of *subject) *comparison {
	resource := s.admin.Resource(schema.GroupVersionResource{Group: "autohealer.resourcestack.com", Version: "v1alpha1", Resource: of.plural})
	c := &comparison{server: s, subject: of, objects: resource, denied: map[string]int{}}
	if of.namespaced {
		c.objects = resource.Namespace("default")
	}
	return c
}

func (c *comparison) storeBeforePolicy(t *testing.T, random *rand.Rand, n int) []*unstructured.Unstructured {
	t.Helper()
	var stored []*unstructured.Unstructured
	for i := 0; len(stored) < n; i++ {
		object, err := c.objects.Create(t.Context(), c.object(random, "stored", i), metav1.CreateOptions{})
		if apierrors.IsInvalid(err) || apierrors.IsAlreadyExists(err) {
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
func (c *comparison) installPolicy(t *testing.T, g *guard.Guard, bad *unstructured.Unstructured) {
	t.Helper()
	text, err := publish.Policy(g, c.kind)
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
			warning.SetName("warning-" + strings.ToLower(c.kind))
			warning.Object["spec"].(map[string]any)["validationActions"] = []any{"Warn"}
			c.create(t, resource, warning)
		}
		c.create(t, resource, object)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		texts, err := c.ask(t, bad, nil)
		return apierrors.IsForbidden(err) && len(texts) == 1, nil
	})
	if err != nil {
		t.Fatalf("the policy never came into force: %v", err)
	}
}

// checkTypes does what kube-controller-manager does with a policy: what it finds would show in the policy's status.
func (c *comparison) checkTypes(t *testing.T) {
	t.Helper()
	stored, err := c.admin.Resource(policiesResource).Get(t.Context(), "autohealer-"+strings.ToLower(c.kind), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, policy); err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(c.config)
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
func (c *comparison) ask(t *testing.T, object, old *unstructured.Unstructured) ([]string, error) {
	t.Helper()
	heard := &collected{}
	ctx := context.WithValue(t.Context(), warningsKey{}, heard)
	var err error
	if old == nil {
		_, err = c.objects.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	} else {
		_, err = c.objects.Update(ctx, object, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	return heard.texts, err
}

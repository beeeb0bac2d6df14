package snapshot

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
)

const (
	workers = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: workers.extensions.gardener.cloud}
spec:
  names: {kind: Worker}
  versions:
  - {name: v1alpha1, served: true, subresources: {status: {}}, schema: {openAPIV3Schema: {description: keep-me-here, properties: {spec: {description: keep-me-here}, status: {properties: {conditions: {type: array, items: {properties: {type: {type: string}, status: {type: string}, reason: {type: string}, message: {type: string}, lastTransitionTime: {type: string}, lastUpdateTime: {type: string}}}}}}}}}}
`
	// mcm is a registration with a check of each sort: by name, by labels, of a kind that there isn't, and of a Secret.
	mcm = `
metadata: {name: NAME, uid: u-NAME, generation: 1}
spec:
  target: {apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, type: aws}
  suspendWhen: has(target.spec.hibernated)
  shootKubeconfig: {secretName: shoot, key: config}
  checks:
  - {name: mcm, conditionType: EveryNodeReady, object: {apiVersion: apps/v1, kind: Deployment, name: "'mcm'"}, evaluate: {builtin: {}}}
  - {name: agents, conditionType: AgentsReady, object: {apiVersion: apps/v1, kind: Deployment, selector: {matchLabels: {role: agent}}}, evaluate: {builtin: {}}}
  - {name: none, conditionType: Odd, object: {apiVersion: example.com/v1, kind: Nothing, name: "'x'"}, evaluate: {cel: {healthy: object.spec.ok}}}
  - {name: token, conditionType: Tokens, object: {apiVersion: v1, kind: Secret, name: "'token'"}, evaluate: {cel: {healthy: size(object.data) > 0}}}
`
)

// noDocuments is an API server that tells no schema.
type noDocuments struct{}

func (noDocuments) PathsWithContext(context.Context) (map[string]openapi.GroupVersionWithContext, error) {
	return nil, nil
}

func parsed[T any, P interface {
	*T
	client.Object
}](t *testing.T, text string) P {
	t.Helper()
	object := P(new(T))
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// shootCluster has Workers and what is checked for them, with a secret wherever there is room for one.
func shootCluster(t *testing.T, more ...client.Object) *Snapshot {
	t.Helper()
	raw := func(text string) client.Object { return parsed[unstructured.Unstructured](t, text) }
	objects := append(more,
		raw(workers),
		raw("{apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, metadata: {name: w, namespace: well, annotations: {a: keep-me-here}}, spec: {type: aws, pools: [{minimum: 1}], secretRef: {name: keep-me-here}}}"),
		raw("{apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, metadata: {name: w, namespace: ill}, spec: {type: aws, hibernated: true}}"),
		raw("{apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, metadata: {name: w, namespace: other}, spec: {type: azure}}"),
		raw("{apiVersion: apps/v1, kind: Deployment, metadata: {name: mcm, namespace: well, generation: 1}, spec: {replicas: 1, template: {spec: {containers: [{name: a, env: [{name: TOKEN, value: keep-me-here}]}]}}}, status: {observedGeneration: 1, replicas: 1, conditions: [{type: Available, status: 'True'}]}}"),
		raw("{apiVersion: apps/v1, kind: Deployment, metadata: {name: agent-1, namespace: well, generation: 2, labels: {role: agent}}, status: {observedGeneration: 1}}"),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "well", Name: "shoot", Annotations: map[string]string{"a": "keep-me-here", serverOf + "config": "keep-me-here"}}, Data: map[string][]byte{
			"config": kubeconfigText("api.well:443", "{exec: {apiVersion: client.authentication.k8s.io/v1, command: keep-me-here, interactiveMode: Never}}"), "other": []byte("keep-me-here"),
		}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "well", Name: "token", Labels: map[string]string{"a": "keep-me-here"}}, Data: map[string][]byte{"token": []byte("keep-me-here")}},
	)
	served := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{
		{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Worker"}, appsv1.SchemeGroupVersion.WithKind("Deployment"), secretKind, definitionKind.WithVersion("v1"),
	} {
		served.Add(kind, meta.RESTScopeNamespace)
	}
	s := Of(t, time.Unix(1e9, 0), time.Unix(1e9, 0), parsed[v1alpha1.HealthCheckRegistration](t, strings.ReplaceAll(mcm, "NAME", "stored")))
	types := runtime.NewScheme() // the client adds kinds to it
	if err := errors.Join(scheme.AddToScheme(types), v1alpha1.AddToScheme(types)); err != nil {
		t.Fatal(err)
	}
	s.live = &live{
		client:  fake.NewClientBuilder().WithScheme(types).WithRESTMapper(served).WithObjects(objects...).Build(),
		schemas: dependents.NewSchemas(noDocuments{}),
	}
	s.Objects.answered.Delete("Deployment.apps -A") // as by one who may not list them
	return s
}

func kubeconfigText(server, user string) []byte {
	return []byte(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], clusters: [{name: a, cluster: {server: "https://` + server + `"}}], users: [{name: a, user: ` + user + `}]}`)
}

// exported is what is read from the file of a cluster.
func exported(t *testing.T, s *Snapshot) (file []byte, read *Snapshot) {
	t.Helper()
	facts := factsOf(t, s)
	if err := facts.Record(t.Context(), func(text string) { t.Errorf("warned: %s", text) }); err != nil {
		t.Fatal(err)
	}
	var written, again bytes.Buffer
	if err := errors.Join(s.Write(&written), s.Write(&again)); err != nil {
		t.Fatal(err)
	}
	if written.String() != again.String() {
		t.Error("the same cluster gives two files")
	}
	read, err := Read(written.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return written.Bytes(), read
}

func factsOf(t *testing.T, s *Snapshot) *Facts {
	t.Helper()
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	facts, err := NewFacts(t.Context(), s, g, "autohealer-system")
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// reported drops what is said of some conditions.
func reported(of registration.Forecast, types ...string) {
	for i := range of.Items.Targets {
		of.Items.Targets[i].Conditions = slices.DeleteFunc(of.Items.Targets[i].Conditions, func(c registration.ConditionForecast) bool { return slices.Contains(types, c.Type) })
	}
}

// TestAFileTellsOfRegistrationsWhatTheClusterDoes: of the stored one, and of another one for the same kind that reads nothing else.
func TestAFileTellsOfRegistrationsWhatTheClusterDoes(t *testing.T) {
	s := shootCluster(t)
	file, read := exported(t, s)
	if bytes.Contains(file, []byte("keep")) {
		t.Errorf("the file has what nobody reads:\n%s", file)
	}
	live, fromFile := factsOf(t, s), factsOf(t, read)
	for name, text := range map[string]string{
		"the stored one": strings.ReplaceAll(mcm, "NAME", "stored"),
		"another":        strings.ReplaceAll(mcm, "NAME", "another"),
	} {
		t.Run(name, func(t *testing.T) {
			hcr := parsed[v1alpha1.HealthCheckRegistration](t, text)
			want, err := live.ForecastRegistration(t.Context(), hcr, limit.Builtin(), time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := fromFile.ForecastRegistration(t.Context(), hcr, limit.Builtin(), time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			if want.Items.Untyped != nil || !errors.Is(got.Items.Untyped, guard.ErrNotKnown) {
				t.Errorf("types are told live: %v, and from a file, which has no schemas: %v", want.Items.Untyped, got.Items.Untyped)
			}
			got.Items.Untyped = nil
			reported(want, "Tokens", "Odd") // whose errors are other words
			reported(got, "Tokens", "Odd")
			if diff := cmp.Diff(want, got, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("-live +file\n%s", diff)
			}
			if name == "the stored one" && (got.UnknownKinds == nil || len(got.UnsafeKubeconfigs) != 1 || got.Targets != 2 || len(got.Items.Targets) != 2) {
				t.Errorf("%+v", got)
			}
		})
	}
	others := parsed[v1alpha1.HealthCheckRegistration](t, strings.ReplaceAll(strings.ReplaceAll(mcm, "NAME", "another"), "type: aws", "type: azure"))
	if forecast, err := live.ForecastRegistration(t.Context(), others, limit.Builtin(), time.Time{}); err != nil || forecast.WouldFail != 1 {
		t.Errorf("live, a Worker without its Deployment: %+v, %v", forecast, err)
	}
	if forecast, err := fromFile.ForecastRegistration(t.Context(), others, limit.Builtin(), time.Time{}); err != nil || forecast.WouldFail != 0 || forecast.Targets != 1 {
		t.Errorf("from the file, which doesn't know that Deployment: %+v, %v", forecast, err)
	}
	for name, text := range map[string]string{
		"reads another field":   strings.Replace(strings.ReplaceAll(mcm, "NAME", "another"), "has(target.spec.hibernated)", "has(target.spec.region)", 1),
		"is for another kind":   strings.ReplaceAll(strings.ReplaceAll(mcm, "NAME", "another"), "kind: Worker", "kind: Infrastructure"),
		"is of another version": strings.ReplaceAll(strings.ReplaceAll(mcm, "NAME", "another"), "gardener.cloud/v1alpha1", "gardener.cloud/v1"),
	} {
		if _, err := fromFile.ForecastRegistration(t.Context(), parsed[v1alpha1.HealthCheckRegistration](t, text), limit.Builtin(), time.Time{}); !errors.Is(err, guard.ErrNotKnown) {
			t.Errorf("one that %s: %v", name, err)
		}
	}
}

// TestWhatMayNotBeReadIsToldFromAFile: whoever wrote it may not read how Workers keep conditions.
func TestWhatMayNotBeReadIsToldFromAFile(t *testing.T) {
	s := shootCluster(t)
	s.live.client = interceptor.NewClient(s.live.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, as client.Object, options ...client.GetOption) error {
			if as.GetObjectKind().GroupVersionKind().GroupKind() == definitionKind {
				return apierrors.NewForbidden(schema.GroupResource{Group: definitionKind.Group, Resource: "customresourcedefinitions"}, key.Name, nil)
			}
			return c.Get(ctx, key, as, options...)
		},
	})
	_, read := exported(t, s)
	for name, facts := range map[string]*Facts{"live": factsOf(t, s), "from the file": factsOf(t, read)} {
		forecast, err := facts.ForecastRegistration(t.Context(), parsed[v1alpha1.HealthCheckRegistration](t, strings.ReplaceAll(mcm, "NAME", "stored")), limit.Builtin(), time.Time{})
		if err != nil || !slices.Equal(forecast.UnreadableKinds, []string{"customresourcedefinitions.apiextensions.k8s.io"}) || forecast.Targets != 2 {
			t.Errorf("%s: %+v, %v", name, forecast, err)
		}
	}
}

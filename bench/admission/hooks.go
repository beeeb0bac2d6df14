package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"testing/fstest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	fakecache "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/bench/conditionset"
	"github.com/resourcestack/autohealer/bench/weederconfig"
	"github.com/resourcestack/autohealer/crds"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/guard/catalog"
	"github.com/resourcestack/autohealer/internal/kube/survey"
	"github.com/resourcestack/autohealer/webhooks"
)

// hook is a webhook and what it is asked.
type hook struct {
	http.Handler
	review []byte
}

// noop is what a webhook of controller-runtime costs that decides nothing: the reference for ours.
func noop() *admission.Webhook {
	return &admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		return admission.Allowed("")
	})}
}

// guardOfSets judges ConditionSets by a folder of catalogues.
func (c inMemory) guardOfSets(catalogues fs.FS) (*guard.Guard, error) {
	facts, err := c.facts()
	if err != nil {
		return nil, err
	}
	rules, err := guard.NewFrom(guard.Options{
		Facts: facts, Planners: map[string]guard.Planner{"ConditionSet": guard.PlannerOf(facts.ForecastConditionSet)},
	}, catalogues, crds.FS)
	if err != nil {
		return nil, fmt.Errorf("make a guard: %w", err)
	}
	return rules, nil
}

// hookOfPods judges a new WeederConfig for one of the Services.
func (c inMemory) hookOfPods() (hook, error) {
	facts, err := c.facts()
	if err != nil {
		return hook{}, err
	}
	return hookOf(guard.Options{
		Facts: facts, Planners: map[string]guard.Planner{"WeederConfig": guard.PlannerOf(facts.ForecastWeederConfig)},
		Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(),
	}, configFor("new", weederconfig.ServiceName(0)), "weederconfigs")
}

// hookOfTargets judges a new ProbeConfig that probes what one of the Services is in front of. What it names is answered at once; in a
// cluster the API server is asked for that.
func (c inMemory) hookOfTargets(ctx context.Context) (hook, error) {
	facts, err := c.facts()
	if err != nil {
		return hook{}, err
	}
	stored, err := c.cache()
	if err != nil {
		return hook{}, err
	}
	informers := &survey.Informers{Cache: stored, Weeder: facts.Weeder}
	if err := informers.Follow(ctx, stored); err != nil {
		return hook{}, err
	}
	go func() { _ = stored.Start(ctx) }() // ends with ctx, and can't fail before
	if !stored.WaitForCacheSync(ctx) {
		return hook{}, fmt.Errorf("fill the cache: %w", context.Cause(ctx))
	}
	allow := authorizerfactory.NewAlwaysAllowAuthorizer()
	asks := &survey.Survey{Cluster: informers, Objects: named{}, Rights: allow, OwnNamespace: harness.Namespace}
	return hookOf(guard.Options{
		Facts: facts, Planners: map[string]guard.Planner{"ProbeConfig": guard.PlannerThatReads(asks.Forecast)}, Authorizer: allow, OwnNamespace: harness.Namespace,
	}, prober(weederconfig.Namespace, "new"), "probeconfigs")
}

func hookOf(options guard.Options, created client.Object, plural string) (hook, error) {
	rules, err := guard.New(options)
	if err != nil {
		return hook{}, fmt.Errorf("make a guard: %w", err)
	}
	body, err := reviewOf(created, plural)
	return hook{webhooks.New(rules), body}, err
}

// review is one of a new set.
func review() ([]byte, error) { return reviewOf(newSet(), "conditionsets") }

// reviewOf is an AdmissionReview as the API server sends it for the creation of an object of ours.
func reviewOf(created client.Object, plural string) ([]byte, error) {
	created.SetUID("0f0c1a8e-5d1b-4f0a-9c59-3c2b1a0d9e8f")
	created.SetGeneration(1)
	created.SetCreationTimestamp(metav1.Now())
	object, err := json.Marshal(created)
	if err != nil {
		return nil, fmt.Errorf("encode what is created: %w", err)
	}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Name: created.GetName(), Namespace: created.GetNamespace(), Operation: admissionv1.Create,
			Kind:     metav1.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: "v1alpha1", Kind: created.GetObjectKind().GroupVersionKind().Kind},
			Resource: metav1.GroupVersionResource{Group: v1alpha1.GroupVersion.Group, Version: "v1alpha1", Resource: plural},
			UserInfo: authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:masters", "system:authenticated"}},
			Object:   runtime.RawExtension{Raw: object},
		},
	})
}

// newSet is one that no stored set resembles, so that admission has nothing to warn of.
func newSet() *v1alpha1.ConditionSet {
	cs := conditionset.Set("new", 7)
	cs.APIVersion, cs.Kind = v1alpha1.GroupVersion.String(), "ConditionSet"
	cs.Spec.Type, cs.Spec.TaintKey = "BenchNew", conditionset.KeyPrefix+"BenchNew"
	cs.Spec.Conditions[string(conditionset.ConditionType(8))] = v1alpha1.MemberCondition{Status: v1alpha1.RequiredStatus{JSON: `"Unknown"`}}
	return cs
}

// configFor is a WeederConfig for one Service.
func configFor(name, service string) *v1alpha1.WeederConfig {
	return &v1alpha1.WeederConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WeederConfig"},
		ObjectMeta: metav1.ObjectMeta{Namespace: weederconfig.Namespace, Name: name},
		Spec:       v1alpha1.WeederConfigSpec{ServicesAndDependantSelectors: map[string]v1alpha1.DependantSelectors{service: weederconfig.Dependants(service)}},
	}
}

// prober is a ProbeConfig of one target.
func prober(namespace, name string) *v1alpha1.ProbeConfig {
	return &v1alpha1.ProbeConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ProbeConfig"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ProbeConfigSpec{
			InternalKubeConfigSecretName: "inside", ExternalKubeConfigSecretName: "outside",
			DependentResourceInfos: []v1alpha1.DependentResourceInfo{{
				Ref:     v1alpha1.DependentRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "controllers"},
				ScaleUp: &v1alpha1.ScaleInfo{}, ScaleDown: &v1alpha1.ScaleInfo{},
			}},
		},
	}
}

// catalogueOf has n rules over ConditionSets: the built-in ones, in turn, under new names.
func catalogueOf(n int) (fs.FS, error) {
	const file = "conditionset.yaml"
	text, err := catalog.FS.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the rules: %w", err)
	}
	var c guard.Catalogue
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("read the rules: %w", err)
	}
	builtin := c.Rules
	c.Rules = make([]guard.Rule, n)
	for i := range c.Rules {
		c.Rules[i] = builtin[i%len(builtin)]
		c.Rules[i].ID, c.Rules[i].Tests = fmt.Sprintf("conditionset/rule-%d", i), nil
	}
	if text, err = yaml.Marshal(c); err != nil {
		return nil, fmt.Errorf("write rules: %w", err)
	}
	return fstest.MapFS{file: {Data: text}}, nil
}

// cache is what informers know of ProbeConfigs, Services and namespaces.
func (c inMemory) cache() (cache.Cache, error) {
	scheme, created := harness.Scheme(), metav1.NewTime(time.Now().Add(-time.Hour))
	configs, services, namespaces, none := fakecache.NewFakeControllerSource(), fakecache.NewFakeControllerSource(), fakecache.NewFakeControllerSource(), fakecache.NewFakeControllerSource()
	for i := range c.targets {
		name := fmt.Sprintf("target-%d", i)
		pc := prober(name, "probes")
		pc.UID, pc.CreationTimestamp, pc.Status.Targets = types.UID(name), created, &v1alpha1.TargetCounts{Probed: 1}
		configs.Add(pc)
		namespaces.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for i := range c.services {
		services.Add(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: weederconfig.Namespace, Name: weederconfig.ServiceName(i)},
			Spec: corev1.ServiceSpec{ClusterIPs: []string{fmt.Sprintf("10.0.%d.%d", i/250, i%250)}}})
	}
	return cache.New(&rest.Config{}, cache.Options{Scheme: scheme, Mapper: testrestmapper.TestOnlyStaticRESTMapper(scheme),
		NewInformer: func(_ toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			var from toolscache.ListerWatcher = none
			switch object.(type) {
			case *v1alpha1.ProbeConfig:
				from = configs
			case *corev1.Service:
				from = services
			case *corev1.Namespace:
				from = namespaces
			}
			return toolscache.NewSharedIndexInformer(from, object, resync, indexers)
		}})
}

// named is all that a ProbeConfig may name.
type named struct{}

func (named) Kubeconfig(_ context.Context, _, secret string) (probe.KubeconfigFacts, error) {
	if secret == "inside" {
		return probe.KubeconfigFacts{Server: "10.0.0.0:443"}, nil
	}
	return probe.KubeconfigFacts{Server: "api.example.com:443"}, nil
}

func (named) Dependent(context.Context, string, probe.Ref) (probe.DependentFacts, error) {
	return probe.DependentFacts{Replicas: 1, Pods: weederconfig.DependsOn + "=" + weederconfig.ServiceName(1)}, nil
}

func (named) Annotations(context.Context, string, probe.Ref) (map[string]string, error) {
	return nil, nil
}

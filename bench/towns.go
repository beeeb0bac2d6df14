package main

import (
	"context"
	"fmt"
	"time"

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

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/survey"
	"github.com/resourcestack/autohealer/webhooks"
)

// town is a cluster whose targets are probed, in memory: a namespace with a stored ProbeConfig for each, beside the yard in which
// the judged one is.
type town struct {
	path    string
	targets int
	yard
}

// towns are what ProbeConfigs are judged over; the first is the reference.
var towns = []town{{"/few-targets", 4, yards[0]}, {"/many-targets", 1000, yards[1]}}

// hook judges a new config that probes what one of the Services is in front of. What it names is answered at once; in a cluster
// the API server is asked for that.
func (t town) hook(ctx context.Context) (hook, error) {
	facts, err := factsOf(10, 10)
	if err != nil {
		return hook{}, err
	}
	if err := t.fill(facts); err != nil {
		return hook{}, err
	}
	stored, err := t.cache()
	if err != nil {
		return hook{}, err
	}
	informers := &survey.Informers{Cache: stored, Yard: facts.Yard}
	if err := informers.Follow(ctx); err != nil {
		return hook{}, err
	}
	go func() { _ = stored.Start(ctx) }() // ends with ctx, and can't fail before
	if !stored.WaitForCacheSync(ctx) {
		return hook{}, fmt.Errorf("fill the cache: %w", context.Cause(ctx))
	}
	allow := authorizerfactory.NewAlwaysAllowAuthorizer()
	asks := &survey.Survey{Cluster: informers, Objects: named{}, Rights: allow, OwnNamespace: harness.Namespace}
	rules, err := guard.New(guard.Options{
		Facts: facts, Planners: map[string]guard.Planner{"ProbeConfig": guard.PlannerThatReads(asks.Preview)}, Authorizer: allow, OwnNamespace: harness.Namespace,
	})
	if err != nil {
		return hook{}, fmt.Errorf("make a guard: %w", err)
	}
	body, err := reviewOf(proberOf(weedNamespace, "new"), "probeconfigs")
	return hook{webhooks.New(rules), body}, err
}

func proberOf(namespace, name string) *v1alpha1.ProbeConfig {
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

// cache has what informers know of the cluster.
func (t town) cache() (cache.Cache, error) {
	scheme, now := harness.Scheme(), metav1.NewTime(time.Now().Add(-time.Hour))
	configs, services, namespaces, none := fakecache.NewFakeControllerSource(), fakecache.NewFakeControllerSource(), fakecache.NewFakeControllerSource(), fakecache.NewFakeControllerSource()
	for i := range t.targets {
		name := fmt.Sprintf("target-%d", i)
		pc := proberOf(name, "probes")
		pc.UID, pc.CreationTimestamp, pc.Status.Targets = types.UID(name), now, &v1alpha1.TargetCounts{Probed: 1}
		configs.Add(pc)
		namespaces.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for i := range t.services {
		services.Add(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: weedNamespace, Name: serviceName(i)},
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

// named is all that a config may name.
type named struct{}

func (named) Kubeconfig(_ context.Context, _, secret string) (probe.KubeconfigFacts, error) {
	if secret == "inside" {
		return probe.KubeconfigFacts{Server: "10.0.0.0:443"}, nil
	}
	return probe.KubeconfigFacts{Server: "api.example.com:443"}, nil
}

func (named) Dependent(context.Context, string, probe.Ref) (survey.Dependent, error) {
	return survey.Dependent{Replicas: 1, Pods: dependsOn + "=" + serviceName(1)}, nil
}

func (named) Annotations(context.Context, string, probe.Ref) (map[string]string, error) {
	return nil, nil
}

package webhooks

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/survey"
)

const ownNamespace = "autohealer-system"

// knowing is a guard that knows all that the manager's does: nodes, pods, Services and Secrets, what accounts may do, and what
// is stored. Time stands still, so that equal questions have equal answers.
func knowing(t testing.TB) *guard.Guard {
	t.Helper()
	now := time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)
	known := facts{forecast: condition.Forecast{Nodes: 40, WouldTaint: 2, Limit: 1, UnionLimit: 1, MatchingNodes: []string{"n1", "n2"}}}
	weeds := weeder.NewState(limit.Builtin(), ownNamespace)
	weeds.ObserveService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "etcd"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "etcd"}}})
	for _, app := range []string{"etcd", "api"} {
		weeds.ObservePod(weeder.ReadPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: app + "-0", UID: types.UID(app), ResourceVersion: "1", Labels: map[string]string{"app": app},
		}}), timing.Moment{Now: now, Server: now})
	}
	g, err := guard.New(guard.Options{
		Facts: known, Clock: clocktesting.NewFakePassiveClock(now), OwnNamespace: ownNamespace, Authorizer: rights{}, Stored: shelf{t},
		Planners: map[string]guard.Planner{
			"ConditionSet": guard.PlannerOf(known.ForecastConditionSet),
			"WeederConfig": guard.PlannerOf(func(wc *v1alpha1.WeederConfig, limits limit.Limits, now time.Time) weeder.Forecast {
				return weeds.Forecast(wc, limits, timing.Moment{Now: now, Server: now})
			}),
			"ProbeConfig": guard.PlannerThatReads((&survey.Survey{Cluster: town{weeds}, Objects: town{weeds}, Rights: rights{}, OwnNamespace: ownNamespace}).Forecast),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// rights allows, refuses or doesn't answer by the length of the name that is asked about.
type rights struct{}

func (rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	switch len(a.GetName()+a.GetNamespace()) % 4 {
	case 0:
		return authorizer.DecisionNoOpinion, "", nil
	case 1:
		return authorizer.DecisionNoOpinion, "", errors.New("the API server is away")
	}
	return authorizer.DecisionAllow, "", nil
}

// town is what a ProbeConfig finds: a Secret, a dependent or a Service by the length of its name.
type town struct{ *weeder.State }

func (town) Namespaces(_ context.Context, selector labels.Selector) ([]string, error) {
	if selector.Empty() || selector.Matches(labels.Set{"shoot": "true"}) {
		return []string{"prod", "shop"}, nil
	}
	return nil, nil
}

func (town) ServiceAt(_ context.Context, _, host string) (string, error) {
	if host == "10.0.0.1" {
		return "etcd", nil
	}
	return "", nil
}

func (town) Autoscalers(context.Context, string) ([]survey.Autoscaler, error) {
	return []survey.Autoscaler{{Scales: probe.Ref{APIVersion: "apps/v1", Kind: "Deployment", Name: "kcm"}, Name: "HorizontalPodAutoscaler/kcm"}}, nil
}

func (t town) Holds(ctx context.Context, selector labels.Selector, namespace string) (bool, error) {
	all, err := t.Namespaces(ctx, selector)
	return slices.Contains(all, namespace), err
}

func (town) Counts(context.Context) (survey.Counts, error) { return survey.Counts{}, nil }

func (town) Configs(context.Context, string) ([]v1alpha1.ProbeConfig, error) {
	return []v1alpha1.ProbeConfig{{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "other"}}}, nil
}

func (town) Kubeconfig(_ context.Context, _, secret string) (probe.KubeconfigFacts, error) {
	return []probe.KubeconfigFacts{
		{Missing: true}, {Unsafe: "user runs a command"}, {Server: "etcd.prod.svc:443"}, {Server: "10.0.0.1:6443"}, {Server: "api.example.com:443"},
	}[len(secret)%5], nil
}

func (town) Dependent(_ context.Context, _ string, ref probe.Ref) (probe.DependentFacts, error) {
	if ref.Name == "away" {
		return probe.DependentFacts{}, errors.New("the API server is away")
	}
	return []probe.DependentFacts{{Missing: true}, {Unscalable: true}, {Replicas: 1}, {Replicas: 2, Pods: "app=etcd"}, {Replicas: 2, Pods: "app in (api"}}[len(ref.Name)%5], nil
}

func (town) Annotations(context.Context, string, probe.Ref) (map[string]string, error) {
	return nil, nil
}

// shelf has one stored object of each kind.
type shelf struct{ t testing.TB }

func (shelf) Synced(context.Context, string) bool { return true }

func (s shelf) Get(_ context.Context, kind, namespace, name string) (client.Object, error) {
	object := s.of(kind)
	if object == nil || object.GetNamespace() != namespace || object.GetName() != name {
		return nil, nil
	}
	return object, nil
}

func (s shelf) All(_ context.Context, kind string) (iter.Seq[client.Object], error) {
	if object := s.of(kind); object != nil {
		return slices.Values([]client.Object{object}), nil
	}
	return slices.Values([]client.Object{}), nil
}

func (s shelf) of(kind string) client.Object {
	object := map[string]client.Object{
		"ConditionSet": &v1alpha1.ConditionSet{}, "WeederConfig": &v1alpha1.WeederConfig{}, "ProbeConfig": &v1alpha1.ProbeConfig{},
		"Guardrail": &v1alpha1.Guardrail{}, "GuardrailException": &v1alpha1.GuardrailException{},
	}[kind]
	text := map[string]string{"ConditionSet": badSet, "WeederConfig": weedCfg, "ProbeConfig": prober, "Guardrail": badRail, "GuardrailException": badXcpt}[kind]
	var content map[string]any
	if err := yaml.Unmarshal([]byte(text), &content); err != nil {
		s.t.Fatal(err)
	}
	if object != nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, object); err != nil {
			s.t.Fatal(err)
		}
	}
	return object
}

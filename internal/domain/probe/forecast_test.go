package probe_test

import (
	"fmt"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// world has the same facts in each of its namespaces.
func world(facts probe.TargetFacts, namespaces ...string) probe.ClusterState {
	w := probe.ClusterState{Namespaces: namespaces, Targets: map[string]probe.TargetFacts{}, Probed: 4, ScaledDown: 1}
	for _, namespace := range namespaces {
		w.Targets[namespace] = facts
	}
	return w
}

func configOf(t *testing.T, namespace, spec string) *probe.Config {
	t.Helper()
	c, err := probe.NewConfig(probeConfig(t, namespace, spec), "autohealer-system")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhatAConfigWouldDo(t *testing.T) {
	service := types.NamespacedName{Namespace: "shoot", Name: "kube-apiserver"}
	facts := func(change func(*probe.TargetFacts)) probe.TargetFacts {
		f := probe.TargetFacts{
			Internal: probe.KubeconfigFacts{Server: "kube-apiserver.shoot.svc:443", Service: service}, External: probe.KubeconfigFacts{Server: "api.example.com:443"},
			Dependents: []probe.DependentFacts{{Replicas: 1, Pods: "a"}, {Replicas: 2, Pods: "b"}},
		}
		change(&f)
		return f
	}
	for name, tt := range map[string]struct {
		change func(*probe.TargetFacts)
		want   probe.Forecast
	}{
		"all is well":         {func(*probe.TargetFacts) {}, probe.Forecast{WouldScaleDown: 2, WouldScaleDownNames: []string{"shoot/Deployment/kcm", "shoot/Deployment/mcm"}}},
		"one is at 0":         {func(f *probe.TargetFacts) { f.Dependents[0].Replicas = 0 }, probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shoot/Deployment/mcm"}}},
		"a Secret is missing": {func(f *probe.TargetFacts) { f.Dependents = nil; f.External = probe.KubeconfigFacts{Missing: true} }, probe.Forecast{MissingSecrets: 1, MissingSecretNames: []string{"shoot/external"}}},
		"a kubeconfig is unsafe": {func(f *probe.TargetFacts) {
			f.Dependents = nil
			f.Internal = probe.KubeconfigFacts{Unsafe: "user runs a command"}
		},
			probe.Forecast{UnsafeKubeconfigs: 1, UnsafeKubeconfigNames: []string{"shoot/internal (user runs a command)"}}},
		"one server":                     {func(f *probe.TargetFacts) { f.Dependents = nil; f.External.Server = f.Internal.Server }, probe.Forecast{SameServers: 1, SameServerNames: []string{"shoot (kube-apiserver.shoot.svc:443)"}}},
		"two unknown servers aren't one": {func(f *probe.TargetFacts) { f.Dependents = nil; f.External.Server, f.Internal.Server = "", "" }, probe.Forecast{}},
		"one is behind what is probed": {func(f *probe.TargetFacts) {
			f.Dependents = f.Dependents[:1]
			f.Dependents[0] = probe.DependentFacts{Pods: "a", ProbedService: "kube-apiserver"}
		},
			probe.Forecast{BackingDependents: 1, BackingDependentNames: []string{"shoot/Deployment/kcm (kube-apiserver)"}}},
		"of one nobody knows the pods, and a Service here is probed": {func(f *probe.TargetFacts) { f.Dependents = []probe.DependentFacts{{}} },
			probe.Forecast{UnclearDependents: 1, UnclearDependentNames: []string{"shoot/Deployment/kcm"}}},
		"of one nobody knows the pods, and no Service here is probed": {func(f *probe.TargetFacts) {
			f.Dependents = []probe.DependentFacts{{}}
			f.Internal.Service = types.NamespacedName{}
		}, probe.Forecast{}},
		"one runs Autohealer": {func(f *probe.TargetFacts) { f.Dependents = []probe.DependentFacts{{Pods: "a"}, {Pods: "b", Own: true}} }, probe.Forecast{OwnDependents: 1, OwnDependentNames: []string{"shoot/Deployment/mcm"}}},
		"one can't be scaled": {func(f *probe.TargetFacts) { f.Dependents = []probe.DependentFacts{{Pods: "a"}, {Unscalable: true}} }, probe.Forecast{UnscalableDependents: 1, UnscalableDependentNames: []string{"shoot/Deployment/mcm"}}},
		"one is missing":      {func(f *probe.TargetFacts) { f.Dependents = []probe.DependentFacts{{Pods: "a"}, {Missing: true}} }, probe.Forecast{MissingDependents: 1, MissingDependentNames: []string{"shoot/Deployment/mcm"}}},
		"one has an autoscaler": {func(f *probe.TargetFacts) {
			f.Dependents = []probe.DependentFacts{{Pods: "a", Scalers: []string{"HorizontalPodAutoscaler/x"}}}
		},
			probe.Forecast{AutoscaledDependents: 1, AutoscaledDependentNames: []string{"shoot/Deployment/kcm (HorizontalPodAutoscaler/x)"}}},
		"one is another config's": {func(f *probe.TargetFacts) {
			f.Dependents = []probe.DependentFacts{{Pods: "a", Others: []string{"shoot/main", "shoot/other"}}}
		},
			probe.Forecast{SharedDependents: 1, SharedDependentNames: []string{"shoot/Deployment/kcm (shoot/other)"}}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.want.Targets, tt.want.Probed, tt.want.ScaledDown, tt.want.Limit = 1, 4, 1, 1
			got := probe.ForecastOf(configOf(t, "shoot", twoDependents), limit.Builtin(), world(facts(tt.change), "shoot"), nil)
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, tt.want)
			}
		})
	}
}

func TestOfManyTargetsSomeAreNamed(t *testing.T) {
	var namespaces []string
	for i := range 30 {
		namespaces = append(namespaces, fmt.Sprintf("shoot-%02d", 29-i))
	}
	c := configOf(t, "autohealer-system", twoDependents+"namespaceSelector: {matchLabels: {a: b}}")
	p := probe.ForecastOf(c, limit.Builtin(), world(probe.TargetFacts{Internal: probe.KubeconfigFacts{Missing: true}}, namespaces...), nil)
	if p.Targets != 30 || p.Limit != 6 || p.MissingSecrets != 30 || len(p.MissingSecretNames) != 20 || p.MissingSecretNames[0] != "shoot-00/internal" || p.MissingSecretNames[19] != "shoot-19/internal" {
		t.Errorf("%+v", p)
	}
}

package probe_test

import (
	"fmt"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// world has the same facts in each of its namespaces.
type world struct {
	namespaces []string
	facts      probe.TargetFacts
}

func (w world) Namespaces(labels.Selector) []string            { return w.namespaces }
func (w world) Target(*probe.Config, string) probe.TargetFacts { return w.facts }
func (w world) Counts() (probed, scaledDown int)               { return 4, 1 }

func TestWhatAConfigWouldDo(t *testing.T) {
	service := types.NamespacedName{Namespace: "shoot", Name: "kube-apiserver"}
	facts := func(change func(*probe.TargetFacts)) probe.TargetFacts {
		f := probe.TargetFacts{
			Internal: probe.KubeconfigFacts{Server: "kube-apiserver.shoot.svc:443", Service: service}, External: probe.KubeconfigFacts{Server: "api.example.com:443"},
			Dependents: []probe.DependentFacts{{Replicas: 1}, {Replicas: 2}},
		}
		change(&f)
		return f
	}
	for name, tt := range map[string]struct {
		change func(*probe.TargetFacts)
		want   probe.Preview
	}{
		"all is well":         {func(*probe.TargetFacts) {}, probe.Preview{WouldScaleDown: 2, WouldScaleDownNames: []string{"shoot/Deployment/kcm", "shoot/Deployment/mcm"}}},
		"one is at 0":         {func(f *probe.TargetFacts) { f.Dependents[0].Replicas = 0 }, probe.Preview{WouldScaleDown: 1, WouldScaleDownNames: []string{"shoot/Deployment/mcm"}}},
		"a Secret is missing": {func(f *probe.TargetFacts) { f.Dependents = nil; f.External = probe.KubeconfigFacts{Missing: true} }, probe.Preview{MissingSecrets: 1, MissingSecretNames: []string{"shoot/external"}}},
		"a kubeconfig is unsafe": {func(f *probe.TargetFacts) {
			f.Dependents = nil
			f.Internal = probe.KubeconfigFacts{Unsafe: "user runs a command"}
		},
			probe.Preview{UnsafeKubeconfigs: 1, UnsafeKubeconfigNames: []string{"shoot/internal (user runs a command)"}}},
		"one server":                     {func(f *probe.TargetFacts) { f.Dependents = nil; f.External.Server = f.Internal.Server }, probe.Preview{SameServers: 1, SameServerNames: []string{"shoot (kube-apiserver.shoot.svc:443)"}}},
		"two unknown servers aren't one": {func(f *probe.TargetFacts) { f.Dependents = nil; f.External.Server, f.Internal.Server = "", "" }, probe.Preview{}},
		"one is behind what is probed": {func(f *probe.TargetFacts) {
			f.Dependents = f.Dependents[:1]
			f.Dependents[0] = probe.DependentFacts{BehindServices: []string{"a", "kube-apiserver"}}
		},
			probe.Preview{BackingDependents: 1, BackingDependentNames: []string{"shoot/Deployment/kcm (kube-apiserver)"}}},
		"of one nobody knows the pods, and a Service here is probed": {func(f *probe.TargetFacts) { f.Dependents = []probe.DependentFacts{{PodsUnknown: true}} },
			probe.Preview{UnclearDependents: 1, UnclearDependentNames: []string{"shoot/Deployment/kcm"}}},
		"of one nobody knows the pods, and no Service here is probed": {func(f *probe.TargetFacts) {
			f.Dependents = []probe.DependentFacts{{PodsUnknown: true}}
			f.Internal.Service = types.NamespacedName{}
		}, probe.Preview{}},
		"one runs Autohealer": {func(f *probe.TargetFacts) { f.Dependents = []probe.DependentFacts{{}, {Own: true}} }, probe.Preview{OwnDependents: 1, OwnDependentNames: []string{"shoot/Deployment/mcm"}}},
		"one can't be scaled": {func(f *probe.TargetFacts) { f.Dependents = []probe.DependentFacts{{}, {Unscalable: true}} }, probe.Preview{UnscalableDependents: 1, UnscalableDependentNames: []string{"shoot/Deployment/mcm"}}},
		"one is missing":      {func(f *probe.TargetFacts) { f.Dependents = []probe.DependentFacts{{}, {Missing: true}} }, probe.Preview{MissingDependents: 1, MissingDependentNames: []string{"shoot/Deployment/mcm"}}},
		"one has an autoscaler": {func(f *probe.TargetFacts) {
			f.Dependents = []probe.DependentFacts{{Scalers: []string{"HorizontalPodAutoscaler/x"}}}
		},
			probe.Preview{AutoscaledDependents: 1, AutoscaledDependentNames: []string{"shoot/Deployment/kcm (HorizontalPodAutoscaler/x)"}}},
		"one is another config's": {func(f *probe.TargetFacts) {
			f.Dependents = []probe.DependentFacts{{Others: []string{"shoot/main", "shoot/other"}}}
		},
			probe.Preview{SharedDependents: 1, SharedDependentNames: []string{"shoot/Deployment/kcm (shoot/other)"}}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.want.Targets, tt.want.Probed, tt.want.ScaledDown, tt.want.Limit = 1, 4, 1, 1
			got := probe.PreviewOf(probeConfig(t, "shoot", twoDependents), "autohealer-system", limit.Builtin(), world{facts: facts(tt.change)})
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, tt.want)
			}
		})
	}
}

func TestOfManyTargetsSomeAreNamed(t *testing.T) {
	w := world{facts: probe.TargetFacts{Internal: probe.KubeconfigFacts{Missing: true}}}
	for i := range 30 {
		w.namespaces = append(w.namespaces, fmt.Sprintf("shoot-%02d", 29-i))
	}
	pc := probeConfig(t, "autohealer-system", twoDependents+"namespaceSelector: {matchLabels: {a: b}}")
	p := probe.PreviewOf(pc, "autohealer-system", limit.Builtin(), w)
	if p.Targets != 30 || p.Limit != 6 || p.MissingSecrets != 30 || len(p.MissingSecretNames) != 20 || p.MissingSecretNames[0] != "shoot-00/internal" || p.MissingSecretNames[19] != "shoot-19/internal" {
		t.Errorf("%+v", p)
	}
	if p := probe.PreviewOf(probeConfig(t, "shoot", ""), "autohealer-system", limit.Builtin(), w); p.UnreadableSpec == "" {
		t.Errorf("%+v", p)
	}
}

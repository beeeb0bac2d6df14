package weeder_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

var randomSelector = rapid.Custom(func(t *rapid.T) v1alpha1.LabelSelector {
	value := rapid.SampledFrom([]string{"a", "b", "c"})
	requirement := rapid.Custom(func(t *rapid.T) v1alpha1.LabelSelectorRequirement {
		r := v1alpha1.LabelSelectorRequirement{Key: rapid.SampledFrom([]string{"app", "tier"}).Draw(t, "key"), Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"}).Draw(t, "operator")}
		if r.Operator == "In" || r.Operator == "NotIn" {
			r.Values = rapid.SliceOfN(value, 1, 3).Draw(t, "values")
		}
		return r
	})
	return v1alpha1.LabelSelector{MatchExpressions: rapid.SliceOfN(requirement, 1, 3).Draw(t, "requirements")}
})

var randomServices = rapid.MapOfN(rapid.SampledFrom([]string{"s", "t"}), rapid.Custom(func(t *rapid.T) v1alpha1.DependantSelectors {
	return v1alpha1.DependantSelectors{PodSelectors: rapid.SliceOfN(randomSelector, 1, 2).Draw(t, "selectors")}
}), 1, 2)

// filed is a state beside what it was told.
type filed struct {
	state   *weeder.State
	pods    map[string]*corev1.Pod
	configs map[string]*v1alpha1.WeederConfig
}

func (f *filed) pod(t *rapid.T) {
	name := rapid.SampledFrom([]string{"p-0", "p-1", "p-2", "p-3", "p-4", "p-5"}).Draw(t, "pod")
	if old := f.pods[name]; old != nil && rapid.Bool().Draw(t, "gone") {
		f.state.ForgetPod(key(name), old.UID)
		delete(f.pods, name)
		return
	}
	p := newPod(name, owned(rapid.SampledFrom([]string{"ReplicaSet", "StatefulSet"}).Draw(t, "owner"), "o"))
	p.Labels = map[string]string{}
	for _, k := range []string{"app", "tier"} {
		if value := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, k); value != "" {
			p.Labels[k] = value
		}
	}
	if rapid.Bool().Draw(t, "autohealer's") {
		p.Labels["app.kubernetes.io/name"] = "autohealer"
	}
	f.pods[name] = p
	f.state.ObservePod(weeder.ReadPod(p), at(0))
}

func (f *filed) config(t *rapid.T) {
	name := rapid.SampledFrom([]string{"one", "two"}).Draw(t, "config")
	if old := f.configs[name]; old != nil && rapid.Bool().Draw(t, "gone") {
		f.state.ForgetConfig(old.UID)
		delete(f.configs, name)
		return
	}
	wc := &v1alpha1.WeederConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Generation: 1}}
	if old := f.configs[name]; old != nil {
		wc.Generation = old.Generation + 1
	}
	wc.Spec.ServicesAndDependantSelectors = randomServices.Draw(t, "services")
	if rapid.Bool().Draw(t, "observes") {
		wc.Spec.Mode = v1alpha1.Observe
	}
	c, err := weeder.NewConfig(wc, "ns")
	if err != nil {
		t.Fatal(err)
	}
	f.configs[name] = wc
	f.state.ObserveConfig(c, lifecycle.Active, at(0))
}

func selects(t *rapid.T, wc *v1alpha1.WeederConfig, p *corev1.Pod) bool {
	for _, of := range wc.Spec.ServicesAndDependantSelectors {
		for i := range of.PodSelectors {
			s, err := of.PodSelectors[i].AsSelector()
			if err != nil {
				t.Fatal(err)
			}
			if s.Matches(labels.Set(p.Labels)) {
				return true
			}
		}
	}
	return false
}

// TestWhatIsFoundByLabelsIsAllThereIs: a forecast that looks at few pods and few configs tells what one that looked at all would.
func TestWhatIsFoundByLabelsIsAllThereIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &filed{state: weeder.NewState(limit.Builtin(), "ns"), pods: map[string]*corev1.Pod{}, configs: map[string]*v1alpha1.WeederConfig{}}
		t.Repeat(map[string]func(*rapid.T){"pod": f.pod, "config": f.config, "": func(t *rapid.T) {
			wc := &v1alpha1.WeederConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: rapid.SampledFrom([]string{"one", "three"}).Draw(t, "name")}}
			wc.Spec.ServicesAndDependantSelectors = randomServices.Draw(t, "services")
			p := f.state.Forecast(wc, limit.Builtin(), at(0))
			selected, shared, of, sets := 0, map[string]bool{}, map[string]bool{}, 0
			own, quorum := false, false
			one := randomSelector.Draw(t, "selector")
			s, err := one.AsSelector()
			if err != nil {
				t.Fatal(err)
			}
			for name, pod := range f.pods {
				own = own || pod.Labels["app.kubernetes.io/name"] == "autohealer" && s.Matches(labels.Set(pod.Labels))
				if pod.OwnerReferences[0].Kind == "StatefulSet" {
					sets++
				}
				if !selects(t, wc, pod) {
					continue
				}
				selected++
				quorum = quorum || pod.OwnerReferences[0].Kind == "StatefulSet"
				for _, other := range f.configs {
					if other.Name != wc.Name && other.Spec.Mode != v1alpha1.Observe && selects(t, other, pod) {
						shared[name], of["ns/"+other.Name] = true, true
					}
				}
			}
			quorums := 0
			if quorum && sets >= 3 {
				quorums = 1
			}
			want := fmt.Sprint(selected, len(shared), slices.Sorted(maps.Keys(of)), quorums, own)
			if got := fmt.Sprint(p.SelectedPods, p.SharedPods, p.SharedWith, p.QuorumStatefulSets, f.state.RunsAutohealer("ns", s)); got != want {
				t.Fatalf("selected, shared, with, quorums, Autohealer's: %s; want %s", got, want)
			}
		}})
	})
}

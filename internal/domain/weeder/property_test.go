package weeder_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

func (w *world) drawPod() *corev1.Pod {
	all := slices.Sorted(maps.Keys(w.pods))
	return w.pods[rapid.SampledFrom(all).Draw(w.t, "pod")]
}

func (w *world) drawConfig() *v1alpha1.WeederConfig {
	if len(w.configs) == 0 {
		w.t.Skip("no config")
	}
	return w.configs[rapid.SampledFrom(slices.Sorted(maps.Keys(w.configs))).Draw(w.t, "config")]
}

func (w *world) drawNewPod() {
	w.uids++
	app := rapid.SampledFrom([]string{"api", "db"}).Draw(w.t, "app")
	odd := rapid.SampledFrom([]podOption{backOff, backOff, backOff, waiting, running, ownerless, mirror, terminating}).Draw(w.t, "odd")
	w.addPod(fmt.Sprintf("%s-x%d", app, w.uids), app, backOff, odd)
}

// drawReplacement deletes a pod and makes another of its name, as a StatefulSet does.
func (w *world) drawReplacement() {
	if p := w.drawPod(); p.OwnerReferences != nil && p.Annotations == nil && w.serving[p.Labels["app"]] == nil {
		w.remove(p.Name)
		w.addPod(p.Name, p.OwnerReferences[0].Name, backOff)
	}
}

func (w *world) drawService() {
	s := rapid.SampledFrom(serviceNames).Draw(w.t, "service")
	w.serve(s, rapid.SampledFrom([][]string{nil, nil, {s + "-0"}, {s + "-1"}, {s + "-0", s + "-1"}}).Draw(w.t, "ready")...)
}

func (w *world) drawState() {
	wc := w.drawConfig()
	w.may[wc.Name] = rapid.SampledFrom([]lifecycle.State{lifecycle.Active, lifecycle.Active, lifecycle.Active, lifecycle.NotJudged, lifecycle.Refused, lifecycle.Paused, lifecycle.Forbidden}).Draw(w.t, "state")
	w.observeConfig(wc)
}

// Random events against the naive account: what is deleted may be, and what may be is deleted.
func TestNothingIsDeletedThatMayNotBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		work := func(*rapid.T) { w.work(w.drawPod()) }
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { w.now = w.now.Add(time.Millisecond) },
			"time passes": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{1, 5, 20, 60, 600}).Draw(t, "seconds")) * second)
				w.state.Expire(w.at())
			},
			"a pod is created": func(*rapid.T) { w.drawNewPod() },
			"a pod changes": func(t *rapid.T) {
				w.change(w.drawPod(), rapid.SampledFrom([]podOption{backOff, waiting, running}).Draw(t, "state"))
			},
			"a pod is replaced under its name": func(*rapid.T) { w.drawReplacement() },
			"a Service changes":                func(*rapid.T) { w.drawService() },
			"a config is created": func(*rapid.T) {
				if len(w.configs) < 3 {
					w.createConfig()
				}
			},
			"a config is deleted": func(*rapid.T) {
				wc := w.drawConfig()
				delete(w.configs, wc.Name)
				w.state.ForgetConfig(wc.UID)
			},
			"a config is judged": func(*rapid.T) { w.drawState() },
			"restart": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "often") == 0 {
					w.restart()
				}
			},
			"work":      work,
			"more work": work,
			"all work": func(*rapid.T) {
				for _, k := range w.state.Due(w.at()) {
					w.work(w.pods[k.Name])
				}
			},
		})
	})
}

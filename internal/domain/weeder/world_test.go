package weeder_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// world is a namespace as it really is, with a naive account of what the page on WeederConfig allows in it.
type world struct {
	t     *rapid.T
	state *weeder.State
	now   time.Time
	max   int // deletions in a minute

	pods    map[string]*corev1.Pod
	ran     map[types.UID]time.Duration // without a restart, once there was one
	serving map[string][]string         // ready pods of each Service, in the order of serviceNames
	configs map[string]*v1alpha1.WeederConfig
	may     map[string]lifecycle.State
	windows map[string]*naiveWindow // by config/service

	deletions []*naiveDeletion
	replaces  map[types.UID]*naiveDeletion // by the pod that is its heir
	gone      map[types.UID]bool           // deleted by us
	restarted bool
	uids      int
}

type naiveWindow struct {
	opened, ends time.Time
	deleted      int
}

type naiveDeletion struct {
	at       time.Time
	config   string
	owner    string
	replaces *naiveDeletion // of the pod that its pod had replaced
	replaced bool           // it has an heir
}

var serviceNames = []string{"etcd", "web"}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: noon, max: rapid.SampledFrom([]int{2, 5, 60}).Draw(t, "max"), pods: map[string]*corev1.Pod{}, ran: map[types.UID]time.Duration{},
		serving: map[string][]string{}, configs: map[string]*v1alpha1.WeederConfig{}, may: map[string]lifecycle.State{}, windows: map[string]*naiveWindow{}, gone: map[types.UID]bool{}, replaces: map[types.UID]*naiveDeletion{}}
	w.start()
	for _, s := range serviceNames {
		for i := range 2 {
			w.addPod(fmt.Sprintf("%s-%d", s, i), s, readiness("False", 0))
		}
		w.serve(s)
	}
	for range rapid.IntRange(1, 2).Draw(t, "configs") {
		w.createConfig()
	}
	return w
}

func (w *world) at() timing.Moment { return timing.Moment{Now: w.now, Server: w.now} }

func (w *world) start() {
	limits := limit.Builtin()
	limits.MaxPodDeletionsPerMinute = w.max
	w.state = weeder.NewState(limits, "autohealer-system")
	w.state.MarkSynced(w.at())
}

func (w *world) addPod(name, owner string, options ...podOption) {
	w.uids++
	p := newPod(name, append([]podOption{uid(fmt.Sprint("uid", w.uids)), created(w.now.Sub(noon).Truncate(second)), owned("ReplicaSet", owner)}, options...)...)
	w.pods[name] = p
	w.match(p)
	w.noteRestart(p)
	w.state.ObservePod(weeder.ReadPod(p), w.at())
}

func (w *world) change(p *corev1.Pod, options ...podOption) {
	next := p.DeepCopy()
	next.ResourceVersion = nextVersion()
	for _, o := range options {
		o(next)
	}
	w.pods[p.Name] = next
	w.noteRestart(next)
	w.state.ObservePod(weeder.ReadPod(next), w.at())
}

func (w *world) remove(name string) {
	w.state.ForgetPod(key(name), w.pods[name].UID)
	delete(w.pods, name)
}

// serve makes these the ready pods of a Service.
func (w *world) serve(service string, ready ...string) {
	before := len(w.serving[service]) > 0
	for i := range 2 {
		name := fmt.Sprintf("%s-%d", service, i)
		p := w.pods[name]
		if is := slices.Contains(ready, name); is != slices.Contains(w.serving[service], name) {
			status := map[bool]string{true: "True", false: "False"}[is]
			w.change(p, readiness(status, w.now.Sub(noon).Truncate(second)))
		}
	}
	w.serving[service] = append([]string{}, ready...) // never nil: it is a Service
	for name, wc := range w.configs {
		if len(ready) == 0 {
			delete(w.windows, name+"/"+service)
		}
		if _, names := wc.Spec.ServicesAndDependantSelectors[service]; names && !before && len(ready) > 0 {
			w.windows[name+"/"+service] = &naiveWindow{opened: w.now, ends: w.now.Add(w.watch(wc))}
		}
	}
	w.state.ObserveSlice(w.slice(service), w.at())
}

func (w *world) watch(wc *v1alpha1.WeederConfig) time.Duration {
	d, _ := wc.Spec.WatchDuration.Or(0)
	return d
}

func (w *world) observeConfig(wc *v1alpha1.WeederConfig) {
	c, err := weeder.NewConfig(wc, "autohealer-system")
	if err != nil {
		w.t.Fatal(err)
	}
	w.state.ObserveConfig(c, w.may[wc.Name], w.at())
}

func (w *world) createConfig() {
	w.uids++
	name := fmt.Sprint("config", w.uids)
	spec := "cooldown: " + rapid.SampledFrom([]string{"1s", "10s"}).Draw(w.t, "cooldown") + "\nwatchDuration: " + rapid.SampledFrom([]string{"30s", "2m", "30m"}).Draw(w.t, "watch") +
		fmt.Sprintf("\nmaxRepeatsPerOwner: %d\nmaxDeletionsPerWatch: %d\nmode: %s\nservicesAndDependantSelectors:\n", rapid.IntRange(0, 2).Draw(w.t, "repeats"), rapid.IntRange(1, 5).Draw(w.t, "budget"),
			rapid.SampledFrom([]string{"Enforce", "Enforce", "Enforce", "Observe"}).Draw(w.t, "mode"))
	for _, s := range rapid.SliceOfNDistinct(rapid.SampledFrom(serviceNames), 1, 2, rapid.ID[string]).Draw(w.t, "services") {
		spec += fmt.Sprintf("  %s: {podSelectors: [{matchExpressions: [{key: app, operator: In, values: [%s]}]}]}\n", s, rapid.SampledFrom([]string{"api", "api, db", "db, etcd"}).Draw(w.t, "dependents"))
	}
	wc := newWeederConfig(w.t, "ns", name, spec)
	wc.CreationTimestamp.Time = w.now
	w.configs[name], w.may[name] = wc, lifecycle.Active
	w.firstSight(name)
	w.observeConfig(wc)
}

// firstSight is the page's rule for Services that are Ready at first sight.
func (w *world) firstSight(name string) {
	wc := w.configs[name]
	for s := range wc.Spec.ServicesAndDependantSelectors {
		var since time.Time
		for _, pod := range w.serving[s] {
			if t := w.pods[pod].Status.Conditions[0].LastTransitionTime.Time; since.IsZero() || t.Before(since) {
				since = t
			}
		}
		if before := w.windows[name+"/"+s]; since.IsZero() || w.now.Sub(since) >= w.watch(wc) {
			delete(w.windows, name+"/"+s)
		} else {
			w.windows[name+"/"+s] = &naiveWindow{opened: since, ends: since.Add(w.watch(wc))}
			if before != nil && w.now.Before(before.ends) {
				w.windows[name+"/"+s].deleted = before.deleted
			}
		}
	}
}

// restart is a new process that knows the status that the former one wrote last.
func (w *world) restart() {
	recent := map[string]int{}
	for _, d := range w.deletions {
		if w.now.Sub(d.at) >= time.Hour {
			continue
		}
		if recent[d.config]++; recent[d.config] > 20 || w.configs[d.config] == nil {
			return // more than a status remembers one by one, or a status that is gone with its config
		}
	}
	for name, wc := range w.configs {
		sum, _ := w.state.Summary(wc.UID, w.at())
		wc.Status = sum.WeederConfigStatus
		w.firstSight(name)
	}
	w.restarted = true
	w.start()
	for _, p := range w.pods {
		w.state.ObservePod(weeder.ReadPod(p), w.at())
	}
	for _, s := range serviceNames {
		w.state.ObserveSlice(w.slice(s), w.at())
	}
	for _, name := range slices.Sorted(maps.Keys(w.configs)) {
		w.observeConfig(w.configs[name])
	}
}

// work is a worker's turn for a pod.
func (w *world) work(p *corev1.Pod) {
	plan, next := decideOn(w.state, key(p.Name), w.at(), "")
	if next == weeder.ReadLive {
		w.t.Fatalf("%s: every outcome was told", p.Name)
	}
	if next == weeder.Nothing {
		w.checkHolds(p, plan)
		return
	}
	d := plan.Delete
	wc := w.configs[d.Key.Name]
	if why := w.forbidden(p, wc, d.Service); why != "" || plan.Pod.UID != p.UID {
		w.t.Fatalf("%s is deleted for %s by %s at %s: %s", p.Name, d.Service, wc.Name, w.now.Sub(noon), why)
	}
	repeats, _ := w.past(p)
	if len(d.Before) < repeats {
		w.t.Fatalf("%s is deleted as if it came after %d others, and came after %d", p.Name, len(d.Before), repeats)
	}
	landed := func() {
		w.gone[p.UID] = true
		w.windows[wc.Name+"/"+d.Service].deleted++
		before := w.replaces[p.UID]
		if repeats == 0 { // it replaces nothing any more
			before = nil
		}
		w.deletions = append(w.deletions, &naiveDeletion{at: w.now, config: wc.Name, owner: p.OwnerReferences[0].Name, replaces: before})
	}
	service, _, _ := strings.Cut(p.Name, "-")
	outcome := rapid.SampledFrom([]string{"ok", "ok", "ok", "refused", "lost", "timeout"}).Draw(w.t, "outcome")
	switch {
	case w.serving[service] != nil && (outcome == "ok" || outcome == "timeout"): // its Service loses it, and gets another
		landed()
		w.state.Confirm(p.UID, w.at())
		w.serve(service, slices.DeleteFunc(slices.Clone(w.serving[service]), func(name string) bool { return name == p.Name })...)
		w.remove(p.Name)
		w.addPod(p.Name, service, readiness("False", w.now.Sub(noon)))
	case outcome == "ok":
		landed()
		w.state.Confirm(p.UID, w.at())
		if rapid.Bool().Draw(w.t, "graceful") {
			w.change(p, terminating)
		} else {
			w.remove(p.Name)
		}
	case outcome == "refused":
		w.state.Failed(p.UID)
	case outcome == "lost":
		w.state.ObserveLive(weeder.ReadPod(p), w.at())
	case outcome == "timeout":
		landed()
		w.change(p, terminating)
		w.state.ObserveLive(weeder.ReadPod(w.pods[p.Name]), w.at())
	}
}

// checkHolds: nothing is held back that the page lets go, but for the sake of others that wait, and after a restart, when
// pods count as the replacement of any that was deleted before it.
func (w *world) checkHolds(p *corev1.Pod, plan weeder.Plan) {
	for _, h := range plan.Holds {
		if h.Reason == weeder.HeldByLimit || w.restarted && (h.Reason == weeder.HeldByRepeats || h.Reason == weeder.HeldByCooldown || h.Reason == weeder.HeldByBudget) {
			return
		}
	}
	for _, wc := range w.configs {
		for _, s := range serviceNames {
			if why := w.forbidden(p, wc, s); why == "" {
				w.t.Fatalf("%s could be deleted for %s by %s at %s, and isn't: %v", p.Name, s, wc.Name, w.now.Sub(noon), plan.Holds)
			}
		}
	}
	if !plan.RequeueAt.IsZero() && !plan.RequeueAt.After(w.now) {
		w.t.Fatalf("looks again at %s, at %s", plan.RequeueAt.Sub(noon), w.now.Sub(noon))
	}
}

// slice is the Service's EndpointSlice as it is now.
func (w *world) slice(service string) *discoveryv1.EndpointSlice {
	var endpoints []string
	for i := range 2 {
		name := fmt.Sprintf("%s-%d", service, i)
		if !slices.Contains(w.serving[service], name) {
			name += ":notready"
		}
		endpoints = append(endpoints, name)
	}
	return newSlice(service, service, endpoints...)
}

package weeder_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// fleet is a Deployment whose pods all crash-loop, and a Service that flaps. Which pod came in place of which is known here, and
// isn't told.
type fleet struct {
	t     *rapid.T
	state *weeder.State
	wc    *v1alpha1.WeederConfig
	now   time.Time
	skew  time.Duration // by which the API server's clock is known wrongly
	etcd  *corev1.Pod

	pods map[string]*replica
	owed []*lineage // pods that the Deployment has yet to create; nil for one that replaces nothing we deleted
	sent []string
	made int

	lineages []*lineage
	// deletions are when they were decided, first those of pods that the manager took for none's replacement.
	deletions, first []time.Time
}

// lineage is a pod that replaced nothing, the one that replaced it when it was deleted, and so on. It lived then last.
type lineage struct{ lived time.Time }

type replica struct {
	*corev1.Pod
	lineage *lineage
	seen    bool
	sent    time.Time // when its deletion was decided
	first   bool      // it was taken for none's replacement then
}

func newFleet(t *rapid.T) *fleet {
	f := &fleet{t: t, now: noon, pods: map[string]*replica{}}
	f.wc = newWeederConfig(t, "ns", "wc", fmt.Sprintf("watchDuration: 30m\ncooldown: 1s\nmaxDeletionsPerWatch: 10000\nmaxRepeatsPerOwner: %d\nservicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: api}}]}}",
		rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(t, "repeats")))
	f.etcd = newPod("etcd-0", readiness("False", 0))
	f.start()
	for range rapid.SampledFrom([]int{1, 2, 3, 8}).Draw(t, "replicas") {
		f.create(nil)
	}
	f.seeAll()
	f.flap()
	return f
}

func (f *fleet) at() timing.Moment { return timing.Moment{Now: f.now, Server: f.now.Add(f.skew)} }

func (f *fleet) start() {
	limits := limit.Builtin()
	limits.MaxPodDeletionsPerMinute = 10_000
	f.state = weeder.NewState(limits, "autohealer-system")
	f.state.ObservePod(weeder.ReadPod(f.etcd), f.at())
	f.state.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0"), f.at())
	c, err := weeder.NewConfig(f.wc, "autohealer-system")
	if err != nil {
		f.t.Fatal(err)
	}
	f.state.ObserveConfig(c, lifecycle.Active, f.at())
	f.state.MarkSynced(f.at())
}

// restart is another process, which has of this one what it wrote into the status before each deletion.
func (f *fleet) restart() {
	for len(f.sent) > 0 {
		f.answer()
	}
	sum, _ := f.state.Summary(f.wc.UID, f.at())
	f.wc.Status = sum.WeederConfigStatus
	for _, p := range f.pods {
		p.seen = false
	}
	f.start()
	f.seeAll()
}

func (f *fleet) flap() {
	f.state.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0:notready"), f.at())
	f.now = f.now.Add(time.Millisecond)
	f.etcd = newPod("etcd-0", readySince(f.now.Sub(noon)))
	f.state.ObservePod(weeder.ReadPod(f.etcd), f.at())
	f.state.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0"), f.at())
}

func (f *fleet) create(of *lineage) {
	if of == nil {
		of = &lineage{}
		f.lineages = append(f.lineages, of)
	}
	f.made++
	p := newPod(fmt.Sprintf("api-%03d", f.made), created(f.now.Sub(noon).Truncate(second)), backOff)
	f.pods[p.Name] = &replica{Pod: p, lineage: of}
}

// draw gives one of the pods, as they are or aren't known to the manager.
func (f *fleet) draw(seen bool) *replica {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(f.pods)), func(name string) bool { return f.pods[name].seen != seen })
	if len(names) == 0 {
		return nil
	}
	return f.pods[rapid.SampledFrom(names).Draw(f.t, "pod")]
}

// see lets the manager see a pod that it hasn't, and gives it.
func (f *fleet) see() *replica {
	p := f.draw(false)
	if p != nil {
		p.seen = true
		f.state.ObservePod(weeder.ReadPod(p.Pod), f.at())
	}
	return p
}

func (f *fleet) seeAll() {
	for f.see() != nil {
	}
}

func (f *fleet) remove(p *replica) {
	p.lineage.lived = f.now
	delete(f.pods, p.Name)
	f.state.ForgetPod(key(p.Name), p.UID)
}

// decide is a worker's turn for a pod. The answer of the API server may take a while.
func (f *fleet) decide(p *replica) {
	if p == nil || !p.seen || !p.sent.IsZero() {
		return
	}
	plan, next := decideOn(f.state, key(p.Name), f.at(), "")
	if next != weeder.Delete {
		return
	}
	p.sent, p.first = f.now, len(plan.Delete.Before) == 0
	f.sent = append(f.sent, p.Name)
}

func (f *fleet) decideAll() {
	for _, name := range slices.Sorted(maps.Keys(f.pods)) {
		f.decide(f.pods[name])
	}
}

// settle lets all that was begun be done, and seen.
func (f *fleet) settle() {
	for len(f.sent) > 0 {
		f.answer()
	}
	for len(f.owed) > 0 {
		f.pay()
	}
	f.seeAll()
}

// pay creates one of the pods that the Deployment owes.
func (f *fleet) pay() {
	if len(f.owed) == 0 {
		return
	}
	of := rapid.SampledFrom(f.owed).Draw(f.t, "owed")
	i := slices.Index(f.owed, of)
	f.owed = slices.Delete(f.owed, i, i+1)
	f.create(of)
}

// answer is the API server's to the first request: the pod is deleted, or isn't.
func (f *fleet) answer() {
	if len(f.sent) == 0 {
		return
	}
	p := f.pods[f.sent[0]]
	f.sent = f.sent[1:]
	if rapid.SampledFrom([]string{"ok", "ok", "ok", "ok", "refused"}).Draw(f.t, "answer") == "refused" {
		p.sent = time.Time{}
		f.state.Failed(p.UID)
		return
	}
	f.land(p)
}

// land lets a deletion happen.
func (f *fleet) land(p *replica) {
	f.state.Confirm(p.UID, f.at())
	f.remove(p)
	f.deletions = append(f.deletions, p.sent)
	if p.first {
		f.first = append(f.first, p.sent)
	}
	f.owed = append(f.owed, p.lineage)
	f.count()
}

// count: in any hour no more pods are deleted than once, and maxRepeatsPerOwner times again, for each lineage that there was. What
// is known of the clocks leaves some seconds.
func (f *fleet) count() {
	hour, lineages := f.now.Add(4*second-time.Hour), 0
	for _, p := range f.pods {
		p.lineage.lived = f.now
	}
	for _, l := range f.lineages {
		if l.lived.After(hour) {
			lineages++
		}
	}
	within := func(deletions []time.Time) int {
		return len(slices.DeleteFunc(slices.Clone(deletions), func(d time.Time) bool { return !d.After(hour) }))
	}
	if first := within(f.first); first > lineages {
		f.t.Fatalf("%d pods were deleted within an hour as if they replaced nothing, of %d lineages", first, lineages)
	}
	if deleted, most := within(f.deletions), lineages*(1+int(*f.wc.Spec.MaxRepeatsPerOwner)); deleted > most {
		f.t.Fatalf("%d pods of %d lineages were deleted within an hour, %d may be", deleted, lineages, most)
	}
}

func (f *fleet) wait(d time.Duration) {
	f.now = f.now.Add(d)
	f.skew = time.Duration(rapid.SampledFrom([]int{-900, -400, 0, 400, 900}).Draw(f.t, "skew")) * time.Millisecond
}

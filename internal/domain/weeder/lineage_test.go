package weeder_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
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

func (f *fleet) at() weeder.Moment { return weeder.Moment{Now: f.now, Server: f.now.Add(f.skew)} }

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
	f.wc.Status = storedStatus(sum)
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

// A Service that flaps doesn't defeat the back-off, whatever the replicas, in whatever order pods are created, seen and deleted, and
// however often another process takes over.
func TestEachLineageIsDeletedOnceAndAsOftenAgainAsItMay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t)
		steps := map[string]func(){
			"the manager decides on all":          func() { f.decideAll() },
			"the API server answers":              f.answer,
			"it answers another request":          f.answer,
			"the Deployment creates what it owes": f.pay,
			"it creates another":                  f.pay,
			"the manager sees a pod":              func() { f.see() },
			"it sees another":                     func() { f.see() },
			"all that is owed is there, and seen": f.settle,
			"a moment passes":                     func() { f.wait(1500 * time.Millisecond) },
		}
		rare := map[string]func(){
			"the Service flaps": func() {
				f.wait(time.Duration(rapid.SampledFrom([]int{1, 10, 60, 600, 1500}).Draw(t, "seconds")) * second)
				f.state.Expire(f.at())
				f.flap()
			},
			"the Deployment is scaled up": func() { f.create(nil) },
			"it is scaled down": func() {
				if p := f.draw(true); len(f.owed) > 0 {
					f.owed = f.owed[1:]
				} else if p != nil && p.sent.IsZero() {
					f.remove(p)
				}
			},
			"others delete a pod": func() {
				if p := f.draw(true); p != nil && p.sent.IsZero() {
					f.remove(p)
					f.owed = append(f.owed, nil)
				}
			},
			"another process follows": f.restart,
		}
		often, rarely := slices.Sorted(maps.Keys(steps)), slices.Sorted(maps.Keys(rare))
		for range 20 {
			for range 12 {
				steps[rapid.SampledFrom(often).Draw(t, "step")]()
			}
			if rapid.SampledFrom([]bool{true, false}).Draw(t, "settled") {
				f.settle()
			}
			rare[rapid.SampledFrom(rarely).Draw(t, "event")]()
		}
	})
}

// Every recovery helps every pod once, as often as it may be deleted, as soon as its own cooldown is over: none waits for what became
// of the others since it was seen.
func TestNoPodWaitsForAnotherOfItsWorkload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, cooled := newFleet(t), map[string]time.Time{}
		see := func() (any bool) {
			p := f.see()
			if p != nil {
				cooled[p.Name] = f.now.Add(second)
			}
			return p != nil
		}
		for round := range 1 + int(*f.wc.Spec.MaxRepeatsPerOwner) {
			f.flap()
			for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(f.pods))).Draw(t, "order") {
				if f.now.Before(cooled[name]) {
					f.now = cooled[name]
				}
				p := f.pods[name]
				if f.decide(p); p.sent.IsZero() || p.first != (round == 0) {
					t.Fatalf("%s isn't deleted, or not as it should be, in round %d", name, round)
				}
				f.sent = nil
				f.land(p)
				for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "replaced") {
					f.pay()
					see()
				}
			}
			for len(f.owed) > 0 {
				f.pay()
			}
			for see() {
			}
		}
		f.flap()
		f.wait(time.Minute)
		if f.decideAll(); len(f.sent) > 0 {
			t.Fatalf("%s is deleted once more", f.sent[0])
		}
	})
}

// What was made before the second deletion, and is seen after what was made after it, still has the first to come after.
func TestInWhateverOrderPodsAreSeenEachReplacesOne(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI+"maxRepeatsPerOwner: 0", newPod("api-a", backOff), newPod("api-b", backOff))
	recoverEtcd(y, 0)
	deleted(t, y, "api-a", 0)
	deleted(t, y, "api-b", 10*second)
	y.ObservePod(weeder.ReadPod(newPod("api-d", created(10*second), backOff)), at(11*second))
	y.ObservePod(weeder.ReadPod(newPod("api-c", created(second), backOff)), at(12*second))
	y.ObservePod(weeder.ReadPod(newPod("api-e", created(12*second), backOff)), at(12*second))
	for name, want := range map[string]string{"api-d": "MaxRepeatsPerOwner", "api-c": "MaxRepeatsPerOwner", "api-e": "delete"} {
		expect(t, name, decide(y, name, 30*second), want)
	}
}

// Of six pods one crash-loops for a reason of its own.
func TestABadPodOfManyIsDeletedAsOftenAsIfItWereAlone(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 6 {
		pods = append(pods, newPod(fmt.Sprintf("api-%d", i), backOff))
	}
	y := watchingEtcd(t, forHalfAnHour, pods...)
	recoverEtcd(y, 0)
	for i := range 6 {
		deleted(t, y, fmt.Sprintf("api-%d", i), 0)
	}
	for i := range 6 {
		y.ObservePod(weeder.ReadPod(newPod(fmt.Sprintf("api-r%d", i), created(0), backOff)), at(second))
	}
	bad := "api-r5"
	for i := 1; i <= 3; i++ {
		now := time.Duration(i) * 20 * second
		deleted(t, y, bad, now)
		bad = fmt.Sprint("api-bad", i)
		y.ObservePod(weeder.ReadPod(newPod(bad, created(now), backOff)), at(now+second))
	}
	plan, next := decideOn(y, key(bad), at(5*time.Minute), "")
	expect(t, "the bad one", verdict(plan, next), "MaxRepeatsPerOwner")
	expect(t, "why", plan.Holds[0].Message, "4 pods of ReplicaSet/api that it replaced one after the other were deleted within an hour, maxRepeatsPerOwner is 3")
	for i := range 5 {
		expect(t, "another", decide(y, fmt.Sprintf("api-r%d", i), 5*time.Minute), "delete again")
	}
	y.ObservePod(weeder.ReadPod(newPod("api-more", created(5*time.Minute), backOff)), at(5*time.Minute))
	expect(t, "one more replica counts as a replacement", decide(y, "api-more", 5*time.Minute), "Cooldown")
}

// A pod that was taken for the replacement of one that wasn't deleted after all replaces another, or none.
func TestADeletionThatFailedHasNoHeir(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI+"maxRepeatsPerOwner: 0", newPod("api-a", backOff), newPod("api-b", backOff), newPod("api-c", backOff))
	recoverEtcd(y, 0)
	deleted(t, y, "api-a", 0)
	for _, name := range []string{"api-b", "api-c"} {
		expect(t, name, decide(y, name, second), "delete")
	}
	for _, name := range []string{"api-d", "api-e"} {
		y.ObservePod(weeder.ReadPod(newPod(name, created(second), backOff)), at(2*second))
	}
	for _, name := range []string{"api-b", "api-c"} {
		y.Failed(types.UID(name + "-uid"))
	}
	verdicts := decide(y, "api-d", 20*second) + ", " + decide(y, "api-e", 20*second)
	if verdicts != "delete, MaxRepeatsPerOwner" && verdicts != "MaxRepeatsPerOwner, delete" {
		t.Errorf("the new ones: %s", verdicts)
	}
	expect(t, "what wasn't deleted", decide(y, "api-b", 20*second), "delete")

	y = watchingEtcd(t, etcdForAPI+"maxRepeatsPerOwner: 0", newPod("api-a", backOff))
	recoverEtcd(y, 0)
	expect(t, "the only one", decide(y, "api-a", 0), "delete")
	y.Failed("api-a-uid")
	y.ObservePod(weeder.ReadPod(newPod("api-b", created(second), backOff)), at(second))
	expect(t, "one that comes after it failed", decide(y, "api-b", second), "delete")
}

// News of a pod may come when it is gone, and its replacement is there.
func TestAPodThatIsSeenAsItGoesTakesNobodysPlace(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI, newPod("api-a", backOff))
	recoverEtcd(y, 0)
	deleted(t, y, "api-a", 0)
	y.ObservePod(weeder.ReadPod(newPod("api-x", backOff, created(0), terminating)), at(second))
	y.ObservePod(weeder.ReadPod(newPod("api-b", backOff, created(0))), at(second))
	expect(t, "the replacement", decide(y, "api-b", 2*second), "Cooldown")
}

// The config that deleted them allowed two repeats; it allows none now, or another doesn't.
func TestWhatMayBeDeletedAgainIsWhatTheConfigSaysNow(t *testing.T) {
	y := watchingEtcd(t, forHalfAnHour+"maxRepeatsPerOwner: 2", newPod("api-0", backOff))
	recoverEtcd(y, 0)
	for i := range 3 {
		now := time.Duration(i) * time.Minute
		deleted(t, y, fmt.Sprint("api-", i), now)
		y.ObservePod(weeder.ReadPod(newPod(fmt.Sprint("api-", i+1), created(now), backOff)), at(now))
	}
	y.ObserveConfig(newConfig(t, "wc", forHalfAnHour+"maxRepeatsPerOwner: 0"), lifecycle.Active, at(3*time.Minute))
	plan, next := decideOn(y, key("api-3"), at(3*time.Minute), "")
	expect(t, "the third again", verdict(plan, next), "MaxRepeatsPerOwner")
	expect(t, "until the last of them is forgotten", plan.Holds[0].At, noon.Add(62*time.Minute))
}

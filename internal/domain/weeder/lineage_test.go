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

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

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

func TestAWorkloadOfAnotherNamespaceTakesNobodysPlace(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI, newPod("api-a", backOff))
	recoverEtcd(y, 0)
	deleted(t, y, "api-a", 0)
	other := newPod("api-x", backOff, created(0))
	other.Namespace = "another"
	y.ObservePod(weeder.ReadPod(other), at(second))
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

package weeder_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

func TestMaxDeletionsPerWatch(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI+"maxDeletionsPerWatch: 2", newPod("api-1", backOff), newPod("api-2", backOff), newPod("api-3", backOff))
	recoverEtcd(y, 0)
	expect(t, "first", decide(y, "api-1", 0), "delete")
	expect(t, "second", decide(y, "api-2", 0), "delete")
	expect(t, "third", decide(y, "api-3", 0), "MaxDeletionsPerWatch")
	expect(t, "due once a deletion failed", names(y.Failed("api-2-uid")), "api-3")
	expect(t, "third", decide(y, "api-3", 0), "delete")
	expect(t, "second", decide(y, "api-2", 0), "MaxDeletionsPerWatch")
}

func TestReplacementsWaitAndAreCounted(t *testing.T) {
	y := watchingEtcd(t, "watchDuration: 30m\n"+etcdForAPI[len("\nwatchDuration: 2m\n"):]+"cooldown: 20s\nmaxRepeatsPerOwner: 2",
		newPod("api-a", backOff), newPod("api-b", backOff), newPod("api-c", running))
	recoverEtcd(y, 0)
	deleted(t, y, "api-a", 0)
	deleted(t, y, "api-b", 0) // crash-looping when the window opened: at once
	replace := func(name string, d time.Duration) {
		y.ObservePod(weeder.ReadPod(newPod(name, created(d), backOff)), at(d))
	}

	replace("api-d", 5*second)
	plan, next := decideOn(y, key("api-d"), at(6*second), "")
	expect(t, "a replacement", verdict(plan, next), "Cooldown")
	expect(t, "looks again", plan.RequeueAt, noon.Add(20*second))

	y.ObservePod(weeder.ReadPod(newPod("api-c", backOff)), at(10*second))
	deleted(t, y, "api-c", 10*second) // its first crash loop: at once, too

	expect(t, "a moment before the cooldown is over", decide(y, "api-d", 19*second), "Cooldown")
	expect(t, "after it, whatever else was deleted", decide(y, "api-d", 20*second), "delete again")
	replace("api-e", 40*second)
	expect(t, "the second repeat", decide(y, "api-e", 60*second), "delete again")
	replace("api-f", 80*second)
	plan, next = decideOn(y, key("api-f"), at(100*second), "")
	expect(t, "the third", verdict(plan, next), "MaxRepeatsPerOwner")
	expect(t, "it isn't over before the window is", plan.RequeueAt, time.Time{})

	// Another workload has a count of its own.
	y.ObservePod(weeder.ReadPod(newPod("api-z", backOff, owned("ReplicaSet", "z"))), at(101*second))
	expect(t, "another workload's", decide(y, "api-z", 101*second), "delete")

	// The hour slides: the first of them, of 0s, is forgotten at 1h.
	failEtcd(y, 58*time.Minute)
	recoverEtcd(y, 59*time.Minute)
	plan, next = decideOn(y, key("api-f"), at(59*time.Minute), "")
	expect(t, "within the hour", verdict(plan, next), "MaxRepeatsPerOwner")
	expect(t, "looks again", plan.RequeueAt, noon.Add(time.Hour))
	expect(t, "a moment before", decide(y, "api-f", time.Hour-second), "MaxRepeatsPerOwner")
	expect(t, "after it", decide(y, "api-f", time.Hour), "delete again")
}

// Ten minutes without a restart, and the kubelet forgets a back-off.
func TestAReplacementThatRanWellIsNoneAnyMore(t *testing.T) {
	sidecar := func(p *corev1.Pod) {
		restartedAfter(time.Hour)(p)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, newPod("x", restartedAfter(second)).Status.ContainerStatuses[0])
	}
	for name, test := range map[string]struct {
		again podOption // how it is when it is restarted
		want  string
	}{
		"soon":                             {restartedAfter(2 * time.Minute), "MaxRepeatsPerOwner"},
		"within 10 minutes":                {restartedAfter(10*time.Minute - second), "MaxRepeatsPerOwner"},
		"later":                            {restartedAfter(10 * time.Minute), "delete"},
		"one of its containers soon":       {sidecar, "MaxRepeatsPerOwner"},
		"it was Pending, and nobody knows": {running, "MaxRepeatsPerOwner"},
	} {
		t.Run(name, func(t *testing.T) {
			y := watchingEtcd(t, etcdForAPI+"maxRepeatsPerOwner: 0", newPod("api-a", backOff))
			recoverEtcd(y, 0)
			deleted(t, y, "api-a", 0)
			y.ObservePod(weeder.ReadPod(newPod("api-b", created(5*second))), at(5*second))
			failEtcd(y, 20*time.Minute)
			y.ObservePod(weeder.ReadPod(newPod("api-b", created(5*second), test.again)), at(20*time.Minute))
			y.ObservePod(weeder.ReadPod(newPod("api-b", created(5*second), backOff)), at(21*time.Minute))
			recoverEtcd(y, 22*time.Minute)
			expect(t, "in the next window", decide(y, "api-b", 22*time.Minute), test.want)
		})
	}
	t.Run("nobody saw it run", func(t *testing.T) {
		y := watchingEtcd(t, etcdForAPI+"maxRepeatsPerOwner: 0", newPod("api-a", backOff))
		recoverEtcd(y, 0)
		deleted(t, y, "api-a", 0)
		failEtcd(y, 20*time.Minute)
		y.ObservePod(weeder.ReadPod(newPod("api-b", created(5*second), backOff)), at(20*time.Minute))
		recoverEtcd(y, 21*time.Minute)
		expect(t, "in the next window", decide(y, "api-b", 21*time.Minute), "MaxRepeatsPerOwner")
	})
}

func TestNoRepeatsAtAll(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI+"maxRepeatsPerOwner: 0", newPod("api-a", backOff), newPod("api-b", running))
	recoverEtcd(y, 0)
	deleted(t, y, "api-a", 0)
	y.ObservePod(weeder.ReadPod(newPod("api-c", created(second), backOff)), at(60*second))
	plan, next := decideOn(y, key("api-c"), at(60*second), "")
	expect(t, "a replacement", verdict(plan, next), "MaxRepeatsPerOwner")
	expect(t, "looks again", plan.RequeueAt, time.Time{})
	y.ObservePod(weeder.ReadPod(newPod("api-b", backOff)), at(60*second))
	expect(t, "one that was there before", decide(y, "api-b", 60*second), "delete")
}

// A StatefulSet's replacement has its predecessor's name.
func TestAPodOfTheSameNameIsAnother(t *testing.T) {
	set := owned("StatefulSet", "api")
	y := watchingEtcd(t, etcdForAPI, newPod("api-0", set, backOff))
	recoverEtcd(y, 0)
	expect(t, "first", decide(y, "api-0", 0), "delete")
	y.Confirm("api-0-uid", at(0))
	expect(t, "the same pod, seen late", names(y.ObservePod(weeder.ReadPod(newPod("api-0", set, waiting)), at(second))), "")
	expect(t, "the same pod, seen late", decide(y, "api-0", second), "")
	y.ObservePod(weeder.ReadPod(newPod("api-0", set, uid("second"), created(2*second))), at(2*second))
	expect(t, "its replacement crash-loops", names(y.ObservePod(weeder.ReadPod(newPod("api-0", set, uid("second"), created(2*second), backOff)), at(8*second))), "api-0")
	expect(t, "its replacement", decide(y, "api-0", 8*second), "Cooldown")
	expect(t, "its replacement, later", decide(y, "api-0", 10*second), "delete again")
	y.Failed("api-0-uid") // late news of the first
	expect(t, "news of another pod change nothing", decide(y, "api-0", 10*second), "read live")
}

// A slow API server takes a deletion long after it was decided: what counts from it counts from then.
func TestCooldownAndMinuteCountFromWhenADeletionWasDone(t *testing.T) {
	limits := limit.Builtin()
	limits.MaxPodDeletionsPerMinute = 2
	for name, watched := range map[string]bool{"the answer is first": false, "the watch is first": true} {
		t.Run(name, func(t *testing.T) {
			y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff), newPod("api-9", backOff, owned("StatefulSet", "other")))
			y.SetLimits(limits)
			recoverEtcd(y, 0)
			expect(t, "at once", decide(y, "api-1", 0), "delete")
			if watched {
				y.ForgetPod(key("api-1"), "api-1-uid")
			}
			y.Confirm("api-1-uid", at(9*second))
			y.ForgetPod(key("api-1"), "api-1-uid")
			y.ObservePod(weeder.ReadPod(newPod("api-2", created(9*second), backOff)), at(12*second))
			plan, next := decideOn(y, key("api-2"), at(12*second), "")
			expect(t, "its replacement", verdict(plan, next), "Cooldown")
			expect(t, "looks again", plan.RequeueAt, noon.Add(19*second))
			expect(t, "a moment before", decide(y, "api-2", 18*second), "Cooldown")
			deleted(t, y, "api-2", 19*second)
			expect(t, "a minute after the first was decided", decide(y, "api-9", 61*second), "MaxPodDeletionsPerMinute")
			expect(t, "a minute after it was done", decide(y, "api-9", 69*second), "delete")
		})
	}
}

// A workload's pods can be made, crash and be deleted within one second of the API server's clock.
func TestSiblingsOfTheSameSecondAreNoReplacements(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI, newPod("api-a", created(0), backOff), newPod("api-b", created(0), backOff))
	recoverEtcd(y, 300*time.Millisecond)
	deleted(t, y, "api-a", 400*time.Millisecond)
	expect(t, "the sibling", decide(y, "api-b", 500*time.Millisecond), "delete")
	y.ObservePod(weeder.ReadPod(newPod("api-c", created(0), backOff)), at(600*time.Millisecond))
	expect(t, "the replacement", decide(y, "api-c", 700*time.Millisecond), "Cooldown")
}

func TestMaxPodDeletionsPerMinute(t *testing.T) {
	limits := limit.Builtin()
	limits.MaxPodDeletionsPerMinute = 2
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff), newPod("api-2", backOff), newPod("api-3", backOff), newPod("api-4", backOff), newPod("api-5", backOff))
	y.SetLimits(limits)
	recoverEtcd(y, 0)
	deleted(t, y, "api-1", 0)
	deleted(t, y, "api-2", 10*second)
	expect(t, "third", decide(y, "api-3", 20*second), "MaxPodDeletionsPerMinute")
	expect(t, "fourth", decide(y, "api-4", 20*second), "MaxPodDeletionsPerMinute")
	plan, next := decideOn(y, key("api-5"), at(55*second), "")
	expect(t, "fifth", verdict(plan, next), "MaxPodDeletionsPerMinute")
	expect(t, "its place is free", plan.Holds[0].At, noon.Add(55*second+time.Minute))
	expect(t, "it looks earlier, those before it may leave", plan.RequeueAt, noon.Add(65*second))
	expect(t, "a place is free, and another waits longer", decide(y, "api-4", 60*second), "MaxPodDeletionsPerMinute")
	deleted(t, y, "api-3", 60*second)
	expect(t, "no place", decide(y, "api-4", 61*second), "MaxPodDeletionsPerMinute")
	y.ObservePod(weeder.ReadPod(newPod("api-4", running)), at(62*second)) // it recovered by itself and leaves the queue
	deleted(t, y, "api-5", 70*second)
}

func TestAnUncertainDeletionIsReadLive(t *testing.T) {
	for name, test := range map[string]struct {
		live *corev1.Pod // nil: gone
		want string
	}{
		"it is gone":               {nil, ""},
		"it is terminating":        {newPod("api-1", backOff, terminating), ""},
		"it is there as before":    {newPod("api-1", backOff), "delete"},
		"it is there and runs":     {newPod("api-1", running), ""},
		"it is another by now":     {newPod("api-1", uid("second"), created(0), backOff), "Cooldown"},
		"the live read is of then": {func() *corev1.Pod { p := newPod("api-1", backOff); p.ResourceVersion = "1"; return p }(), "delete"},
	} {
		t.Run(name, func(t *testing.T) {
			y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff))
			recoverEtcd(y, 0)
			expect(t, "first", decide(y, "api-1", 0), "delete")
			expect(t, "once more", decide(y, "api-1", second), "read live")
			if test.live == nil {
				y.ForgetPod(key("api-1"), "api-1-uid")
			} else {
				if test.live.ResourceVersion != "1" {
					test.live.ResourceVersion = nextVersion()
				}
				y.ObserveLive(weeder.ReadPod(test.live), at(2*second))
			}
			expect(t, "after the live read", decide(y, "api-1", 2*second), test.want)
			sum, _ := y.Summary("wc-uid", at(2*second))
			wantDeleted := int64(1)
			if name == "it is there and runs" {
				wantDeleted = 0
			}
			expect(t, "deleted", sum.Deleted, wantDeleted)
		})
	}
}

func TestAFailedDeletionGivesItsPlaceBack(t *testing.T) {
	limits := limit.Builtin()
	limits.MaxPodDeletionsPerMinute = 1
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff), newPod("api-2", backOff))
	y.SetLimits(limits)
	recoverEtcd(y, 0)
	expect(t, "first", decide(y, "api-1", 0), "delete")
	expect(t, "second", decide(y, "api-2", 0), "MaxPodDeletionsPerMinute")
	expect(t, "due once the first failed", names(y.Failed("api-1-uid")), "api-2")
	expect(t, "first, behind the other", decide(y, "api-1", 0), "MaxPodDeletionsPerMinute")
	expect(t, "second", decide(y, "api-2", 0), "delete")
}

func TestWhoseWindowIsOverWaitsNoMore(t *testing.T) {
	limits := limit.Builtin()
	limits.MaxPodDeletionsPerMinute = 1
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff), newPod("api-2", backOff), newPod("api-3", backOff))
	y.SetLimits(limits)
	recoverEtcd(y, 0)
	deleted(t, y, "api-1", 0)
	expect(t, "second", decide(y, "api-2", 0), "MaxPodDeletionsPerMinute")
	expect(t, "second, after the window", decide(y, "api-2", 2*time.Minute), "")
	failEtcd(y, 3*time.Minute)
	recoverEtcd(y, 4*time.Minute)
	deleted(t, y, "api-3", 4*time.Minute)
}

// TestWhoWaitsInAnotherWindowKeepsItsPlace: of two Services that it depends on one fails again.
func TestWhoWaitsInAnotherWindowKeepsItsPlace(t *testing.T) {
	limits := limit.Builtin()
	limits.MaxPodDeletionsPerMinute = 1
	y := watchingEtcd(t, "\nservicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: api}}]}, db: {podSelectors: [{matchLabels: {role: front}}]}}\n",
		newPod("api-1", backOff), newPod("api-2", backOff, labelled("role", "front")), newPod("api-3", backOff))
	y.SetLimits(limits)
	y.ObservePod(weeder.ReadPod(newPod("db-0", readiness("False", -time.Hour))), at(-second))
	y.ObserveSlice(newSlice("db", "db", "db-0:notready"), at(-second))
	recoverEtcd(y, 0)
	y.ObservePod(weeder.ReadPod(newPod("db-0", readySince(0))), at(0))
	y.ObserveSlice(newSlice("db", "db", "db-0"), at(0))
	deleted(t, y, "api-1", 0)
	expect(t, "the second", decide(y, "api-2", second), "MaxPodDeletionsPerMinute,MaxPodDeletionsPerMinute")
	expect(t, "the third", decide(y, "api-3", 2*second), "MaxPodDeletionsPerMinute")
	y.ObserveSlice(newSlice("db", "db", "db-0:notready"), at(3*second))
	expect(t, "the third, when a place is free", decide(y, "api-3", 60*second), "MaxPodDeletionsPerMinute")
	deleted(t, y, "api-2", 60*second)
}

// Whoever deletes or replaces a pod while our request is on its way, the watch may tell of it before the answer does.
func TestADeletionThatFailedForAPodThatIsGoneGivesItsPlaceBack(t *testing.T) {
	for name, goes := range map[string]func(*weeder.State){
		"gone": func(y *weeder.State) { y.ForgetPod(key("api-1"), "api-1-uid") },
		"replaced": func(y *weeder.State) {
			y.ObservePod(weeder.ReadPod(newPod("api-1", uid("other"), running)), at(second))
		},
	} {
		t.Run(name, func(t *testing.T) {
			y := watchingEtcd(t, etcdForAPI+"maxDeletionsPerWatch: 1\n", newPod("api-1", backOff), newPod("api-2", backOff))
			recoverEtcd(y, 0)
			plan, _ := decideOn(y, key("api-1"), at(0), "")
			goes(y)
			expect(t, "the other one meanwhile", decide(y, "api-2", second), "MaxDeletionsPerWatch")
			expect(t, "may have room", names(y.Failed(plan.Pod.UID)), "api-2")
			expect(t, "the other one then", decide(y, "api-2", second), "delete")
			sum, _ := y.Summary("wc-uid", at(second))
			expect(t, "deletions", sum.Deleted, 1)
			expect(t, "given back twice", names(y.Failed(plan.Pod.UID)), "")
		})
	}
}

func TestADeletionThatTheWatchTellsBeforeTheAnswerCounts(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff))
	recoverEtcd(y, 0)
	plan, _ := decideOn(y, key("api-1"), at(0), "")
	y.ForgetPod(key("api-1"), "api-1-uid")
	y.Confirm(plan.Pod.UID, at(0))
	y.Failed(plan.Pod.UID)
	sum, _ := y.Summary("wc-uid", at(second))
	expect(t, "deletions", sum.Deleted, 1)
}

// Whoever has no room in a budget looks again only when a place is given back, and not all are woken for one.
func TestEachPlaceThatIsGivenBackWakesSomebody(t *testing.T) {
	const budget = 20
	for name, atOnce := range map[string]bool{"all at once": true, "one after the other": false} {
		t.Run(name, func(t *testing.T) {
			y := watchingEtcd(t, fmt.Sprint(etcdForAPI, "maxDeletionsPerWatch: ", budget))
			y.SetLimits(limit.Limits{MaxPodDeletionsPerMinute: 1000})
			for i := range 3 * budget {
				y.ObservePod(weeder.ReadPod(newPod(fmt.Sprintf("api-%02d", i), backOff)), at(-second))
			}
			var given []types.UID
			for _, k := range recoverEtcd(y, 0) {
				if plan, next := decideOn(y, k, at(second), ""); next == weeder.Delete {
					given = append(given, plan.Pod.UID)
				}
			}
			expect(t, "deletions", len(given), budget)
			woken, again := sets.New[types.NamespacedName](), 0
			look := func() {
				for k := range woken {
					if decide(y, k.Name, 2*second) == "delete" {
						again++
					}
				}
				woken.Clear()
			}
			for _, uid := range given {
				woken.Insert(y.Failed(uid)...)
				y.ForgetPod(key(strings.TrimSuffix(string(uid), "-uid")), uid) // by somebody else's doing
				if !atOnce {
					look()
				}
			}
			look()
			expect(t, "deletions in their place", again, budget)
		})
	}
}

// What another process did is stamped when it is taken over, and our clock may have been ahead then.
func TestWhatOthersDidCountsWhateverOurOwnDeletions(t *testing.T) {
	ahead := timing.Moment{Now: noon.Add(time.Minute + 4*second), Server: noon.Add(4 * second)}
	wc := newWeederConfig(t, "ns", "wc", etcdForAPI)
	wc.Status.RecentDeletions = []v1alpha1.PodDeletion{{Time: metav1.NewTime(noon.Add(3 * second)), Namespace: "ns", Pod: "api-0", PodUID: "gone", Owner: "ReplicaSet/api", Service: "etcd"}}
	y := newState()
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0:notready"), ahead)
	y.ObserveConfig(compiled(t, wc), lifecycle.Active, ahead)
	y.MarkSynced(ahead)
	y.ObservePod(weeder.ReadPod(newPod("api-old", backOff)), at(4*second))
	y.ObservePod(weeder.ReadPod(newPod("api-new", created(4*second), backOff)), at(4*second))
	recoverEtcd(y, 5*second)
	deleted(t, y, "api-old", 6*second)
	expect(t, "what replaces the one that another deleted", decide(y, "api-new", 7*second), "Cooldown")
}

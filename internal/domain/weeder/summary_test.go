package weeder_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

func TestAServiceThatIsNotThereIsCountedApart(t *testing.T) {
	y := watchingEtcd(t, "\nservicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: api}}]}, db: {podSelectors: [{matchLabels: {app: api}}]}}\n")
	there := func() string {
		sum, _ := y.Summary("wc-uid", at(0))
		return fmt.Sprintf("%d of %d", sum.Services, sum.Named)
	}
	expect(t, "with nothing but slices", there(), "0 of 2")
	y.DrainDirty()
	y.ObserveService(newService("db", selecting("db")))
	expect(t, "dirty", fmt.Sprint(y.DrainDirty()), "[ns/wc]")
	expect(t, "when it comes", there(), "1 of 2")
	y.ForgetService(key("db"), "")
	expect(t, "dirty", fmt.Sprint(y.DrainDirty()), "[ns/wc]")
	expect(t, "when it is gone", there(), "0 of 2")
}

func TestSummary(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI, newPod("api-a", backOff), newPod("api-b", backOff), newPod("api-c", backOff, ownerless), newPod("api-d", backOff, ownerless))
	sum, ok := y.Summary("wc-uid", at(0))
	expect(t, "known", ok, true)
	expect(t, "Services named", sum.Named, 1)
	expect(t, "active", sum.ActiveWindows, 0)
	expect(t, "last", sum.LastTriggered == nil, true)
	y.DrainDirty()

	for _, k := range recoverEtcd(y, 0) {
		decideOn(y, k, at(second), "")
	}
	decideOn(y, key("api-c"), at(2*second), "") // it isn't counted twice
	expect(t, "dirty", fmt.Sprint(y.DrainDirty()), "[ns/wc]")
	decideOn(y, key("api-c"), at(3*second), "")
	expect(t, "dirty when nothing is new", fmt.Sprint(y.DrainDirty()), "[]")

	sum, _ = y.Summary("wc-uid", at(3*second))
	expect(t, "active", sum.ActiveWindows, 1)
	expect(t, "window", sum.Windows[0].Deleted, 2)
	expect(t, "last deletion", sum.Windows[0].LastDeletion.Time, noon.Add(second))
	expect(t, "last", sum.LastTriggered.Time.Time, noon)
	expect(t, "deleted", sum.Deleted, 2)
	expect(t, "skipped", fmt.Sprint(sum.Skipped), "[{NoController 2}]")
	expect(t, "held", fmt.Sprint(sum.Held), "map[NoController:{2 ns/api-c: no controller owns it, so nothing would replace it}]")
	expect(t, "recent", sum.RecentDeletions[0].Pod+" "+sum.RecentDeletions[1].Pod+" "+sum.RecentDeletions[1].Owner, "api-b api-a ReplicaSet/api")

	y.ForgetPod(key("api-d"), "api-d-uid")
	sum, _ = y.Summary("wc-uid", at(4*second))
	expect(t, "held, after one is gone", sum.Held["NoController"].Pods, 1)
	y.Expire(at(2 * time.Minute))
	sum, _ = y.Summary("wc-uid", at(2*time.Minute))
	expect(t, "held, after the window", len(sum.Held), 0)
	expect(t, "active, after the window", sum.ActiveWindows, 0)
	expect(t, "skipped, after the window", fmt.Sprint(sum.Skipped), "[{NoController 2}]")
	if _, ok := y.Summary("another", at(0)); ok {
		t.Error("a config that isn't known is summed up")
	}
}

// What has more than seconds would differ from what is stored at each look.
func TestAStatusTellsTimesInWholeSeconds(t *testing.T) {
	const part = 400 * time.Millisecond
	y := watchingEtcd(t, etcdForAPI, newPod("api-a", backOff))
	recoverEtcd(y, part)
	expect(t, "api-a", decide(y, "api-a", second+part), "delete")
	st, _ := y.Recorded("wc-uid", at(2*second+part))
	expect(t, "deletions", len(st.RecentDeletions), 1)
	expectAsStored(t, st)
}

func expectAsStored(t *testing.T, st v1alpha1.WeederConfigStatus) {
	t.Helper()
	text, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var stored v1alpha1.WeederConfigStatus
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(st, stored) {
		t.Errorf("it differs from what is stored: %s", cmp.Diff(st, stored))
	}
}

func TestAtMostTwentyOfEverything(t *testing.T) {
	y := newState()
	wc := newWeederConfig(t, "autohealer-system", "wc", etcdForAPI+"namespaceSelector: {}")
	y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(0))
	for i := range 30 {
		namespace := fmt.Sprintf("ns%02d", i)
		y.ObserveNamespace(newNamespace(namespace, nil), at(0))
		for j := range 30 - i {
			y.ObservePod(weeder.ReadPod(newPod(fmt.Sprintf("api-%d", j), in(namespace), uid(fmt.Sprint(i, "-", j)), backOff)), at(0))
		}
		y.ObservePod(weeder.ReadPod(newPod("etcd-0", in(namespace), readySince(0))), at(0))
		slice := newSlice("s", "etcd", "etcd-0")
		slice.Namespace = namespace
		y.ObserveSlice(slice, at(0))
	}
	limits := limit.Builtin()
	limits.MaxPodDeletionsPerMinute = 10000
	y.SetLimits(limits)
	for _, k := range y.MarkSynced(at(0)) {
		if plan, next := decideOn(y, k, at(second+300*time.Millisecond), ""); next != weeder.Delete {
			t.Fatalf("%s: %s", k, verdict(plan, next))
		}
	}
	sum, _ := y.Summary("wc-uid", at(second+300*time.Millisecond))
	expect(t, "budgets that the list lacks", sum.Spent.Unlisted != nil, true)
	expectAsStored(t, sum.WeederConfigStatus)
	expect(t, "windows", sum.ActiveWindows, 30)
	expect(t, "sampled", len(sum.Windows), 20)
	expect(t, "the busiest", sum.Windows[0].Namespace+" "+sum.Windows[19].Namespace, "ns00 ns19")
	expect(t, "recent", len(sum.RecentDeletions), 20)
	expect(t, "deleted", sum.Deleted, 30*31/2)
}

// What one process did holds the next one back just as much.
func TestARestartForgetsNoLimit(t *testing.T) {
	limits := limit.Builtin()
	limits.MaxPodDeletionsPerMinute = 40
	wc := newWeederConfig(t, "ns", "wc", etcdForAPI+"cooldown: 20s\nmaxRepeatsPerOwner: 1\nmaxDeletionsPerWatch: 35")
	before := watchingEtcd(t, etcdForAPI+"cooldown: 20s\nmaxRepeatsPerOwner: 1\nmaxDeletionsPerWatch: 35", newPod("etcd-0", readySince(-second)))
	for i := range 30 {
		before.ObservePod(weeder.ReadPod(newPod(fmt.Sprintf("api-%02d", i), owned("ReplicaSet", fmt.Sprintf("set%02d", i)), backOff)), at(-second))
	}
	before.ObservePod(weeder.ReadPod(newPod("api-x", labelled("x", "x"), backOff, ownerless)), at(-second))
	for i, k := range recoverEtcd(before, 0) {
		decideOn(before, k, at(time.Duration(i)*100*time.Millisecond), "")
	}
	sum, _ := before.Summary("wc-uid", at(5*second))
	expect(t, "deleted before", sum.Deleted, 30)
	wc.Status = sum.WeederConfigStatus

	after := weeder.NewState(limits, "autohealer-system")
	after.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(-second))), at(5*second))
	after.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0"), at(5*second))
	for i := range 20 { // of workloads that the status remembers no deletion of
		after.ObservePod(weeder.ReadPod(newPod(fmt.Sprintf("api-new%02d", i), owned("StatefulSet", fmt.Sprintf("new%d", i)), backOff)), at(5*second))
	}
	after.ObservePod(weeder.ReadPod(newPod("api-29r", owned("ReplicaSet", "set29"), created(4*second), backOff)), at(5*second))
	after.ObserveConfig(compiled(t, wc), lifecycle.Active, at(5*second))
	after.ObserveConfig(compiled(t, wc), lifecycle.Active, at(5*second)) // once more changes nothing
	due := after.MarkSynced(at(5 * second))
	expect(t, "due", len(due), 21)
	expect(t, "windows", strings.Join(opened(after), ";"), "ns/etcd until +2m0s")
	expect(t, "a replacement of what the former process deleted", decide(after, "api-29r", 6*second), "Cooldown")
	expect(t, "it, later", decide(after, "api-29r", 24*second), "delete again")
	verdicts := map[string]int{}
	for _, k := range due {
		verdicts[verdict(decideOn(after, k, at(25*second), ""))]++
	}
	expect(t, "the rest", fmt.Sprint(verdicts), "map[MaxDeletionsPerWatch:16 delete:4 read live:1]")
	sum, _ = after.Summary("wc-uid", at(25*second))
	expect(t, "deleted after", sum.Deleted, 35)
	expect(t, "skipped after", fmt.Sprint(sum.Skipped), "[{Cooldown 1} {MaxDeletionsPerWatch 16} {NoController 1}]")
	expect(t, "recent after", len(sum.RecentDeletions), 20)
	if !slices.IsSortedFunc(sum.RecentDeletions, func(a, b v1alpha1.PodDeletion) int { return b.Time.Compare(a.Time.Time) }) {
		t.Error("the recent deletions aren't sorted")
	}
}

// A deletion of 3.9s is stored as one of 3s.
func TestWhichPodsAreReplacementsAfterARestart(t *testing.T) {
	for name, test := range map[string]struct {
		created, seen time.Duration
		want          string
	}{
		"one created long before":               {-time.Hour, 4 * second, "delete"},
		"one created two seconds before":        {second, 4 * second, "delete"},
		"one created in the same second":        {3 * second, 4 * second, "Cooldown"},
		"one created after it":                  {4 * second, 4 * second, "Cooldown"},
		"one created after it and seen at once": {3 * second, 3950 * time.Millisecond, "Cooldown"},
	} {
		t.Run(name, func(t *testing.T) {
			wc := newWeederConfig(t, "ns", "wc", etcdForAPI)
			wc.Status.RecentDeletions = []v1alpha1.PodDeletion{{Time: metav1.NewTime(noon.Add(3 * second)), Namespace: "ns", Pod: "api-0", PodUID: "gone", Owner: "ReplicaSet/api", Service: "etcd"}}
			y := newState()
			y.ObservePod(weeder.ReadPod(newPod("api-1", created(test.created), backOff)), at(test.seen))
			y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(0))), at(test.seen))
			y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0"), at(test.seen))
			y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(test.seen))
			y.MarkSynced(at(test.seen))
			expect(t, "verdict", decide(y, "api-1", 6*second), test.want)
		})
	}
}

func TestTheMinuteIsNotOverAfterARestart(t *testing.T) {
	wc := newWeederConfig(t, "ns", "wc", etcdForAPI)
	wc.Status.Spent = &v1alpha1.SpentBudgets{LastMinute: 58, LastDeletion: metav1.NewTime(noon)}
	y := newState()
	for i := range 5 {
		y.ObservePod(weeder.ReadPod(newPod(fmt.Sprintf("api-%d", i), backOff)), at(5*second))
	}
	y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(-30*second))), at(5*second))
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0"), at(5*second))
	y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(5*second))
	y.MarkSynced(at(5 * second))
	expect(t, "59th", decide(y, "api-0", 5*second), "delete")
	expect(t, "60th", decide(y, "api-1", 5*second), "delete")
	expect(t, "61st", decide(y, "api-2", 5*second), "MaxPodDeletionsPerMinute")
	expect(t, "61st, when the former process's may still count", decide(y, "api-2", 60*second), "MaxPodDeletionsPerMinute")
	expect(t, "61st, a minute after them", decide(y, "api-2", 61*second), "delete")
}

// A standby sees the windows open and the leader's deletions in the status.
func TestAStandbyTakesOverTheWindowsAsTheyAre(t *testing.T) {
	wc := newWeederConfig(t, "ns", "wc", etcdForAPI+"maxDeletionsPerWatch: 2")
	standby := watchingEtcd(t, etcdForAPI+"maxDeletionsPerWatch: 2", newPod("api-1", backOff), newPod("api-2", backOff), newPod("api-3", backOff))
	recoverEtcd(standby, 0)
	last := metav1.NewTime(noon)
	wc.Status.Windows = []v1alpha1.RecoveryWindow{{Recovery: v1alpha1.Recovery{Namespace: "ns", Service: "etcd", Time: metav1.NewTime(noon)}, Until: metav1.NewTime(noon.Add(2 * time.Minute)), Deleted: 1, LastDeletion: &last}}
	standby.ObserveConfig(compiled(t, wc), lifecycle.Active, at(second))
	standby.ForgetPod(key("api-1"), "api-1-uid")
	expect(t, "due when it leads", names(standby.Due(at(2*second))), "api-2 api-3")
	expect(t, "the last place", decide(standby, "api-2", 2*second), "delete")
	expect(t, "none is left", decide(standby, "api-3", 2*second), "MaxDeletionsPerWatch")
}

// Storing any status must not let anything be done: with and without it, what is deleted then is deleted without it, too.
func TestAStatusAuthorisesNothing(t *testing.T) {
	wc := newWeederConfig(t, "ns", "wc", etcdForAPI)
	wc.Status.Windows = []v1alpha1.RecoveryWindow{{Recovery: v1alpha1.Recovery{Namespace: "ns", Service: "etcd", Time: metav1.NewTime(noon)}, Until: metav1.NewTime(noon.Add(time.Hour)), Deleted: -100}}
	wc.Status.ActiveWindows = 1
	y := newState()
	y.ObservePod(weeder.ReadPod(newPod("api-1", backOff)), at(second))
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0:notready"), at(second))
	y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(second))
	expect(t, "due", names(y.MarkSynced(at(second))), "")
	expect(t, "decision", decide(y, "api-1", second), "")
}

// A chain of Services may recover within a second, and what tells when is in whole seconds; the API server's clock is known
// to about one, and better with each answer.
func TestOfTwoRecoveriesInOneSecondTheLastIsTheOneThatCameLater(t *testing.T) {
	y := newState()
	services := []string{"etcd", "api"}
	for _, service := range services {
		y.ObserveSlice(newSlice(service+"-1", service, service+"-0:notready"), at(-time.Minute))
	}
	y.ObserveConfig(newConfig(t, "wc", "watchDuration: 2m\nservicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: api}}]}, api: {podSelectors: [{matchLabels: {app: manager}}]}}"), lifecycle.Active, at(-time.Minute))
	y.MarkSynced(at(-time.Minute))
	for i, service := range services {
		seen := timing.Moment{Now: noon.Add(900 * time.Millisecond), Server: noon.Add(time.Duration(i) * 900 * time.Millisecond)}
		y.ObservePod(weeder.ReadPod(newPod(service+"-0", readySince(0))), seen)
		y.ObserveSlice(newSlice(service+"-1", service, service+"-0"), seen)
		sum, _ := y.Summary("wc-uid", seen)
		expect(t, "last", sum.LastTriggered.Service, service)
	}
}

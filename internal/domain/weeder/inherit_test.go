package weeder_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

const forHalfAnHour = `
watchDuration: 30m
servicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: api}}]}}
`

// restarted is what a new process knows at that time: etcd Ready since noon, crash-looping pods, and a status.
func restarted(t *testing.T, spec string, st v1alpha1.WeederConfigStatus, d time.Duration, pods ...*weeder.Pod) *weeder.State {
	t.Helper()
	wc := newWeederConfig(t, "ns", "wc", spec)
	wc.Status = st
	y := newState()
	for _, p := range pods {
		y.ObservePod(p, at(d))
	}
	y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(0))), at(d))
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0"), at(d))
	y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(d))
	y.MarkSynced(at(d))
	return y
}

func crashing(name, set string, made time.Duration) *weeder.Pod {
	return weeder.ReadPod(newPod(name, owned("ReplicaSet", set), created(made), backOff))
}

// Of 25 deletions the status lists 20. The other five aren't free.
func TestARestartForgetsNoDeletionThatTheStatusHasNoRoomFor(t *testing.T) {
	const spec = forHalfAnHour + "cooldown: 20s\nmaxRepeatsPerOwner: 1"
	before := watchingEtcd(t, spec)
	recoverEtcd(before, 0)
	for i := range 25 {
		name := fmt.Sprintf("api-%02d", i)
		before.ObservePod(crashing(name, fmt.Sprintf("set%02d", i), -time.Minute), at(-second))
		deleted(t, before, name, time.Duration(i)*second)
	}
	sum, _ := before.Summary("wc-uid", at(25*second))
	expect(t, "spent", fmt.Sprint(sum.Spent.LastMinute, sum.Spent.LastDeletion.Sub(noon), sum.Spent.Unlisted.From.Sub(noon), sum.Spent.Unlisted.To.Sub(noon), sum.Spent.Unlisted.Repeats), "25 24s 0s 4s 0")

	pods := []*weeder.Pod{crashing("api-00r", "set00", 2*second), crashing("api-old", "set99", -time.Minute)}
	after := restarted(t, spec, sum.WeederConfigStatus, 10*second, pods...)
	expect(t, "one that is older than all of them", decide(after, "api-old", 10*second), "delete")
	expect(t, "one that may replace the first of them", decide(after, "api-00r", 10*second), "Cooldown")
	expect(t, "it, later", decide(after, "api-00r", 26*second), "delete again")
	sum, _ = after.Summary("wc-uid", at(27*second))
	expect(t, "unlisted now", fmt.Sprint(sum.Spent.Unlisted.From.Sub(noon), sum.Spent.Unlisted.To.Sub(noon)), "0s 7s") // of others' it is known to a second

	third := restarted(t, spec, sum.WeederConfigStatus, 30*second, crashing("api-01r", "set01", 2*second))
	expect(t, "after another restart", decide(third, "api-01r", 30*second), "delete again")
}

// Of those that it has no room for the status tells how often at most one of them was deleted again.
func TestARestartForgetsNoRepeatThatTheStatusHasNoRoomFor(t *testing.T) {
	const spec = forHalfAnHour + "maxRepeatsPerOwner: 1"
	before := watchingEtcd(t, spec, newPod("api-first", owned("ReplicaSet", "bad"), backOff))
	recoverEtcd(before, 0)
	deleted(t, before, "api-first", 0)
	before.ObservePod(crashing("api-second", "bad", 0), at(second))
	deleted(t, before, "api-second", 20*second)
	for i := range 20 {
		name := fmt.Sprintf("api-%02d", i)
		before.ObservePod(crashing(name, fmt.Sprintf("set%02d", i), -time.Minute), at(21*second))
		deleted(t, before, name, 21*second)
	}
	sum, _ := before.Summary("wc-uid", at(22*second))
	expect(t, "repeats", sum.Spent.Unlisted.Repeats, 1)
	after := restarted(t, spec, sum.WeederConfigStatus, 30*second, crashing("api-third", "bad", 25*second), crashing("api-old", "old", -time.Minute))
	expect(t, "one that may be the third", decide(after, "api-third", time.Minute), "MaxRepeatsPerOwner")
	expect(t, "one that can't be", decide(after, "api-old", time.Minute), "delete")
}

// Deletions that weren't done make room for those that were.
func TestAFailedDeletionMakesNoOtherUnlisted(t *testing.T) {
	y := watchingEtcd(t, forHalfAnHour)
	recoverEtcd(y, 0)
	for i := range 25 {
		name := fmt.Sprintf("api-%02d", i)
		y.ObservePod(crashing(name, fmt.Sprintf("set%02d", i), -time.Minute), at(-second))
		if i < 20 {
			deleted(t, y, name, time.Duration(i)*second)
		} else {
			expect(t, name, decide(y, name, time.Duration(i)*second), "delete")
		}
	}
	for i := 20; i < 25; i++ {
		name := fmt.Sprintf("api-%02d", i)
		y.Failed(types.UID(name + "-uid"))
	}
	sum, _ := y.Summary("wc-uid", at(25*second))
	expect(t, "listed, unlisted", fmt.Sprint(len(sum.RecentDeletions), sum.Spent.Unlisted == nil), "20 true")
	expect(t, "the oldest", sum.RecentDeletions[19].Pod, "api-00")
}

func TestRepeatsThatTheStatusHasNoRoomForAreEverybodys(t *testing.T) {
	const spec = forHalfAnHour + "maxRepeatsPerOwner: 2"
	st := v1alpha1.WeederConfigStatus{Spent: &v1alpha1.SpentBudgets{
		LastMinute: 1, LastDeletion: metav1.NewTime(noon),
		Unlisted: &v1alpha1.UnlistedDeletions{From: metav1.NewTime(noon.Add(-50 * time.Minute)), To: metav1.NewTime(noon.Add(-40 * time.Minute)), Repeats: 2},
	}}
	pods := []*weeder.Pod{crashing("api-1", "a", 0), crashing("api-2", "b", -time.Hour)}
	y := restarted(t, spec, st, second, pods...)
	expect(t, "one that may be a replacement", decide(y, "api-1", second), "MaxRepeatsPerOwner")
	expect(t, "one that can't be", decide(y, "api-2", second), "delete")
	expect(t, "an hour after the last of them", decide(y, "api-1", 20*time.Minute+second), "delete")

	st.Spent.Unlisted.Repeats = 1
	y = restarted(t, spec, st, second, pods...)
	expect(t, "when there was only one", decide(y, "api-1", second), "delete again")
	y = restarted(t, "servicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: other}}]}}", st, second, pods...)
	y.ObserveConfig(newConfig(t, "second", etcdForAPI), lifecycle.Active, at(second))
	expect(t, "a pod that the config never was about", decide(y, "api-1", second), "delete")
}

// Of 30 windows the status lists 20, those with the most deletions.
func TestARestartForgetsNoWindowThatTheStatusHasNoRoomFor(t *testing.T) {
	wc := newWeederConfig(t, "autohealer-system", "wc", etcdForAPI+"namespaceSelector: {}\nmaxDeletionsPerWatch: 4")
	wc.Status.ActiveWindows, wc.Status.LastTriggered = 21, &v1alpha1.Recovery{Namespace: "ns01", Service: "etcd", Time: metav1.NewTime(noon)}
	for i := range 20 {
		wc.Status.Windows = append(wc.Status.Windows, v1alpha1.RecoveryWindow{
			Recovery: v1alpha1.Recovery{Namespace: fmt.Sprintf("listed%d", i), Service: "etcd", Time: metav1.NewTime(noon)}, Deleted: int32(3 + i%2),
		})
	}
	left := func(active int32) (n int) {
		wc.Status.ActiveWindows = active
		limits := limit.Builtin()
		limits.MaxPodDeletionsPerMinute = 100
		y := weeder.NewState(limits, "autohealer-system")
		y.ObserveNamespace(newNamespace("ns", nil), at(second))
		for i := range 5 {
			y.ObservePod(weeder.ReadPod(newPod(fmt.Sprintf("api-%d", i), backOff)), at(second))
		}
		y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(0))), at(second))
		y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0"), at(second))
		y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(second))
		for _, k := range y.MarkSynced(at(second)) {
			if _, next := decideOn(y, k, at(second), ""); next == weeder.Delete {
				n++
			}
		}
		return n
	}
	expect(t, "deletions left where the least of those listed had 3 of 4", left(21), 1)
	expect(t, "where all are listed", left(20), 4)
}

// The manager's clock is ahead of the API server's, by which a status tells when deletions were.
func TestWhatAStatusTellsIsOfTheAPIServersClock(t *testing.T) {
	ahead := func(d time.Duration) timing.Moment {
		return timing.Moment{Now: noon.Add(d + 8*second), Server: noon.Add(d)}
	}
	stored := v1alpha1.WeederConfigStatus{
		RecentDeletions: []v1alpha1.PodDeletion{{Namespace: "ns", Pod: "api-0", PodUID: "api-0-uid", Owner: "ReplicaSet/a", Service: "etcd", Time: metav1.NewTime(noon)}},
		Spent:           &v1alpha1.SpentBudgets{LastMinute: 60, LastDeletion: metav1.NewTime(noon)},
	}
	unlisted := v1alpha1.WeederConfigStatus{Spent: &v1alpha1.SpentBudgets{
		LastMinute: 60, LastDeletion: metav1.NewTime(noon), Unlisted: &v1alpha1.UnlistedDeletions{From: metav1.NewTime(noon), To: metav1.NewTime(noon)},
	}}
	for name, st := range map[string]v1alpha1.WeederConfigStatus{"listed": stored, "unlisted": unlisted} {
		t.Run(name, func(t *testing.T) {
			wc := newWeederConfig(t, "ns", "wc", forHalfAnHour+"cooldown: 70s")
			wc.Status = st
			y := newState()
			y.ObservePod(crashing("api-1", "a", second), ahead(5*second))
			y.ObservePod(crashing("api-2", "b", -time.Hour), ahead(5*second))
			y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(0))), ahead(5*second))
			y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0"), ahead(5*second))
			y.ObserveConfig(compiled(t, wc), lifecycle.Active, ahead(5*second))
			y.MarkSynced(ahead(5 * second))
			for _, c := range []struct {
				after      time.Duration
				name, want string
			}{
				{59 * second, "api-2", "MaxPodDeletionsPerMinute"}, {61 * second, "api-2", "delete"},
				{69 * second, "api-1", "Cooldown"}, {71 * second, "api-1", "delete again"},
			} {
				plan, next := decideOn(y, key(c.name), ahead(c.after), "")
				expect(t, c.name+" after "+c.after.String(), verdict(plan, next), c.want)
			}
		})
	}
}

// Which limit is in force isn't known yet when the status is read.
func TestTheLastMinuteCountsAlsoForALimitThatIsRaisedLater(t *testing.T) {
	st := v1alpha1.WeederConfigStatus{Spent: &v1alpha1.SpentBudgets{LastMinute: 200, LastDeletion: metav1.NewTime(noon)}}
	y := restarted(t, etcdForAPI, st, second, crashing("api-1", "a", -time.Hour), crashing("api-2", "b", -time.Hour))
	limits := limit.Builtin()
	limits.MaxPodDeletionsPerMinute = 201
	y.SetLimits(limits)
	expect(t, "the 201st", decide(y, "api-1", second), "delete")
	expect(t, "the 202nd", decide(y, "api-2", second), "MaxPodDeletionsPerMinute")
}

func TestARestartGoesOnWithAWindowAndMissesNoLaterRecovery(t *testing.T) {
	left := v1alpha1.RecoveryWindow{Recovery: v1alpha1.Recovery{Namespace: "ns", Service: "etcd", Time: metav1.NewTime(noon)}, Until: metav1.NewTime(noon.Add(2 * time.Minute)), Deleted: 1}
	for name, test := range map[string]struct {
		since, start time.Duration
		until        string // "" when none opens
	}{
		"it is the same recovery":                        {0, 90 * second, "2m0s"},
		"another pod turned Ready soon after":            {9 * second, 90 * second, "2m0s"},
		"it is over":                                     {0, 130 * second, ""},
		"the Service recovered again in it":              {60 * second, 90 * second, "3m0s"},
		"the Service recovered again in it, and is over": {60 * second, 130 * second, "3m0s"},
		"the Service recovered again after it":           {125 * second, 130 * second, "4m5s"},
		"the node's clock was behind all the time":       {-5 * second, 90 * second, "2m0s"},
		"its pods hadn't turned it Ready":                {-time.Hour, 90 * second, "2m0s"},
		"its pods hadn't, and it is over":                {-time.Hour, 130 * second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			wc := newWeederConfig(t, "ns", "wc", etcdForAPI+"maxDeletionsPerWatch: 1")
			wc.Status.ActiveWindows, wc.Status.Windows = 1, []v1alpha1.RecoveryWindow{left}
			y := newState()
			y.ObservePod(weeder.ReadPod(newPod("etcd-1", readySince(test.since))), at(test.start))
			y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-1"), at(test.start))
			y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(test.start))
			y.MarkSynced(at(test.start))
			want := "ns/etcd until +" + test.until
			if test.until == "" {
				want = ""
			}
			expect(t, "windows", strings.Join(opened(y), ";"), want)
			if test.until == "" {
				return
			}
			spent := "MaxDeletionsPerWatch"
			if test.since > 2*time.Minute { // it is another by now
				spent = "delete"
			}
			y.ObservePod(crashing("api-1", "a", -time.Hour), at(test.start))
			expect(t, "what it has spent", decide(y, "api-1", test.start), spent)
		})
	}
}

// A new process writes a status before it knows when all Services turned Ready, and acts for others meanwhile.
func TestWhatAWindowHasSpentOutlivesTheStatusThatToldOfIt(t *testing.T) {
	const spec = `
watchDuration: 2m
maxDeletionsPerWatch: 2
servicesAndDependantSelectors:
  etcd: {podSelectors: [{matchLabels: {app: api}}]}
  db: {podSelectors: [{matchLabels: {app: web}}]}
`
	wc := newWeederConfig(t, "ns", "wc", spec)
	wc.Status.ActiveWindows = 1
	wc.Status.Windows = []v1alpha1.RecoveryWindow{{
		Recovery: v1alpha1.Recovery{Namespace: "ns", Service: "etcd", Time: metav1.NewTime(noon)}, Until: metav1.NewTime(noon.Add(2 * time.Minute)), Deleted: 2,
	}}
	start := func() *weeder.State {
		y := newState()
		y.ObservePod(weeder.ReadPod(newPod("db-0", readySince(0))), at(second))
		y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0"), at(second)) // its pod isn't known yet
		y.ObserveSlice(newSlice("db-1", "db", "db-0"), at(second))
		y.ObservePod(crashing("api-1", "a", -time.Hour), at(second))
		y.ObservePod(crashing("web-1", "w", -time.Hour), at(second))
		y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(second))
		y.MarkSynced(at(second))
		return y
	}
	writes := func(y *weeder.State) {
		sum, _ := y.Summary("wc-uid", at(2*second))
		wc.Status = sum.WeederConfigStatus
		y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(2*second))
	}
	y := start()
	writes(y)
	y = start() // killed once more
	deleted(t, y, "web-1", 2*second)
	writes(y)
	y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(0))), at(3*second))
	expect(t, "once the window is open again", decide(y, "api-1", 3*second), "MaxDeletionsPerWatch")
	sum, _ := y.Summary("wc-uid", at(3*second))
	expect(t, "windows", sum.ActiveWindows, 2)
	sum, _ = y.Summary("wc-uid", at(2*time.Minute))
	expect(t, "windows when they are over", sum.ActiveWindows, 0)
}

func TestNothingIsDeletedBeforeItIsKnownWhatOthersDid(t *testing.T) {
	spent := v1alpha1.WeederConfigStatus{Deleted: 1, Windows: []v1alpha1.RecoveryWindow{{
		Recovery: v1alpha1.Recovery{Namespace: "ns", Service: "etcd", Time: metav1.NewTime(noon)}, Until: metav1.NewTime(noon.Add(5 * time.Minute)), Deleted: 1,
	}}}
	y := watchingEtcd(t, etcdForAPI+"maxDeletionsPerWatch: 1", newPod("api-1", backOff), newPod("api-2", backOff))
	recoverEtcd(y, 0)
	for range 2 {
		plan, next := y.Decide(key("api-1"), at(second), "")
		expect(t, "at first", verdict(plan, next), "FactsInDoubt")
	}
	sum, _ := y.Summary("wc-uid", at(second))
	expect(t, "reserved meanwhile", sum.Deleted, 0)
	claim := func(st v1alpha1.WeederConfigStatus) int {
		return len(y.Claim(stored(map[string]v1alpha1.WeederConfigStatus{"wc": st, "new": {}}), at(second)))
	}
	expect(t, "unknown, and something was done for it", claim(spent), 0)
	plan, next := y.Decide(key("api-1"), at(second), "")
	expect(t, "then", verdict(plan, next), "MaxDeletionsPerWatch")
	claim(v1alpha1.WeederConfigStatus{Deleted: 9})
	sum, _ = y.Summary("wc-uid", at(second))
	expect(t, "deleted, whatever comes late", sum.Deleted, 1)
}

// stored are configs with these statuses.
func stored(statuses map[string]v1alpha1.WeederConfigStatus) (configs []v1alpha1.WeederConfig) {
	for name, st := range statuses {
		configs = append(configs, v1alpha1.WeederConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name + "-uid")}, Status: st})
	}
	return configs
}

// The former process' clock was three seconds behind the API server's, and this one's is three ahead.
func TestAWindowIsTheSameByEverybodysClock(t *testing.T) {
	const apart = 3 * time.Second
	by := func(m timing.Moment, ahead time.Duration) timing.Moment {
		return timing.Moment{Now: m.Server.Add(ahead), Server: m.Server}
	}
	before := watchingEtcd(t, forHalfAnHour)
	before.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(0))), by(at(0), -apart))
	before.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0"), by(at(0), -apart))
	sum, _ := before.Summary("wc-uid", by(at(second), -apart))
	expect(t, "opened, by its own clock", before.DrainOpened()[0].Opened.Sub(noon), -apart)
	expect(t, "opened, as stored", sum.Windows[0].Time.Sub(noon), 0)

	st := v1alpha1.WeederConfigStatus{Windows: []v1alpha1.RecoveryWindow{{
		Recovery: v1alpha1.Recovery{Namespace: "ns", Service: "etcd", Time: metav1.NewTime(noon)}, Until: metav1.NewTime(noon.Add(30 * time.Minute)), Deleted: 3,
	}}}
	wc := newWeederConfig(t, "ns", "wc", forHalfAnHour)
	wc.Status = st
	after := newState()
	later := by(at(time.Minute), apart)
	after.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(0))), later)
	after.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0"), later)
	after.ObserveConfig(compiled(t, wc), lifecycle.Active, later)
	after.MarkSynced(later)
	sum, _ = after.Summary("wc-uid", later)
	expect(t, "ends, by its own clock", after.DrainOpened()[0].Ends.Sub(noon), 30*time.Minute+apart)
	expect(t, "ends, as stored", sum.Windows[0].Until.Sub(noon), 30*time.Minute)
	expect(t, "deleted", sum.Windows[0].Deleted, 3)
}

func TestWhatOthersDidForOneConfigCountsForAll(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff))
	lastMinute := v1alpha1.WeederConfigStatus{Spent: &v1alpha1.SpentBudgets{LastMinute: 1000, LastDeletion: metav1.NewTime(noon)}}
	records := stored(map[string]v1alpha1.WeederConfigStatus{"wc": {}, "other": lastMinute})
	recoverEtcd(y, 0)
	expect(t, "unknown", fmt.Sprint(y.Claim(records, at(second))), "[ns/other]")
	plan, next := y.Decide(key("api-1"), at(second), "")
	expect(t, "until it is known", verdict(plan, next), "FactsInDoubt")
	y.ObserveConfig(newConfig(t, "other", "servicesAndDependantSelectors: {db: {podSelectors: [{matchLabels: {app: web}}]}}"), lifecycle.Refused, at(second))
	expect(t, "unknown", len(y.Claim(records, at(second))), 0)
	expect(t, "the first", decide(y, "api-1", second), "MaxPodDeletionsPerMinute")
}

// The clock is set back by two hours after another process's deletions were taken over.
func TestAClockThatIsSetBackHidesNoDeletionFromTheNextProcess(t *testing.T) {
	ahead := func(d time.Duration) timing.Moment {
		return timing.Moment{Now: noon.Add(d + 2*time.Hour), Server: noon.Add(d)}
	}
	listed := func(n int) v1alpha1.PodDeletion {
		return v1alpha1.PodDeletion{
			Time: metav1.NewTime(noon.Add(time.Duration(n) * second)), Namespace: "ns", Pod: fmt.Sprint("other-", n), PodUID: fmt.Sprint("other-", n), Owner: fmt.Sprint("ReplicaSet/other", n), Service: "etcd",
		}
	}
	wc := newWeederConfig(t, "ns", "wc", forHalfAnHour)
	for n := range 20 {
		wc.Status.RecentDeletions = append([]v1alpha1.PodDeletion{listed(n)}, wc.Status.RecentDeletions...)
	}
	y := newState()
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0:notready"), ahead(20*second))
	y.ObserveConfig(compiled(t, wc), lifecycle.Active, ahead(20*second))
	y.MarkSynced(ahead(20 * second))
	wc.Status.RecentDeletions = append([]v1alpha1.PodDeletion{listed(20)}, wc.Status.RecentDeletions[:19]...)
	y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(21*second))
	st, _ := y.Recorded("wc-uid", at(21*second))
	expect(t, "the latest that another did", st.RecentDeletions[0].Pod, "other-20")

	y.ObservePod(crashing("api-1", "set", -time.Minute), at(22*second))
	recoverEtcd(y, 22*second)
	expect(t, "our own", decide(y, "api-1", 23*second), "delete")
	st, _ = y.Recorded("wc-uid", at(23*second))
	expect(t, "written down before it is done", st.RecentDeletions[0].Pod, "api-1")
	expect(t, "and then", st.RecentDeletions[1].Pod, "other-20")
	expect(t, "the latest deletion", st.Spent.LastDeletion.Sub(noon), 23*second)

	after := restarted(t, forHalfAnHour, st, 24*second, crashing("api-2", "set", 24*second))
	expect(t, "its replacement, for the next process", decide(after, "api-2", 24*second), "Cooldown")
}

// It couldn't be read before, say.
func TestTheStatusOfAConfigThatIsSeenLateCountsOnce(t *testing.T) {
	y := newState()
	y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(0))), at(second))
	y.ObservePod(weeder.ReadPod(newPod("api-1", backOff)), at(second))
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0"), at(second))
	y.MarkSynced(at(second))
	y.Claim(nil, at(second))
	wc := newWeederConfig(t, "ns", "wc", etcdForAPI+"maxDeletionsPerWatch: 1")
	for _, n := range []int32{1, 9} { // the other is no news to who does it
		wc.Status.Deleted, wc.Status.Windows = int64(n), []v1alpha1.RecoveryWindow{{
			Recovery: v1alpha1.Recovery{Namespace: "ns", Service: "etcd", Time: metav1.NewTime(noon)}, Until: metav1.NewTime(noon.Add(2 * time.Minute)), Deleted: n,
		}}
		y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(second))
		expect(t, "what it has spent", decide(y, "api-1", second), "MaxDeletionsPerWatch")
		sum, _ := y.Summary("wc-uid", at(second))
		expect(t, "deleted", sum.Deleted, 1)
		expect(t, "deleted in the window", sum.Windows[0].Deleted, 1)
	}
}

// The former leader was cut off when the Service went down once more, and this process saw it recover.
func TestARecoveryThatTheStatusDoesNotKnowHasABudgetOfItsOwn(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI+"maxDeletionsPerWatch: 1", newPod("api-1", backOff))
	recoverEtcd(y, 30*second)
	y.Claim(stored(map[string]v1alpha1.WeederConfigStatus{"wc": {Windows: []v1alpha1.RecoveryWindow{{
		Recovery: v1alpha1.Recovery{Namespace: "ns", Service: "etcd", Time: metav1.NewTime(noon)}, Until: metav1.NewTime(noon.Add(2 * time.Minute)), Deleted: 1,
	}}}}), at(31*second))
	expect(t, "after it", decide(y, "api-1", 31*second), "delete")
}

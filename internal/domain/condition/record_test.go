package condition_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

func TestTheRecordsTextIsWhatOthersRead(t *testing.T) {
	plan := condition.PlanNode(planInput(steady(newNode("n", kernelSick)), claimant(t, "a", noExecute, active)))
	const want = `{"taints":[{"key":"example.com/k","effect":"NoExecute","set":"a-uid","name":"a","generation":1,"since":"2026-11-03T12:00:00Z","evictSince":"2026-11-03T12:00:00Z"}],` +
		`"history":[{"set":"a-uid","key":"example.com/k","at":"2026-11-03T12:00:00Z","evicted":"2026-11-03T12:00:00Z"}]}`
	if got := plan.Owned.String(); got != want {
		t.Errorf("record\n%s\nwant\n%s", got, want)
	}
}

func TestAnEmptyRecordIsNoText(t *testing.T) {
	if got := (condition.Ownership{}).String(); got != "" {
		t.Errorf("text %q, want none", got)
	}
	o, err := condition.ParseOwnership("")
	if err != nil || o.String() != "" {
		t.Errorf("empty text reads as %+v, %v", o, err)
	}
}

func TestTheRecordRoundTripsInOneText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		moment := rapid.Custom(func(t *rapid.T) metav1.Time {
			return metav1.NewTime(noon.Add(time.Duration(rapid.IntRange(-9000, 9000).Draw(t, "seconds")) * time.Second))
		})
		uid := rapid.Custom(func(t *rapid.T) types.UID { return types.UID(rapid.StringMatching(`[a-d]{1,2}`).Draw(t, "uid")) })
		claim := rapid.Custom(func(t *rapid.T) condition.OwnedTaint {
			c := condition.OwnedTaint{
				Key: rapid.StringMatching(`[a-c]/[a-c]`).Draw(t, "key"), Set: uid.Draw(t, "set"), Name: rapid.String().Draw(t, "name"),
				Effect:     rapid.SampledFrom([]corev1.TaintEffect{"NoExecute", "NoSchedule", "PreferNoSchedule"}).Draw(t, "effect"),
				Generation: rapid.Int64().Draw(t, "generation"), Since: moment.Draw(t, "since"), TaintCount: rapid.IntRange(0, 9).Draw(t, "times"),
			}
			if rapid.Bool().Draw(t, "evicting") {
				at := moment.Draw(t, "evictSince")
				c.EvictSince = &at
			}
			return c
		})
		byKeyAndSet := func(c condition.OwnedTaint) string { return c.Key + " " + string(c.Set) }
		o := condition.Ownership{Taints: rapid.SliceOfNDistinct(claim, 0, 5, byKeyAndSet).Draw(t, "taints")}
		o.History = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) condition.PastTaint {
			return condition.PastTaint{Set: uid.Draw(t, "set"), At: moment.Draw(t, "at")}
		}), 0, 3).Draw(t, "history")
		text := o.String()
		read, err := condition.ParseOwnership(text)
		if err != nil || read.String() != text {
			t.Fatalf("%s reads as %s, %v", text, read.String(), err)
		}
		shuffled := condition.Ownership{Taints: rapid.Permutation(o.Taints).Draw(t, "order"), History: o.History}
		if shuffled.String() != text {
			t.Fatalf("another order gives another text:\n%s\n%s", text, shuffled.String())
		}
	})
}

func TestAnUnreadableRecordStopsEverything(t *testing.T) {
	for _, record := range []string{"{", "[]", `{"taints":[{"since":"yesterday"}]}`, "true", "\x00"} {
		n := steady(newNode("n", kubeletSick, kernelWell, tainted("example.com/k", "NoExecute"), recorded(record)))
		for _, state := range []lifecycle.State{active, withdrawn} {
			plan := condition.PlanNode(planInput(n, claimant(t, "a", noSchedule, state), claimant(t, "b", noExecute, withdrawn)))
			if !n.RecordBroken || len(plan.Steps) > 0 || len(plan.Holds) == 0 || plan.Holds[0].Reason != "RecordUnreadable" {
				t.Errorf("record %q: broken %t, steps %v, holds %v; want no step and a hold", record, n.RecordBroken, plan.Steps, plan.Holds)
			}
		}
	}
}

func TestARestoredSetAdoptsItsRecord(t *testing.T) {
	const record = `{"taints":[{"key":"example.com/k","effect":"NoSchedule","set":"old-uid","name":"a","generation":7,"since":"2026-11-03T11:00:00Z"}],` +
		`"history":[{"set":"old-uid","at":"2026-11-03T11:30:00Z"}]}`
	ours := func(o ...nodeOption) *condition.Node {
		return steady(newNode("n", append(o, tainted("example.com/k", "NoSchedule"), recorded(record))...))
	}
	a := func(s lifecycle.State) condition.Claimant { return claimant(t, "a", noSchedule, s) }
	adopted := condition.PlanNode(planInput(ours(kubeletSick), a(active)))
	outcome{taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"}, steps: []string{"Repair a example.com/k NoSchedule>NoSchedule PolicyRestored"}}.check(t, adopted)
	if got, want := adopted.Owned.String(), `{"taints":[{"key":"example.com/k","effect":"NoSchedule","set":"a-uid","name":"a","generation":1,"since":"2026-11-03T11:00:00Z"}],"history":[{"set":"a-uid","at":"2026-11-03T11:30:00Z"}]}`; got != want {
		t.Errorf("record\n%s\nwant\n%s", got, want)
	}
	outcome{steps: []string{"Untaint a example.com/k NoSchedule> ConditionsRecovered"}}.check(t, condition.PlanNode(planInput(ours(kubeletWell), a(active))))
	outcome{steps: []string{"Untaint a example.com/k NoSchedule> PolicyDeletedOrObserving"}}.check(t, condition.PlanNode(planInput(ours(kubeletSick), a(withdrawn))))
	outcome{}.check(t, condition.PlanNode(planInput(ours(kubeletWell), a(frozen))))
}

func TestAnOrphanWaitsUntilItsSetIsConfirmedToBeGone(t *testing.T) {
	n := steady(newNode("n", kubeletWell, owning("lost", "example.com/k", "NoSchedule", ago(time.Hour)), remembering("lost", ago(time.Hour/2))))
	in := planInput(n)
	in.Declared = func(string) bool { return true }
	plan := condition.PlanNode(in)
	outcome{}.check(t, plan)
	if diff := cmp.Diff(map[types.UID]string{"lost-uid": "lost"}, plan.Orphans); diff != "" {
		t.Errorf("orphans differ:\n%s", diff)
	}
	in.Withdrawn = func(uid types.UID) bool { return uid == "lost-uid" }
	gone := condition.PlanNode(in)
	outcome{steps: []string{"Untaint lost example.com/k NoSchedule> PolicyDeletedOrObserving"}}.check(t, gone)
	if gone.Owned.String() != "" {
		t.Errorf("record %s left", gone.Owned.String())
	}
}

// A stored set whose spec can't be read isn't known, and neither are its keys.
func TestARecordOfASetThatIsNotKnownKeepsItsUndeclaredKey(t *testing.T) {
	n := steady(newNode("n", kubeletWell, owning("unreadable", "example.com/k", "NoSchedule", ago(time.Hour))))
	in := planInput(n)
	plan := condition.PlanNode(in)
	outcome{}.check(t, plan)
	if plan.Orphans["unreadable-uid"] != "unreadable" {
		t.Errorf("orphans %v, want the unknown set", plan.Orphans)
	}
	in = planInput(n, claimant(t, "o", "effect: NoSchedule\ntaintKey: example.com/other\nconditions: {KubeletUnhealthy: {status: false}}", active))
	outcome{taints: []string{"example.com/k:NoSchedule", "example.com/other:NoSchedule"},
		claims: []string{"o-uid example.com/other:NoSchedule", "unreadable-uid example.com/k:NoSchedule"},
		steps:  []string{"Taint o example.com/other >NoSchedule ConditionsMatched"}}.check(t, condition.PlanNode(in))
}

func TestAWithdrawnSetLeavesNoTraceInTheHistory(t *testing.T) {
	n := steady(newNode("n", kernelWell, remembering("a", ago(time.Hour/2)), remembering("b", ago(time.Hour/2))))
	plan := condition.PlanNode(planInput(n, claimant(t, "a", noExecute, withdrawn), claimant(t, "b", noExecute, active)))
	outcome{steps: []string{"Repair a  > PolicyDeletedOrObserving"}}.check(t, plan)
	if got, want := plan.Owned.String(), `{"history":[{"set":"b-uid","at":"2026-11-03T11:30:00Z"}]}`; got != want {
		t.Errorf("record %s, want %s", got, want)
	}
}

func TestOldHistoryAloneIsNotWorthAWrite(t *testing.T) {
	n := steady(newNode("n", kernelWell, remembering("a", ago(2*time.Hour))))
	outcome{}.check(t, condition.PlanNode(planInput(n, claimant(t, "a", noExecute, active))))
}

func FuzzParseOwnership(f *testing.F) {
	f.Add(`{"taints":[{"key":"example.com/k","effect":"NoExecute","set":"a","name":"a","generation":1,"since":"2026-11-03T12:00:00Z"}]}`)
	f.Add(`{"history":[{"set":"a","at":null}]}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, annotation string) {
		o, err := condition.ParseOwnership(annotation)
		if err != nil {
			return
		}
		if text := o.String(); text != "" && !json.Valid([]byte(text)) {
			t.Errorf("%q gives %q", annotation, text)
		}
		n := steady(newNode("n", kubeletSick, kernelSick, tainted("example.com/k", "NoSchedule"), tainted("foreign", "NoExecute"), recorded(annotation)))
		plan := condition.PlanNode(planInput(n, claimant(t, "a", noSchedule, active), claimant(t, "b", noExecute, withdrawn)))
		if len(plan.Steps) == 0 {
			return
		}
		for _, taint := range plan.Taints {
			if taint.Key == "foreign" {
				return
			}
		}
		t.Errorf("record %q strips a foreign taint: %v", annotation, plan.Steps)
	})
}

func TestAFormerSetsClaimToAKeyThatNobodyKnowsIsLeftToAHuman(t *testing.T) {
	restored := claimant(t, "a", noSchedule, active)
	former := newNode("n", kubeletWell, owning("a", "example.com/former", "NoSchedule", ago(time.Hour)))
	restored.UID = "second-uid" // the keys that the first one declared are gone with it
	in := planInput(steady(former), restored)
	outcome{}.check(t, condition.PlanNode(in))
	in.Declared = func(string) bool { return true }
	outcome{steps: []string{"Untaint a example.com/former NoSchedule> TaintKeyChanged"}}.check(t, condition.PlanNode(in))
}

func TestAForgedClaimPutsNoTaintAnywhere(t *testing.T) {
	n := steady(newNode("n", kubeletWell, tainted("corp.example/x", "NoSchedule"),
		claiming("a", "corp.example/x", "NoSchedule", ago(time.Hour)), claiming("bogus", "corp.example/x", "PreferNoSchedule", ago(time.Hour))))
	in := planInput(n, claimant(t, "a", noSchedule, active))
	in.Declared = func(key string) bool { return key == "example.com/k" }
	if plan := condition.PlanNode(in); slices.ContainsFunc(plan.Taints, func(t corev1.Taint) bool { return t.Effect == "PreferNoSchedule" }) {
		t.Errorf("a taint whose key no set declared is set: %v by %v", plan.Taints, plan.Steps)
	}
}

package condition_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

func TestEvictAfterStagesTheEffect(t *testing.T) {
	since := func(d time.Duration) *corev1.Node {
		return newNode("n", kernelSick, owning("a", "example.com/k", "NoSchedule", ago(d)))
	}
	tests := []struct {
		name      string
		spec      string
		node      *corev1.Node
		want      outcome
		lookAgain time.Time
	}{
		{"first NoSchedule", evictLater, newNode("n", kernelSick), outcome{
			taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"}, steps: []string{"Taint a example.com/k >NoSchedule ConditionsMatched"}}, noon.Add(10 * time.Minute)},
		{"still NoSchedule a second before", evictLater, since(10*time.Minute - time.Second), outcome{}, noon.Add(time.Second)},
		{"NoExecute after it", evictLater, since(10 * time.Minute), outcome{
			taints: []string{"example.com/k:NoExecute"}, claims: []string{"a-uid example.com/k:NoExecute"}, steps: []string{"Escalate a example.com/k NoSchedule>NoExecute EvictAfterElapsed"}}, time.Time{}},
		{"what evicts goes on though our clock was set back", evictLater, newNode("n", kernelSick, owning("a", "example.com/k", "NoExecute", noon.Add(time.Hour))), outcome{}, time.Time{}},
		{"without it NoExecute at once", noExecute, newNode("n", kernelSick), outcome{
			taints: []string{"example.com/k:NoExecute"}, claims: []string{"a-uid example.com/k:NoExecute"}, steps: []string{"Taint a example.com/k >NoExecute ConditionsMatched"}}, time.Time{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plan := condition.PlanNode(planInput(steady(tt.node), claimant(t, "a", tt.spec, active)))
			tt.want.check(t, plan)
			if !plan.RequeueAt.Equal(tt.lookAgain) {
				t.Errorf("looks again at %s, want %s", plan.RequeueAt, tt.lookAgain)
			}
		})
	}
}

func TestANoExecuteTaintCarriesItsTime(t *testing.T) {
	plan := condition.PlanNode(planInput(steady(newNode("n", kernelSick)), claimant(t, "a", noExecute, active)))
	if at := plan.Taints[0].TimeAdded; at == nil || !at.Time.Equal(noon) {
		t.Errorf("timeAdded %v, want %s: tolerationSeconds count from it", at, noon)
	}
	plan = condition.PlanNode(planInput(steady(newNode("n", kubeletSick)), claimant(t, "a", noSchedule, active)))
	if at := plan.Taints[0].TimeAdded; at != nil {
		t.Errorf("timeAdded %v of NoSchedule, want none", at)
	}
}

func TestAMatchThatHasNotHeldIsLookedAtAgain(t *testing.T) {
	plan := condition.PlanNode(planInput(steady(newNode("n", kubeletSick)), claimant(t, "a", "for: 45m\n"+noSchedule, active)))
	outcome{}.check(t, plan)
	if want := noon.Add(15 * time.Minute); !plan.RequeueAt.Equal(want) {
		t.Errorf("looks again at %s, want %s", plan.RequeueAt, want)
	}
}

func TestRecoveryWaitsForRecoverAfter(t *testing.T) {
	clearSince := func(at time.Time) *condition.Node {
		ours := owning("a", "example.com/k", "NoSchedule", ago(time.Hour))
		return watched(stage{ago(time.Hour), newNode("n", kubeletSick, ours)}, stage{at, newNode("n", kubeletWell, ours)})
	}
	set := claimant(t, "a", "recoverAfter: 5m\n"+noSchedule, active)
	plan := condition.PlanNode(planInput(clearSince(ago(4*time.Minute)), set))
	outcome{}.check(t, plan)
	if want := noon.Add(time.Minute); !plan.RequeueAt.Equal(want) {
		t.Errorf("looks again at %s, want %s", plan.RequeueAt, want)
	}
	outcome{steps: []string{"Untaint a example.com/k NoSchedule> ConditionsRecovered"}}.check(t, condition.PlanNode(planInput(clearSince(ago(5*time.Minute)), set)))
}

func TestTheThirdTaintWithinAnHourNeverEvicts(t *testing.T) {
	flapping := outcome{
		taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule for the 3th time"},
		steps: []string{"Taint a example.com/k >NoSchedule ConditionsMatched"}, holds: []string{"a-uid Flapping"},
	}
	evicting := outcome{
		taints: []string{"example.com/k:NoExecute"}, claims: []string{"a-uid example.com/k:NoExecute"},
		steps: []string{"Taint a example.com/k >NoExecute ConditionsMatched"},
	}
	set := claimant(t, "a", noExecute, active)
	tests := []struct {
		name string
		node *corev1.Node
		want outcome
	}{
		{"the second one evicts", newNode("n", kernelSick, remembering("a", ago(20*time.Minute))), evicting},
		{"the third one doesn't", newNode("n", kernelSick, remembering("a", ago(40*time.Minute)), remembering("a", ago(20*time.Minute))), flapping},
		{"what lies an hour back doesn't count", newNode("n", kernelSick, remembering("a", ago(time.Hour)), remembering("a", ago(20*time.Minute))), evicting},
		{"another set's taints don't count", newNode("n", kernelSick, remembering("b", ago(40*time.Minute)), remembering("b", ago(20*time.Minute))), evicting},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.check(t, condition.PlanNode(planInput(steady(tt.node), set)))
		})
	}
}

func TestAFlappingTaintIsNotRaisedLater(t *testing.T) {
	const record = `{"taints":[{"key":"example.com/k","effect":"NoSchedule","set":"a-uid","name":"a","generation":1,"since":"2026-11-03T08:00:00Z","times":3}]}`
	n := steady(newNode("n", kernelSick, tainted("example.com/k", "NoSchedule"), recorded(record)))
	outcome{holds: []string{"a-uid Flapping"}}.check(t, condition.PlanNode(planInput(n, claimant(t, "a", noExecute, active))))
}

func TestATaintThatSomeoneElseRemoved(t *testing.T) {
	removed := func(o ...nodeOption) *corev1.Node {
		return newNode("n", append(o, claiming("a", "example.com/k", "NoSchedule", ago(time.Hour)))...)
	}
	dropped := func(reason string) outcome {
		return outcome{steps: []string{"Repair a example.com/k NoSchedule> " + reason}}
	}
	tests := []struct {
		name  string
		state lifecycle.State
		node  *corev1.Node
		want  outcome
	}{
		{"is put back while the set matches", active, removed(kubeletSick), outcome{
			taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"}, steps: []string{"Taint a example.com/k >NoSchedule TaintWasRemoved"}}},
		{"is forgotten when the set no longer matches", active, removed(kubeletWell), dropped("ConditionsRecovered")},
		{"is forgotten in doubt", active, removed(kubeletSilent), dropped("TaintWasRemoved")},
		{"is forgotten when the set may not act", held, removed(kubeletSick), dropped("TaintWasRemoved")},
		{"is left alone by a frozen set", frozen, removed(kubeletSick), outcome{}},
		{"is forgotten by a withdrawn set", withdrawn, removed(kubeletSick), dropped("PolicyDeletedOrObserving")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.check(t, condition.PlanNode(planInput(steady(tt.node), claimant(t, "a", noSchedule, tt.state))))
		})
	}
}

func TestARemovedTaintIsNotPutBackByAnotherSetsWrite(t *testing.T) {
	n := newNode("n", kubeletSick, kernelSick, claiming("a", "example.com/k", "NoExecute", ago(time.Hour)))
	in := planInput(steady(n), claimant(t, "a", noExecute, frozen), claimant(t, "o", otherKey, active))
	outcome{taints: []string{"example.com/other:NoSchedule"}, claims: []string{"o-uid example.com/other:NoSchedule"},
		steps: []string{"Taint o example.com/other >NoSchedule ConditionsMatched"}}.check(t, condition.PlanNode(in))
}

func TestPuttingBackAsksTheLimitsAgain(t *testing.T) {
	in := planInput(steady(newNode("n", kubeletSick, claiming("a", "example.com/k", "NoSchedule", ago(time.Hour)))), claimant(t, "a", noSchedule, active))
	in.Headroom = full(in.Headroom, condition.CapTainted, "LimitReached")
	outcome{steps: []string{"Repair a example.com/k NoSchedule> TaintWasRemoved"}, holds: []string{"a-uid LimitReached"}}.check(t, condition.PlanNode(in))
}

func TestPuttingBackCountsAsATaintByTheSet(t *testing.T) {
	set := claimant(t, "a", noExecute, active)
	first := condition.PlanNode(planInput(steady(newNode("n", kernelSick, claiming("a", "example.com/k", "NoExecute", ago(time.Hour)), remembering("a", ago(30*time.Minute)))), set))
	outcome{taints: []string{"example.com/k:NoExecute"}, claims: []string{"a-uid example.com/k:NoExecute"}, steps: []string{"Taint a example.com/k >NoExecute TaintWasRemoved"}}.check(t, first)
	if got := first.Owned.Taints[0].EvictSince; got == nil || !got.Time.Equal(noon) {
		t.Errorf("evicts since %v, want %s: the pace counts from it", got, noon)
	}
	again := planInput(steady(newNode("n", kernelSick, recorded(first.Owned.String()))), set)
	held := condition.PlanNode(again)
	outcome{holds: []string{"a-uid TaintKeepsBeingRemoved"}}.check(t, held)
	if want := noon.Add(time.Minute); !held.RequeueAt.Equal(want) {
		t.Errorf("looks again at %s, want %s: two writers must not fight as fast as they can", held.RequeueAt, want)
	}
	again.At = timing.Moment{Now: noon.Add(time.Minute), Server: noon.Add(time.Minute)}
	third := condition.PlanNode(again)
	outcome{taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule for the 3th time"},
		steps: []string{"Taint a example.com/k >NoSchedule TaintWasRemoved"}, holds: []string{"a-uid Flapping"}}.check(t, third)
}

func TestAChangedKeyDoesNotInheritTheFormerKeysWaits(t *testing.T) {
	fought := func(key string) string {
		return `{"taints":[{"key":"example.com/k","effect":"NoSchedule","set":"a-uid","name":"a","generation":2,"since":"2026-11-03T11:59:00Z"}],` +
			`"history":[{"set":"a-uid","key":"` + key + `","at":"2026-11-03T11:59:50Z","putBack":true}]}`
	}
	set := claimant(t, "a", noSchedule, active)
	same := condition.PlanNode(planInput(steady(newNode("n", kubeletSick, recorded(fought("example.com/k")))), set))
	outcome{holds: []string{"a-uid TaintKeepsBeingRemoved"}}.check(t, same)
	other := condition.PlanNode(planInput(steady(newNode("n", kubeletSick, recorded(fought("example.com/former")))), set))
	outcome{taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"},
		steps: []string{"Taint a example.com/k >NoSchedule TaintWasRemoved"}}.check(t, other)
	shared := claimant(t, "b", noSchedule, active)
	byOther := strings.ReplaceAll(fought("example.com/k"), `"history":[{"set":"a-uid"`, `"history":[{"set":"b-uid"`)
	outcome{holds: []string{"a-uid TaintKeepsBeingRemoved", "b-uid TaintKeepsBeingRemoved"}[:1]}.check(t,
		condition.PlanNode(planInput(steady(newNode("n", kubeletSick, recorded(byOther))), set, shared)))
}

func TestPuttingBackAsksTheOwnCapAgain(t *testing.T) {
	in := planInput(steady(newNode("n", kubeletSick, claiming("a", "example.com/k", "NoSchedule", ago(time.Hour)))), claimant(t, "a", "maxNodes: 1\n"+noSchedule, active))
	in.Headroom = full(in.Headroom, condition.CapMaxNodes, "MaxNodesReached")
	outcome{steps: []string{"Repair a example.com/k NoSchedule> TaintWasRemoved"}, holds: []string{"a-uid MaxNodesReached"}}.check(t, condition.PlanNode(in))
}

func TestClocksThatDifferHoldNewActsOnly(t *testing.T) {
	set := claimant(t, "a", noSchedule, active)
	in := planInput(steady(newNode("n", kubeletSick)), set)
	in.At.Server = noon.Add(-11 * time.Second)
	outcome{holds: []string{"a-uid ClockStepped"}}.check(t, condition.PlanNode(in))
	in.At.Server = noon.Add(-9 * time.Second)
	outcome{taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"},
		steps: []string{"Taint a example.com/k >NoSchedule ConditionsMatched"}}.check(t, condition.PlanNode(in))
}

func TestWithoutALiveLookAtThePodsANodeIsKeptFromNewOnesAtLeast(t *testing.T) {
	in := planInput(steady(newNode("n", kernelSick)), claimant(t, "a", noExecute, active))
	in.Evidence = &condition.Evidence{Unknown: "pods can't be listed"}
	outcome{taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"},
		steps: []string{"Taint a example.com/k >NoSchedule ConditionsMatched"}, holds: []string{"a-uid LiveReadFailed"}}.check(t, condition.PlanNode(in))
}

func TestASetThatCantBeConfirmedLiveHoldsUpNobodyElse(t *testing.T) {
	in := planInput(steady(newNode("n", kubeletSick, kernelSick, owning("o", "example.com/other", "NoSchedule", ago(time.Hour)))),
		claimant(t, "a", noSchedule, active), claimant(t, "o", otherKey, withdrawn))
	in.Evidence = &condition.Evidence{NotRead: true, Unconfirmed: map[types.UID]string{"a-uid": "it was changed"}}
	outcome{steps: []string{"Untaint o example.com/other NoSchedule> PolicyDeletedOrObserving"}, holds: []string{"a-uid LiveReadFailed"}}.check(t, condition.PlanNode(in))
}

func TestAClockThatSteppedHoldsNewActsOnly(t *testing.T) {
	set := claimant(t, "a", noSchedule, active)
	in := planInput(steady(newNode("n", kubeletSick)), set)
	in.ActsFrom = noon.Add(3 * time.Minute)
	plan := condition.PlanNode(in)
	outcome{holds: []string{"a-uid ClockStepped"}}.check(t, plan)
	if want := noon.Add(3 * time.Minute); !plan.RequeueAt.Equal(want) {
		t.Errorf("looks again at %s, want %s", plan.RequeueAt, want)
	}
	in = planInput(steady(newNode("n", kubeletWell, owning("a", "example.com/k", "NoSchedule", ago(time.Hour)))), set)
	in.ActsFrom = noon.Add(3 * time.Minute)
	outcome{steps: []string{"Untaint a example.com/k NoSchedule> ConditionsRecovered"}}.check(t, condition.PlanNode(in))
}

func TestASetWhoseBreakerIsOpenOnlyUndoes(t *testing.T) {
	set := claimant(t, "a", noSchedule, active)
	set.HoldReason = "BreakerOpen"
	outcome{holds: []string{"a-uid BreakerOpen"}}.check(t, condition.PlanNode(planInput(steady(newNode("n", kubeletSick)), set)))
	ours := owning("a", "example.com/k", "NoSchedule", ago(time.Hour))
	outcome{}.check(t, condition.PlanNode(planInput(steady(newNode("n", kubeletSick, ours)), set)))
	outcome{steps: []string{"Untaint a example.com/k NoSchedule> ConditionsRecovered"}}.check(t, condition.PlanNode(planInput(steady(newNode("n", kubeletWell, ours)), set)))
}

func TestAnEvictionNeedsEvidence(t *testing.T) {
	npd := ecosystem.SystemPod{Namespace: "kube-system", Name: "npd-x", Role: "condition reporter"}
	tolerating := npd
	tolerating.Tolerations = []corev1.Toleration{{Key: "example.com/k", Operator: "Exists"}}
	seconds := int64(300)
	forAWhile := npd
	forAWhile.Tolerations = []corev1.Toleration{{Operator: "Exists", TolerationSeconds: &seconds}}
	otherEffect := npd
	otherEffect.Tolerations = []corev1.Toleration{{Operator: "Exists", Effect: "NoSchedule"}}
	evicts := outcome{taints: []string{"example.com/k:NoExecute"}, claims: []string{"a-uid example.com/k:NoExecute"}, steps: []string{"Taint a example.com/k >NoExecute ConditionsMatched"}}
	keepsAway := outcome{taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"}, steps: []string{"Taint a example.com/k >NoSchedule ConditionsMatched"}, holds: []string{"a-uid SystemPodDoesNotTolerate"}}
	tests := []struct {
		name string
		pods []ecosystem.SystemPod
		want outcome
	}{
		{"no system pods", nil, evicts},
		{"a reporter that tolerates the key", []ecosystem.SystemPod{tolerating}, evicts},
		{"a reporter that doesn't", []ecosystem.SystemPod{tolerating, npd}, keepsAway},
		{"a reporter that tolerates it for five minutes", []ecosystem.SystemPod{forAWhile}, keepsAway},
		{"a reporter that tolerates another effect", []ecosystem.SystemPod{otherEffect}, keepsAway},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := planInput(steady(newNode("n", kernelSick)), claimant(t, "a", noExecute, active))
			in.Evidence = &condition.Evidence{SystemPods: tt.pods}
			tt.want.check(t, condition.PlanNode(in))
		})
	}
	in := planInput(steady(newNode("n", kernelSick)), claimant(t, "a", noExecute, active))
	in.Evidence = nil
	if plan := condition.PlanNode(in); !plan.NeedsEvidence || len(plan.Steps) > 0 {
		t.Errorf("without evidence: needs %t, steps %v; want evidence asked and no step", plan.NeedsEvidence, plan.Steps)
	}
}

func TestAKeyThatEvictsAlreadyNeedsNoEvidence(t *testing.T) {
	n := newNode("n", kernelSick, kubeletSick, owning("b", "example.com/k", "NoExecute", ago(time.Hour)))
	in := planInput(steady(n), claimant(t, "a", "effect: NoExecute\ntaintKey: example.com/k\nconditions: {KubeletUnhealthy: {status: true}}", active), claimant(t, "b", noExecute, active))
	in.Evidence, in.Headroom = nil, full(nil, condition.CapEvicting, "LimitReached")
	plan := condition.PlanNode(in)
	if plan.NeedsEvidence {
		t.Error("evidence asked though the key evicts already")
	}
	outcome{taints: []string{"example.com/k:NoExecute"}, claims: []string{"a-uid example.com/k:NoExecute", "b-uid example.com/k:NoExecute"}, steps: []string{"Taint a example.com/k >NoExecute ConditionsMatched"}}.check(t, plan)
}

func TestEachKeyThatEvictsNeedsEvidenceOfItsOwn(t *testing.T) {
	n := newNode("n", kernelSick, kubeletSick, owning("b", "example.com/k", "NoExecute", ago(time.Hour)))
	in := planInput(steady(n), claimant(t, "b", noExecute, active), claimant(t, "o", "effect: NoExecute\ntaintKey: example.com/other\nconditions: {KubeletUnhealthy: {status: true}}", active))
	in.Evidence = &condition.Evidence{SystemPods: []ecosystem.SystemPod{{Name: "npd", Tolerations: []corev1.Toleration{{Key: "example.com/k", Operator: "Exists"}}}}}
	outcome{taints: []string{"example.com/k:NoExecute", "example.com/other:NoSchedule"}, claims: []string{"b-uid example.com/k:NoExecute", "o-uid example.com/other:NoSchedule"},
		steps: []string{"Taint o example.com/other >NoSchedule ConditionsMatched"}, holds: []string{"o-uid SystemPodDoesNotTolerate"}}.check(t, condition.PlanNode(in))
}

func TestAForgedRecordBuysNoRoom(t *testing.T) {
	n := newNode("n", kubeletSick, owning("a", "corp.example/x", "NoExecute", ago(time.Hour)))
	stripped := outcome{taints: []string{"corp.example/x:NoExecute"}, steps: []string{"Repair a corp.example/x NoExecute> RecordNotOurs"}}
	in := planInput(steady(n), claimant(t, "a", noSchedule, active))
	in.Headroom = full(in.Headroom, condition.CapTainted, "LimitReached")
	stripped.holds = []string{"a-uid LimitReached"}
	stripped.check(t, condition.PlanNode(in))
	in = planInput(steady(n), claimant(t, "a", noSchedule, active))
	in.Headroom = full(in.Headroom, condition.CapMaxNodes, "MaxNodesReached")
	stripped.holds = []string{"a-uid MaxNodesReached"}
	stripped.check(t, condition.PlanNode(in))
}

func TestClosedGates(t *testing.T) {
	tests := []struct {
		name string
		spec string
		node *corev1.Node
		room condition.Headroom
		want outcome
	}{
		{"no room to taint", noSchedule, newNode("n", kubeletSick), full(nil, condition.CapTainted, "LimitReached"), outcome{holds: []string{"a-uid LimitReached"}}},
		{"PreferNoSchedule is free", "effect: PreferNoSchedule\ntaintKey: example.com/k\nconditions: {KubeletUnhealthy: {status: true}}", newNode("n", kubeletSick), full(full(nil, condition.CapTainted, "LimitReached"), condition.CapEvicting, "LimitReached"), outcome{
			taints: []string{"example.com/k:PreferNoSchedule"}, claims: []string{"a-uid example.com/k:PreferNoSchedule"}, steps: []string{"Taint a example.com/k >PreferNoSchedule ConditionsMatched"}}},
		{"a node that counts already needs no room", noSchedule, newNode("n", kubeletSick, owning("z", "example.com/z", "NoSchedule", ago(time.Hour))), full(nil, condition.CapTainted, "LimitReached"), outcome{
			taints: []string{"example.com/z:NoSchedule", "example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule", "z-uid example.com/z:NoSchedule"}, steps: []string{"Taint a example.com/k >NoSchedule ConditionsMatched"}}},
		{"no room to evict leaves NoSchedule", noExecute, newNode("n", kernelSick), full(nil, condition.CapEvicting, "LimitReached"), outcome{
			taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"}, steps: []string{"Taint a example.com/k >NoSchedule ConditionsMatched"}, holds: []string{"a-uid LimitReached"}}},
		{"no room to evict raises nothing", noExecute, newNode("n", kernelSick, owning("a", "example.com/k", "NoSchedule", ago(time.Hour))), full(nil, condition.CapEvicting, "LimitReached"), outcome{holds: []string{"a-uid LimitReached"}}},
		{"no room to taint doesn't evict either", noExecute, newNode("n", kernelSick), full(nil, condition.CapTainted, "LimitReached"), outcome{holds: []string{"a-uid LimitReached"}}},
		{"the own cap", noSchedule, newNode("n", kubeletSick), full(nil, condition.CapMaxNodes, "MaxNodesReached"), outcome{holds: []string{"a-uid MaxNodesReached"}}},
		{"another control-plane node is tainted", "includeControlPlane: true\n" + noSchedule, newNode("n", controlPlane, kubeletSick), full(nil, condition.CapControlPlane, "OtherControlPlaneNodeTainted"), outcome{holds: []string{"a-uid OtherControlPlaneNodeTainted"}}},
		{"that doesn't stop workers", noSchedule, newNode("n", kubeletSick), full(nil, condition.CapControlPlane, "OtherControlPlaneNodeTainted"), outcome{
			taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"}, steps: []string{"Taint a example.com/k >NoSchedule ConditionsMatched"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			other := claimant(t, "z", "effect: NoSchedule\ntaintKey: example.com/z\nconditions: {KubeletUnhealthy: {status: true}}", frozen)
			in := planInput(steady(tt.node), claimant(t, "a", tt.spec, active), other)
			in.Headroom = tt.room
			tt.want.check(t, condition.PlanNode(in))
		})
	}
}

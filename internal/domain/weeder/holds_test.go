package weeder_test

import (
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

func holdUntil(until string) *hold.Hold {
	return hold.Of(map[string]string{"autohealer.resourcestack.com/hold-until": until})
}

func TestAWorkloadsHoldKeepsItsPods(t *testing.T) {
	api := weeder.Workload{Namespace: "ns", Kind: "StatefulSet", Name: "api"}
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff, owned("StatefulSet", "api")), newPod("api-2", backOff, owned("StatefulSet", "other")))
	y.ObserveHold(api, holdUntil("2026-11-03T12:00:30Z"), "", at(-time.Minute))
	expect(t, "due", names(recoverEtcd(y, 0)), "api-1 api-2")
	plan, next := decideOn(y, key("api-1"), at(second), "")
	expect(t, "while it holds", verdict(plan, next), "HoldUntil")
	expect(t, "look again", plan.RequeueAt, noon.Add(30*second))
	expect(t, "says", plan.Holds[0].Message, "on StatefulSet/api the annotation autohealer.resourcestack.com/hold-until keeps Autohealer from it until 2026-11-03T12:00:30Z")
	plan, next = decideOn(y, key("api-2"), at(second), "")
	expect(t, "another's pod", verdict(plan, next), "delete")

	expect(t, "due by a longer one", names(y.ObserveHold(api, holdUntil("2026-11-03T14:00:00Z"), "", at(second))), "api-1")
	expect(t, "due by the same", len(y.ObserveHold(api, holdUntil("2026-11-03T14:00:00Z"), "", at(second))), 0)
	plan, next = decideOn(y, key("api-1"), at(40*second), "")
	expect(t, "after the first would have ended", verdict(plan, next), "HoldUntil")
	expect(t, "due without any", names(y.ObserveHold(api, nil, "", at(41*second))), "api-1")
	plan, next = decideOn(y, key("api-1"), at(41*second), "")
	expect(t, "without any", verdict(plan, next), "delete")
}

func TestADeploymentsHoldIsOfItsReplicaSetsPods(t *testing.T) {
	pod := newPod("api-1", backOff, owned("ReplicaSet", "api-5d4f"), labelled("pod-template-hash", "5d4f"))
	y := watchingEtcd(t, etcdForAPI, pod)
	y.ObserveHold(weeder.Workload{Namespace: "ns", Kind: "Deployment", Name: "api"}, holdUntil("soon"), "", at(0))
	recoverEtcd(y, 0)
	plan, next := decideOn(y, key("api-1"), at(second), "")
	expect(t, "verdict", verdict(plan, next), "HoldUntil")
	items := y.ForecastItems(newWeederConfig(t, "ns", "wc", etcdForAPI), lifecycle.Active, limit.Builtin(), at(second)).Items
	expect(t, "forecast", items.Services[0].Pods[0].Reason, "HoldUntil")
}

func TestAnOlderStateOfAWorkloadChangesNothing(t *testing.T) {
	api := weeder.Workload{Namespace: "ns", Kind: "StatefulSet", Name: "api"}
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff, owned("StatefulSet", "api")))
	recoverEtcd(y, 0)
	y.ObserveHold(api, holdUntil("2026-11-03T14:00:00Z"), "12", at(0))
	y.ObserveHold(api, nil, "9", at(0))
	expect(t, "after older news", decide(y, "api-1", second), "HoldUntil")
	expect(t, "due by newer ones", names(y.ObserveHold(api, nil, "13", at(second))), "api-1")
	y.ObserveHold(api, holdUntil("2026-11-03T14:00:00Z"), "12", at(second))
	expect(t, "after the same once more", decide(y, "api-1", second), "delete")
	y.ObserveHold(api, holdUntil("2026-11-03T14:00:00Z"), "14", at(second))
}

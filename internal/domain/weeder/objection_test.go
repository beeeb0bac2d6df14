package weeder_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

func limitsOf(deletionsPerMinute int) limit.Limits {
	limits := limit.Builtin()
	limits.MaxPodDeletionsPerMinute = deletionsPerMinute
	return limits
}

// Between the decision and the request pods, Services, namespaces, configs and limits may change.
func TestWhatComesToStandBeforeADeletion(t *testing.T) {
	for name, test := range map[string]struct {
		news func(*weeder.State)
		want string
	}{
		"nothing": {func(*weeder.State) {}, ""},
		"the pod stands behind the Service now": {func(y *weeder.State) {
			y.ObserveSlice(newSlice("etcd-2", "etcd", "api-1:notready"), at(second))
		}, "it is one of Service etcd's own pods"},
		"the Service selects the pod now":       {func(y *weeder.State) { y.ObserveService(newService("etcd", selecting("api"))) }, "it is one of Service etcd's own pods"},
		"the namespace isn't selected any more": {func(y *weeder.State) { y.ObserveNamespace(newNamespace("ns", nil), at(second)) }, "the window isn't open any more"},
		"the pod is terminating": {func(y *weeder.State) { y.ObservePod(weeder.ReadPod(newPod("api-1", backOff, terminating)), at(second)) },
			"the pod doesn't crash-loop any more, or its window is over"},
		"the pod runs": {func(y *weeder.State) { y.ObservePod(weeder.ReadPod(newPod("api-1", running)), at(second)) },
			"the pod doesn't crash-loop any more, or its window is over"},
		"the pod has other labels": {func(y *weeder.State) {
			y.ObservePod(weeder.ReadPod(newPod("api-1", backOff, labelled("app", "x"))), at(second))
		},
			"the pod doesn't crash-loop any more, or its window is over"},
		"the pod is gone":    {func(y *weeder.State) { y.ForgetPod(key("api-1"), "api-1-uid") }, "the pod is gone"},
		"the clock stepped":  {func(y *weeder.State) { y.DeferActsUntil(noon.Add(time.Minute)) }, "the manager's clock stepped"},
		"a looser limit":     {func(y *weeder.State) { y.SetLimits(limitsOf(1)) }, ""},
		"no deletion at all": {func(y *weeder.State) { y.SetLimits(limitsOf(0)) }, "maxPodDeletionsPerMinute 0 is spent, over all WeederConfigs"},
		"another config makes a cycle": {func(y *weeder.State) {
			y.ObserveSlice(newSlice("api-1", "api", "api-1:notready"), at(second))
			y.ObserveConfig(newConfig(t, "second", second2), lifecycle.Active, at(second))
		}, "Services wait for each other (etcd → api → etcd), and its deletion would set off the next"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newState()
			y.ObserveNamespace(newNamespace("ns", map[string]string{"shoot": "yes"}), at(-time.Minute))
			y.ObservePod(weeder.ReadPod(newPod("api-1", backOff)), at(-time.Minute))
			y.ObserveConfig(compiled(t, newWeederConfig(t, "autohealer-system", "wc", etcdForAPI+"namespaceSelector: {matchLabels: {shoot: \"yes\"}}")), lifecycle.Active, at(-time.Minute))
			y.MarkSynced(at(-time.Minute))
			failEtcd(y, -time.Minute)
			recoverEtcd(y, 0)
			plan, next := decideOn(y, key("api-1"), at(0), "")
			expect(t, "decision", verdict(plan, next), "delete")
			test.news(y)
			expect(t, "objection", y.Revalidate(plan, at(2*second)), test.want)
			if test.want == "" {
				expect(t, "when the window is over", y.Revalidate(plan, at(2*time.Minute)), "the pod doesn't crash-loop any more, or its window is over")
			}
		})
	}
}

func TestALimitThatIsLoweredHoldsWhatIsOnItsWay(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 6 {
		pods = append(pods, newPod(fmt.Sprintf("api-%d", i), backOff))
	}
	y := watchingEtcd(t, etcdForAPI, pods...)
	recoverEtcd(y, 0)
	var plans []weeder.Plan
	for i := range 6 {
		plan, next := decideOn(y, key(fmt.Sprintf("api-%d", i)), at(time.Duration(i)*second), "")
		expect(t, "decision", verdict(plan, next), "delete")
		plans = append(plans, plan)
	}
	objections := func(d time.Duration) (held string) {
		for i, plan := range plans {
			if plan.Pod.Name != "" && y.Revalidate(plan, at(d)) != "" {
				held += fmt.Sprint(i)
			}
		}
		return held
	}
	expect(t, "held before", objections(6*second), "")
	y.Confirm(plans[3].Pod.UID, at(6*second))
	y.ForgetPod(plans[3].Pod.Key(), plans[3].Pod.UID)
	plans[3] = weeder.Plan{}
	y.SetLimits(limitsOf(3))
	expect(t, "held: one is done, and two may go", objections(7*second), "245")
	y.SetLimits(limitsOf(6))
	expect(t, "held once it is raised", objections(8*second), "")
	y.SetLimits(limitsOf(3))
	expect(t, "held a minute after the decisions", objections(90*second), "")
}

package weeder_test

import (
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// first has pods of app api wait for Service etcd, and second those of app etcd for Service api: two configs that were stored
// at the same moment, or when the webhook was away.
const second2 = `
watchDuration: 2m
servicesAndDependantSelectors: {api: {podSelectors: [{matchLabels: {app: etcd}}]}}
`

func TestNothingIsDeletedOnACycleOfConfigs(t *testing.T) {
	const message = "Services wait for each other (etcd → api → etcd), and its deletion would set off the next"
	for name, test := range map[string]struct {
		second string
		state  lifecycle.State
		behind string // the pod behind Service api
		want   string
	}{
		"a cycle":                              {second2, lifecycle.Active, "api-1:notready", "DependencyCycle"},
		"the other config isn't judged yet":    {second2, lifecycle.NotJudged, "api-1:notready", "DependencyCycle"},
		"the other config is paused":           {second2, lifecycle.Paused, "api-1:notready", "DependencyCycle"},
		"a rule refuses the other config":      {second2, lifecycle.Refused, "api-1:notready", "delete"},
		"the other config's account may not":   {second2, lifecycle.Forbidden, "api-1:notready", "delete"},
		"the other config only observes":       {second2 + "mode: Observe", lifecycle.Active, "api-1:notready", "delete"},
		"another pod stands behind":            {second2, lifecycle.Active, "api-2:notready", "delete"},
		"the other selects nobody behind etcd": {"servicesAndDependantSelectors: {api: {podSelectors: [{matchLabels: {app: web}}]}}", lifecycle.Active, "api-1:notready", "delete"},
		"a way over a third Service": {`
servicesAndDependantSelectors:
  api: {podSelectors: [{matchLabels: {app: web}}]}
  web: {podSelectors: [{matchLabels: {app: etcd}}]}
`, lifecycle.Active, "api-1:notready", "DependencyCycle"},
	} {
		t.Run(name, func(t *testing.T) {
			y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff), newPod("api-2", running), newPod("web-1", running))
			y.ObserveSlice(newSlice("api-1", "api", test.behind), at(-time.Minute))
			y.ObserveSlice(newSlice("web-1", "web", "web-1"), at(-time.Minute))
			y.ObserveConfig(newConfig(t, "second", test.second), test.state, at(-time.Minute))
			recoverEtcd(y, 0)
			plan, next := decideOn(y, key("api-1"), at(second), "")
			expect(t, "verdict", verdict(plan, next), test.want)
			if name == "a cycle" {
				expect(t, "message", plan.Holds[0].Message, message)
				expect(t, "looks again", plan.RequeueAt, noon.Add(6*second)) // no event of the pod's ends it
				y.ForgetConfig("second-uid")
				expect(t, "once the other config is gone", decide(y, "api-1", 2*second), "delete")
			}
		})
	}
}

// A config that isn't stored waits for itself: api's pods depend on etcd, and etcd's on api.
func TestForecastItemsTellOfACycleOfTheConfigItself(t *testing.T) {
	y := newState()
	for _, p := range []string{"etcd-0", "api-1"} {
		y.ObservePod(weeder.ReadPod(newPod(p, backOff)), at(0))
	}
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0:notready"), at(0))
	y.ObserveSlice(newSlice("api-1", "api", "api-1:notready"), at(0))
	y.MarkSynced(at(0))
	wc := newWeederConfig(t, "ns", "new", `
servicesAndDependantSelectors:
  etcd: {podSelectors: [{matchLabels: {app: api}}]}
  api: {podSelectors: [{matchLabels: {app: etcd}}]}
`)
	expect(t, "forecast", told(t, y, wc, lifecycle.Active, limit.Builtin(), at(0)),
		"api of 1: ready false, etcd-0 DependencyCycle\netcd of 1: ready false, api-1 DependencyCycle")
}

func TestAForecastTellsOfACycle(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", running))
	y.ObserveSlice(newSlice("api-1", "api", "api-1"), at(-time.Minute))
	y.ObservePod(weeder.ReadPod(newPod("etcd-0", backOff)), at(-time.Minute))
	services := y.ForecastItems(newWeederConfig(t, "ns", "second", second2), lifecycle.Active, limitsOf(60), at(0)).Items.Services
	if len(services) != 1 || len(services[0].Pods) != 1 {
		t.Fatalf("%+v", services)
	}
	expect(t, "reason", services[0].Pods[0].Reason, weeder.HeldByCycle)
}

// A pod that leaves the Service it stood behind has no news of its own when the slices say so.
func TestAPodOfTheServiceIsLookedAtAgain(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff))
	y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(0))), at(0))
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0", "api-1:notready"), at(0))
	plan, next := decideOn(y, key("api-1"), at(second), "")
	expect(t, "verdict", verdict(plan, next), "PodOfTheService")
	expect(t, "looks again", plan.RequeueAt, noon.Add(6*second))
	seeEtcdReady(y, 2*second)
	expect(t, "then", decide(y, "api-1", 6*second), "delete")
	y = watchingEtcd(t, etcdForAPI, newPod("api-1", backOff))
	y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(0))), at(0))
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0", "api-1:notready"), at(0))
	plan, _ = decideOn(y, key("api-1"), at(116*second), "")
	expect(t, "looks again after the window", plan.RequeueAt, time.Time{})
}

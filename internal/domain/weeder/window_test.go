package weeder_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// The seed's example: etcd has three replicas, times are in seconds.
func TestTheSeedsTimeline(t *testing.T) {
	y := newState()
	etcds := []string{"etcd-0", "etcd-1", "etcd-2"}
	for _, name := range etcds {
		y.ObservePod(weeder.ReadPod(newPod(name, readySince(-24*time.Hour))), at(-time.Minute))
	}
	apis := []string{"api-a", "api-b"}
	for _, name := range apis {
		y.ObservePod(weeder.ReadPod(newPod(name, running)), at(-time.Minute))
	}
	y.ObserveSlice(newSlice("etcd-main-client-x", "etcd-main-client", etcds...), at(-time.Minute))
	wc := newConfig(t, "wc", `
watchDuration: 2m0s
servicesAndDependantSelectors: {etcd-main-client: {podSelectors: [{matchExpressions: [{key: app, operator: In, values: [api]}]}]}}
`)
	y.ObserveConfig(wc, lifecycle.Active, at(-time.Minute))
	y.MarkSynced(at(-time.Minute))

	for _, step := range []struct {
		t    int
		what string
		do   func(now timing.Moment) []types.NamespacedName
		// due are the pods to decide on, deleted those of them that are deleted.
		due, deleted string
	}{
		{0, "all etcd pods go down", func(now timing.Moment) []types.NamespacedName {
			return y.ObserveSlice(newSlice("etcd-main-client-x", "etcd-main-client", "etcd-0:notready", "etcd-1:notready", "etcd-2:notready"), now)
		}, "", ""},
		{10, "the API servers transition to CrashLoopBackOff", func(now timing.Moment) []types.NamespacedName {
			return append(y.ObservePod(weeder.ReadPod(newPod("api-a", backOff)), now), y.ObservePod(weeder.ReadPod(newPod("api-b", waiting)), now)...)
		}, "", ""},
		{100, "all etcd pods recover", func(now timing.Moment) (due []types.NamespacedName) {
			for _, name := range etcds {
				due = append(due, y.ObservePod(weeder.ReadPod(newPod(name, readySince(100*second))), now)...)
			}
			return due
		}, "", ""},
		{101, "the slice's update is seen, and the API servers still crash-loop", func(now timing.Moment) []types.NamespacedName {
			return y.ObserveSlice(newSlice("etcd-main-client-x", "etcd-main-client", etcds...), now)
		}, "api-a api-b", "api-a api-b"},
		{103, "the deletions are seen", func(now timing.Moment) []types.NamespacedName {
			due := y.ObservePod(weeder.ReadPod(newPod("api-a", backOff, terminating)), now)
			y.ForgetPod(key("api-b"), "api-b-uid")
			return due
		}, "", ""},
		{104, "the replica set's controller has made new ones", func(now timing.Moment) []types.NamespacedName {
			return append(y.ObservePod(weeder.ReadPod(newPod("api-c", created(104*second))), now), y.ObservePod(weeder.ReadPod(newPod("api-d", created(104*second))), now)...)
		}, "", ""},
		{110, "another etcd update while Ready", func(now timing.Moment) []types.NamespacedName {
			return y.ObserveSlice(newSlice("etcd-main-client-x", "etcd-main-client", "etcd-0", "etcd-1:notready", "etcd-2"), now)
		}, "", ""},
		{219, "one crash-loops again in the window's last second", func(now timing.Moment) []types.NamespacedName {
			return y.ObservePod(weeder.ReadPod(newPod("api-c", created(104*second), backOff)), now)
		}, "api-c", "api-c"},
		{220, "one crash-loops after it", func(now timing.Moment) []types.NamespacedName {
			return y.ObservePod(weeder.ReadPod(newPod("api-d", created(104*second), backOff)), now)
		}, "", ""},
	} {
		now := at(time.Duration(step.t) * second)
		due := step.do(now)
		expect(t, step.what+": due", names(due), step.due)
		var gone []string
		for _, k := range due {
			plan, next := decideOn(y, k, now, "")
			if next == weeder.Delete {
				gone = append(gone, k.Name)
				y.Confirm(plan.Pod.UID, now)
				expect(t, step.what+": trigger", plan.Delete.Trigger, noon.Add(100*second))
			}
		}
		expect(t, step.what+": deleted", strings.Join(gone, " "), step.deleted)
	}
	expect(t, "windows", strings.Join(opened(y), "; "), "ns/etcd-main-client until +3m40s")
}

// A Service's slices as they come one after the other; "-name" deletes one.
func TestOnlyTheTurnToReadyOpensAWindow(t *testing.T) {
	type slices []*discoveryv1.EndpointSlice
	gone := func(name string) *discoveryv1.EndpointSlice { return newSlice("-"+name, "etcd") }
	unknown := newSlice("a", "etcd", "etcd-0") // no condition is written
	unknown.Endpoints[0].Conditions = discoveryv1.EndpointConditions{}
	publishing := newSlice("a", "etcd", "etcd-0:notready") // publishNotReadyAddresses: ready is always true
	yes := true
	publishing.Endpoints[0].Conditions.Ready = &yes
	terminatingServes := newSlice("a", "etcd", "etcd-0:terminating")
	terminatingServes.Endpoints[0].Conditions.Ready = &yes
	byHand := newSlice("a", "etcd", "etcd-0")
	byHand.Endpoints[0].TargetRef = nil
	toNode := newSlice("a", "etcd", "etcd-0")
	toNode.Endpoints[0].TargetRef.Kind = "Node"
	moved := newSlice("a", "another", "etcd-0")

	for name, test := range map[string]struct {
		policy string
		steps  slices
		opens  int
	}{
		"notReady to Ready":                               {steps: slices{newSlice("a", "etcd", "etcd-0:notready"), newSlice("a", "etcd", "etcd-0")}, opens: 1},
		"Ready to notReady":                               {steps: slices{newSlice("a", "etcd", "etcd-0"), newSlice("a", "etcd", "etcd-0:notready")}},
		"there and back, twice":                           {steps: slices{newSlice("a", "etcd", "etcd-0:notready"), newSlice("a", "etcd", "etcd-0"), newSlice("a", "etcd", "etcd-0:notready"), newSlice("a", "etcd", "etcd-0")}, opens: 2},
		"updates while Ready":                             {steps: slices{newSlice("a", "etcd", "etcd-0"), newSlice("a", "etcd", "etcd-0", "etcd-1"), newSlice("a", "etcd", "etcd-1")}},
		"one of three is ready":                           {steps: slices{newSlice("a", "etcd", "etcd-0:notready", "etcd-1:notready", "etcd-2:notready"), newSlice("a", "etcd", "etcd-0:notready", "etcd-1", "etcd-2:notready")}, opens: 1},
		"the second and third follow":                     {steps: slices{newSlice("a", "etcd", "etcd-0:notready", "etcd-1:notready"), newSlice("a", "etcd", "etcd-0", "etcd-1:notready"), newSlice("a", "etcd", "etcd-0", "etcd-1")}, opens: 1},
		"scaled to zero":                                  {steps: slices{newSlice("a", "etcd", "etcd-0"), newSlice("a", "etcd")}},
		"scaled to zero while notReady":                   {steps: slices{newSlice("a", "etcd", "etcd-0:notready"), newSlice("a", "etcd")}},
		"scaled from zero":                                {steps: slices{newSlice("a", "etcd"), newSlice("a", "etcd", "etcd-0:notready"), newSlice("a", "etcd", "etcd-0")}, opens: 1},
		"another slice is Ready already":                  {steps: slices{newSlice("a", "etcd", "etcd-0"), newSlice("b", "etcd", "etcd-1:notready"), newSlice("b", "etcd", "etcd-1")}},
		"the second slice turns Ready":                    {steps: slices{newSlice("a", "etcd", "etcd-0:notready"), newSlice("b", "etcd", "etcd-1:notready"), newSlice("b", "etcd", "etcd-1")}, opens: 1},
		"an empty slice beside":                           {steps: slices{newSlice("a", "etcd"), newSlice("b", "etcd", "etcd-1:notready"), newSlice("b", "etcd", "etcd-1")}, opens: 1},
		"dual-stack: both families, one after other":      {steps: slices{newSlice("v4", "etcd", "etcd-0:notready"), newSlice("v6", "etcd", "etcd-0:notready"), newSlice("v4", "etcd", "etcd-0"), newSlice("v6", "etcd", "etcd-0")}, opens: 1},
		"dual-stack: one family blinks":                   {steps: slices{newSlice("v4", "etcd", "etcd-0"), newSlice("v6", "etcd", "etcd-0"), newSlice("v4", "etcd", "etcd-0:notready"), newSlice("v4", "etcd", "etcd-0"), newSlice("v6", "etcd", "etcd-0:notready"), newSlice("v6", "etcd", "etcd-0"), newSlice("v4", "etcd", "etcd-0:notready"), newSlice("v4", "etcd", "etcd-0")}},
		"the Ready slice is deleted, another turns Ready": {steps: slices{newSlice("a", "etcd", "etcd-0"), newSlice("b", "etcd", "etcd-1:notready"), gone("a"), newSlice("b", "etcd", "etcd-1")}, opens: 1},
		"no conditions count as ready":                    {steps: slices{newSlice("a", "etcd", "etcd-0:notready"), unknown}, opens: 1},
		"not-ready addresses published":                   {steps: slices{newSlice("a", "etcd", "etcd-0:notready"), publishing}},
		"a terminating pod":                               {steps: slices{newSlice("a", "etcd", "etcd-0:notready"), newSlice("a", "etcd", "etcd-0:terminating")}},
		"a terminating pod that is said to be ready":      {steps: slices{newSlice("a", "etcd", "etcd-0:notready"), terminatingServes}},
		"an endpoint that is no pod":                      {steps: slices{newSlice("a", "etcd", "etcd-0:notready"), byHand}},
		"an endpoint that is a node":                      {steps: slices{newSlice("a", "etcd", "etcd-0:notready"), toNode}},
		"deleted and created Ready":                       {steps: slices{newSlice("a", "etcd", "etcd-0"), gone("a"), newSlice("a", "etcd", "etcd-0")}},
		"deleted while notReady and created Ready":        {steps: slices{newSlice("a", "etcd", "etcd-0:notready"), gone("a"), newSlice("a", "etcd", "etcd-0")}},
		"a new slice before the old one is deleted":       {steps: slices{newSlice("a", "etcd", "etcd-0"), newSlice("b", "etcd", "etcd-0"), gone("a")}},
		"the slice is another Service's from now on":      {steps: slices{newSlice("a", "etcd", "etcd-0:notready"), moved}},
		"AllReady: one of two":                            {policy: "AllReady", steps: slices{newSlice("a", "etcd", "etcd-0:notready", "etcd-1:notready"), newSlice("a", "etcd", "etcd-0", "etcd-1:notready")}},
		"AllReady: both":                                  {policy: "AllReady", steps: slices{newSlice("a", "etcd", "etcd-0", "etcd-1:notready"), newSlice("a", "etcd", "etcd-0", "etcd-1")}, opens: 1},
		"AllReady: the other one terminates":              {policy: "AllReady", steps: slices{newSlice("a", "etcd", "etcd-0", "etcd-1:notready"), newSlice("a", "etcd", "etcd-0", "etcd-1:terminating")}, opens: 1},
		"AllReady: empty":                                 {policy: "AllReady", steps: slices{newSlice("a", "etcd", "etcd-0:notready"), newSlice("a", "etcd")}},
		"AllReady: only terminating ones":                 {policy: "AllReady", steps: slices{newSlice("a", "etcd", "etcd-0:notready"), newSlice("a", "etcd", "etcd-0:terminating")}},
		"AllReady: the slice with the other one goes":     {policy: "AllReady", steps: slices{newSlice("a", "etcd", "etcd-0"), newSlice("b", "etcd", "etcd-1:notready"), gone("b")}},
	} {
		t.Run(name, func(t *testing.T) {
			y := newState()
			for _, name := range []string{"etcd-0", "etcd-1", "etcd-2"} {
				y.ObservePod(weeder.ReadPod(newPod(name, readySince(-24*time.Hour))), at(0))
			}
			spec := etcdForAPI
			if test.policy != "" {
				spec += "readyPolicy: " + test.policy
			}
			y.ObserveConfig(newConfig(t, "wc", spec), lifecycle.Active, at(0))
			y.MarkSynced(at(0))
			for i, s := range test.steps {
				now := at(time.Duration(i) * second)
				if name, deleted := strings.CutPrefix(s.Name, "-"); deleted {
					y.ForgetSlice(key(name), "", at(0))
				} else {
					y.ObserveSlice(s, now)
				}
			}
			expect(t, "windows opened", len(y.DrainOpened()), test.opens)
		})
	}
}

// Both families' slices list the same pod; it is ready while either says so.
func TestTheFamiliesOfADualStackServiceAreOne(t *testing.T) {
	y := newState()
	y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(-time.Hour))), at(0))
	y.ObserveSlice(newSlice("v4", "etcd", "etcd-0"), at(0))
	y.ObserveSlice(newSlice("v6", "etcd", "etcd-0"), at(0))
	y.ObserveConfig(newConfig(t, "wc", etcdForAPI), lifecycle.Active, at(0))
	y.MarkSynced(at(0))
	for range 20 { // the order in which they are looked at is random
		for _, family := range []string{"v4", "v6"} {
			y.ObserveSlice(newSlice(family, "etcd", "etcd-0:notready"), at(second))
			y.ObserveSlice(newSlice(family, "etcd", "etcd-0"), at(second))
		}
	}
	expect(t, "windows", len(y.DrainOpened()), 0)
}

func TestAServiceThatIsReadyAtFirstSight(t *testing.T) {
	for name, test := range map[string]struct {
		policy string
		since  []time.Duration // Ready transitions of etcd-0, etcd-1, …
		unsure bool            // the API server's clock isn't known
		// until is when the window ends; 0 when none opens. WatchDuration is 2 minutes.
		until time.Duration
	}{
		"turned Ready a minute ago":               {since: []time.Duration{-time.Minute}, until: time.Minute},
		"turned Ready this moment":                {since: []time.Duration{0}, until: 2 * time.Minute},
		"turned Ready just less than 2m ago":      {since: []time.Duration{-119 * second}, until: second},
		"turned Ready 2m ago":                     {since: []time.Duration{-2 * time.Minute}},
		"has been Ready for a day":                {since: []time.Duration{-24 * time.Hour}},
		"only one of its pods is new":             {since: []time.Duration{-24 * time.Hour, -time.Minute}},
		"the first of its pods a minute ago":      {since: []time.Duration{-10 * second, -time.Minute}, until: time.Minute},
		"AllReady: the last of its pods":          {policy: "AllReady", since: []time.Duration{-24 * time.Hour, -time.Minute}, until: time.Minute},
		"AllReady: all are old":                   {policy: "AllReady", since: []time.Duration{-24 * time.Hour, -3 * time.Minute}},
		"its node's clock is 30s ahead":           {since: []time.Duration{30 * second}, until: 2 * time.Minute},
		"its node's clock is an hour ahead":       {since: []time.Duration{time.Hour}},
		"the API server's time isn't known":       {since: []time.Duration{-time.Minute}, unsure: true},
		"it isn't known when its pods did at all": {since: nil},
	} {
		t.Run(name, func(t *testing.T) {
			now := at(0)
			if test.unsure {
				now.Server = time.Time{}
			}
			slice, pods := newSlice("a", "etcd", "etcd-0", "etcd-1"), []string{"etcd-0", "etcd-1"}
			slice.Endpoints = slice.Endpoints[:max(1, len(test.since))]
			build := func() *weeder.State {
				y := newState()
				for i, since := range test.since {
					y.ObservePod(weeder.ReadPod(newPod(pods[i], readySince(since))), now)
				}
				return y
			}
			config := newConfig(t, "wc", etcdForAPI+"readyPolicy: "+map[string]string{"": "AnyReady"}[test.policy]+test.policy)
			var want []string
			if test.until != 0 {
				want = []string{"ns/etcd until +" + test.until.String()}
			}

			restarted := build() // everything is known before it's synced
			restarted.ObserveSlice(slice, now)
			restarted.ObserveConfig(config, lifecycle.Active, now)
			restarted.MarkSynced(now)
			expect(t, "after a restart", strings.Join(opened(restarted), ";"), strings.Join(want, ";"))

			created := build() // the config comes later
			created.ObserveSlice(slice, now)
			created.MarkSynced(now)
			created.ObserveConfig(config, lifecycle.Active, now)
			expect(t, "when the config is created", strings.Join(opened(created), ";"), strings.Join(want, ";"))

			service := build() // the Service comes later
			service.ObserveConfig(config, lifecycle.Active, now)
			service.MarkSynced(now)
			service.ObserveSlice(slice, now)
			expect(t, "when the slice is created", strings.Join(opened(service), ";"), strings.Join(want, ";"))
		})
	}
}

// The watch of EndpointSlices may tell late; etcd was seen down a minute before noon. WatchDuration is 2 minutes.
func TestAWindowBeginsWhenTheServiceTurnedReadyAndNotWhenThatIsLearnt(t *testing.T) {
	for name, test := range map[string]struct {
		spec   string
		since  time.Duration
		learnt time.Duration
		until  string // "" when no window opens
	}{
		"at once":                                  {since: 0, learnt: 0, until: "2m0s"},
		"30s late":                                 {since: 0, learnt: 30 * second, until: "2m0s"},
		"a moment before its end":                  {since: 0, learnt: 119 * second, until: "2m0s"},
		"when it would be over":                    {since: 0, learnt: 2 * time.Minute},
		"after a long outage":                      {since: 0, learnt: time.Hour},
		"the node's clock is ahead":                {since: 30 * second, learnt: 10 * second, until: "2m10s"},
		"the node's clock is an hour ahead":        {since: time.Hour, learnt: 10 * second, until: "2m10s"},
		"the node's clock is behind":               {since: -65 * second, learnt: 10 * second, until: "55s"},
		"it is known to have been down for longer": {since: -80 * second, learnt: 10 * second, until: "40s"},
		"its pod was Ready all the time":           {since: -time.Hour, learnt: 10 * second, until: "2m10s"},
		"all must be Ready, and it comes late":     {spec: "readyPolicy: AllReady", since: 0, learnt: 30 * second, until: "2m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			y := watchingEtcd(t, etcdForAPI+test.spec, newPod("api-1", backOff), newPod("etcd-0", readySince(test.since)))
			due := seeEtcdReady(y, test.learnt)
			want, looping := "ns/etcd until +"+test.until, "api-1"
			if test.until == "" {
				want, looping = "", ""
			}
			expect(t, "windows", strings.Join(opened(y), ";"), want)
			expect(t, "due", names(due), looping)
		})
	}
}

// The watch of EndpointSlices was silent: that etcd went down, and that it is back, is told at the same moment, at noon.
func TestAnOutageThatIsToldLateOpensNoWindowThatWouldBeOver(t *testing.T) {
	for name, test := range map[string]struct {
		back      time.Duration // when etcd-0 turned Ready again
		meanwhile func(*weeder.State)
		until     string // "" when no window opens
	}{
		"it would be over":  {back: -8 * time.Minute},
		"it would be open":  {back: -time.Minute, until: "1m0s"},
		"nothing went down": {back: -time.Hour, until: "2m0s"}, // a selector that was wrong for a moment
		"the config is looked at meanwhile": {back: -8 * time.Minute, meanwhile: func(y *weeder.State) {
			y.ObserveConfig(newConfig(t, "wc", etcdForAPI), lifecycle.Paused, at(-5*time.Minute))
			y.ObserveConfig(newConfig(t, "wc", etcdForAPI), lifecycle.Active, at(-4*time.Minute))
		}},
		"a pod that comes is told of first": {back: -8 * time.Minute, meanwhile: func(y *weeder.State) {
			y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0", "etcd-1:notready"), at(0))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			y := newState()
			y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(-time.Hour))), at(-30*time.Minute))
			seeEtcdReady(y, -30*time.Minute)
			y.ObserveConfig(newConfig(t, "wc", etcdForAPI), lifecycle.Active, at(-30*time.Minute))
			y.MarkSynced(at(-30 * time.Minute))
			y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(test.back))), at(test.back))
			if test.meanwhile != nil {
				test.meanwhile(y)
			}
			failEtcd(y, 0)
			seeEtcdReady(y, 0)
			want := ""
			if test.until != "" {
				want = "ns/etcd until +" + test.until
			}
			expect(t, "windows", strings.Join(opened(y), ";"), want)
		})
	}
}

// Of two pods that must be Ready one fails and is removed: the other turned Ready long before that, and it isn't the recovery.
func TestAWindowNeverBeginsBeforeTheServiceWasDown(t *testing.T) {
	y := newState()
	for i, pod := range []string{"etcd-0", "etcd-1"} {
		y.ObservePod(weeder.ReadPod(newPod(pod, readySince(-time.Minute+time.Duration(i)*second))), at(-50*second))
	}
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0", "etcd-1"), at(-50*second))
	y.MarkSynced(at(-50 * second))
	y.ObserveConfig(newConfig(t, "wc", etcdForAPI+"readyPolicy: AllReady"), lifecycle.Active, at(-50*second))
	expect(t, "windows at first sight", strings.Join(opened(y), ";"), "ns/etcd until +1m1s")
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0", "etcd-1:notready"), at(0))
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0"), at(45*second))
	expect(t, "windows when the other one is removed", strings.Join(opened(y), ";"), "ns/etcd until +2m45s")
}

// After an outage the slices may be listed before the pods.
func TestARecoveryWaitsForItsPods(t *testing.T) {
	for learnt, want := range map[time.Duration]string{time.Minute: "ns/etcd until +2m0s", time.Hour: ""} {
		y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff), newPod("etcd-0", readiness("False", -time.Minute)))
		expect(t, "due before the pod is known to be Ready", names(seeEtcdReady(y, learnt)), "")
		y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(0))), at(learnt+second))
		expect(t, "windows", strings.Join(opened(y), ";"), want)
	}
}

func TestAPodThatNeverComesKeepsNoRecoveryWaiting(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff), newPod("etcd-0", readySince(0)))
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0", "etcd-1"), at(second))
	expect(t, "windows while a pod isn't known", len(y.DrainOpened()), 0)
	expect(t, "due when it isn't behind the Service any more", names(seeEtcdReady(y, 2*second)), "api-1")
}

func TestAReadyServiceWhosePodsComeLater(t *testing.T) {
	y := newState()
	y.ObserveConfig(newConfig(t, "wc", etcdForAPI), lifecycle.Active, at(0))
	y.ObservePod(weeder.ReadPod(newPod("api-1", backOff)), at(0))
	y.ObservePod(weeder.ReadPod(newPod("etcd-1", readiness("False", -time.Hour))), at(0))
	y.ObserveSlice(newSlice("a", "etcd", "etcd-0", "etcd-1"), at(0))
	expect(t, "due while nothing is known of its pods", names(y.MarkSynced(at(0))), "")
	expect(t, "due while one isn't known", names(y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(-time.Minute))), at(second))), "")
	expect(t, "due when all are known", names(y.ObservePod(weeder.ReadPod(newPod("etcd-1", readySince(-30*second))), at(2*second))), "api-1")
	expect(t, "windows", strings.Join(opened(y), ";"), "ns/etcd until +1m0s")
	expect(t, "due once more", names(y.ObservePod(weeder.ReadPod(newPod("etcd-1", readySince(-20*second))), at(3*second))), "")
}

func TestARecoveryIsNeverLaterThanWeSawIt(t *testing.T) {
	y := newState()
	y.ObserveConfig(newConfig(t, "wc", etcdForAPI), lifecycle.Active, at(0))
	y.ObserveSlice(newSlice("a", "etcd", "etcd-0"), at(0))
	y.MarkSynced(at(0))
	y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(30*second))), at(20*second)) // its node's clock is ahead
	expect(t, "windows", strings.Join(opened(y), ";"), "ns/etcd until +2m0s")
}

func TestOneOldPodSettlesThatNothingRecovered(t *testing.T) {
	y := newState()
	y.ObserveConfig(newConfig(t, "wc", etcdForAPI), lifecycle.Active, at(0))
	y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(-time.Hour))), at(0))
	y.ObserveSlice(newSlice("a", "etcd", "etcd-0", "etcd-1"), at(0))
	y.MarkSynced(at(0))
	y.ObservePod(weeder.ReadPod(newPod("etcd-1", readySince(-10*second))), at(second))
	expect(t, "windows", len(y.DrainOpened()), 0)
}

func TestAWindowLastsToItsEnd(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", running), newPod("api-2", running))
	recoverEtcd(y, 0)
	expect(t, "due", names(y.ObservePod(weeder.ReadPod(newPod("api-1", backOff)), at(119*second))), "api-1")
	expect(t, "next end", y.Expire(at(119*second)), noon.Add(2*time.Minute))
	expect(t, "due at its end", names(y.ObservePod(weeder.ReadPod(newPod("api-2", backOff)), at(120*second))), "")
	expect(t, "decision at its end", decide(y, "api-1", 120*second), "")
	expect(t, "next end", y.Expire(at(120*second)), time.Time{})
}

// TestAWindowEndsWithItsServicesReadiness: while the Service is down again nothing is deleted, and nothing of a budget is spent.
func TestAWindowEndsWithItsServicesReadiness(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff), newPod("api-2", running), newPod("api-3", running))
	recoverEtcd(y, 0)
	plan, next := decideOn(y, key("api-1"), at(second), "")
	expect(t, "decision", verdict(plan, next), "delete")
	failEtcd(y, 10*second)
	expect(t, "what was decided", y.Revalidate(plan, at(10*second)), "the window isn't open any more")
	y.Failed(plan.Pod.UID)
	expect(t, "due while it is down", names(y.ObservePod(weeder.ReadPod(newPod("api-2", backOff)), at(12*second))), "")
	expect(t, "decision while it is down", decide(y, "api-2", 12*second), "")
	sum, _ := y.Summary("wc-uid", at(12*second))
	expect(t, "windows while it is down", sum.ActiveWindows, 0)
	expect(t, "next end", y.Expire(at(12*second)), time.Time{})
	expect(t, "due when it recovers", names(recoverEtcd(y, 34*second)), "api-1 api-2")
	for _, name := range []string{"api-1", "api-2"} {
		deleted(t, y, name, 35*second)
	}
	sum, _ = y.Summary("wc-uid", at(35*second))
	expect(t, "deleted in the window", sum.Windows[0].Deleted, 2)
}

func TestSlicesThatAreMadeAnewFindWhatTheirWindowHasSpent(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI+"maxDeletionsPerWatch: 1", newPod("api-1", backOff), newPod("api-2", backOff))
	recoverEtcd(y, 0)
	deleted(t, y, "api-1", 0)
	y.ForgetSlice(key("etcd-1"), "", at(2*second))
	expect(t, "without slices", decide(y, "api-2", 3*second), "")
	seeEtcdReady(y, 4*second)
	expect(t, "with the same pods behind them", decide(y, "api-2", 5*second), "MaxDeletionsPerWatch")
	failEtcd(y, 10*second)
	recoverEtcd(y, 20*second)
	expect(t, "after the next recovery", decide(y, "api-2", 21*second), "delete")
}

func TestANewTurnRestartsTheWindow(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI+"maxDeletionsPerWatch: 1", newPod("api-1", backOff), newPod("api-2", backOff))
	expect(t, "due", names(recoverEtcd(y, 0)), "api-1 api-2")
	deleted(t, y, "api-1", 0)
	expect(t, "the second", decide(y, "api-2", second), "MaxDeletionsPerWatch")
	failEtcd(y, 60*second)
	expect(t, "due", names(recoverEtcd(y, 100*second)), "api-2")
	deleted(t, y, "api-2", 219*second)
	expect(t, "windows", strings.Join(opened(y), "; "), "ns/etcd until +2m0s; ns/etcd until +3m40s")
}

func TestAnotherReadyPolicyIsNoRecovery(t *testing.T) {
	const all = etcdForAPI + "readyPolicy: AllReady\n"
	y := newState()
	for _, p := range []*corev1.Pod{newPod("etcd-0", readySince(-24*time.Hour)), newPod("etcd-1", readiness("False", -24*time.Hour)), newPod("api-1", backOff)} {
		y.ObservePod(weeder.ReadPod(p), at(0))
	}
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0", "etcd-1:notready"), at(0))
	generation := int64(0)
	edit := func(spec string, d time.Duration) string {
		wc := newWeederConfig(t, "ns", "wc", spec)
		generation++
		wc.Generation = generation
		return names(y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(d)))
	}
	edit(all, 0)
	y.MarkSynced(at(0))
	expect(t, "due by AnyReady", edit(etcdForAPI, second), "")
	expect(t, "due by AllReady", edit(all, 2*second), "")
	expect(t, "due by AnyReady again", edit(etcdForAPI, 3*second), "")
	expect(t, "windows", len(y.DrainOpened()), 0)

	edit(all, 4*second)
	y.ObservePod(weeder.ReadPod(newPod("etcd-1", readySince(5*second))), at(5*second))
	expect(t, "due when all are", names(y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0", "etcd-1"), at(5*second))), "api-1")
	expect(t, "windows", len(y.DrainOpened()), 1)
}

func TestAServiceThatIsTakenOutAndPutBackHasSpentItsBudget(t *testing.T) {
	const budget = "maxDeletionsPerWatch: 1\n"
	y := watchingEtcd(t, etcdForAPI+budget, newPod("api-1", backOff), newPod("api-2", backOff))
	recoverEtcd(y, 0)
	deleted(t, y, "api-1", 0)
	expect(t, "the second", decide(y, "api-2", second), "MaxDeletionsPerWatch")
	for i, spec := range []string{"servicesAndDependantSelectors: {db: {podSelectors: [{matchLabels: {app: api}}]}}\n" + budget, etcdForAPI + budget} {
		wc := newWeederConfig(t, "ns", "wc", spec)
		wc.Generation = int64(i) + 2
		y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(time.Duration(i+2)*second))
	}
	expect(t, "the second when its Service is back", decide(y, "api-2", 4*second), "MaxDeletionsPerWatch")
}

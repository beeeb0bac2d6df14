package weeder_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// told is a forecast in words: of each Service its state, and what becomes of its crash-looping dependents.
func told(t *testing.T, y *weeder.State, wc *v1alpha1.WeederConfig, state lifecycle.State, limits limit.Limits, now timing.Moment) string {
	t.Helper()
	var lines []string
	for _, s := range y.ForecastItems(wc, state, limits, now).Items.Services {
		state := "no endpoints"
		if s.Endpoints {
			state = fmt.Sprintf("ready %t", s.Ready)
		}
		if s.WindowEnds != nil {
			state += fmt.Sprintf(", open for %s", s.WindowEnds.Sub(now.Now))
		}
		for _, p := range s.Pods {
			verdict := "deleted"
			if !p.Delete {
				verdict = string(p.Reason)
			}
			state += fmt.Sprintf(", %s %s", p.Name, verdict)
		}
		lines = append(lines, fmt.Sprintf("%s of %d: %s", s.Name, s.Dependents, state))
	}
	return strings.Join(lines, "\n")
}

func TestForecastItems(t *testing.T) {
	y := newState()
	for _, p := range []struct {
		name    string
		options []podOption
	}{
		{"etcd-0", []podOption{readySince(-time.Minute)}},
		{"cache-0", nil},
		{"queue-0", []podOption{readySince(-time.Hour)}},
		{"api-run", nil},
		{"api-loop", []podOption{backOff}},
		{"api-wait", []podOption{waiting}},
		{"api-bare", []podOption{backOff, ownerless}},
		{"web-1", []podOption{backOff}},
	} {
		y.ObservePod(weeder.ReadPod(newPod(p.name, p.options...)), at(0))
	}
	y.ObserveSlice(newSlice("a", "etcd", "etcd-0"), at(0))
	y.ObserveSlice(newSlice("b", "cache", "cache-0:notready"), at(0))
	y.ObserveSlice(newSlice("c", "queue", "queue-0"), at(0))
	y.MarkSynced(at(0))
	const spec = `
watchDuration: 2m
servicesAndDependantSelectors:
  etcd: {podSelectors: [{matchLabels: {app: api}}]}
  cache: {podSelectors: [{matchExpressions: [{key: app, operator: In, values: [api, web]}]}]}
  queue: {podSelectors: [{matchLabels: {app: web}}]}
  typo: {podSelectors: [{matchLabels: {app: none}}]}
`
	// etcd's window is open; each other Service is as if it recovered now.
	for name, test := range map[string]struct {
		more   string
		state  lifecycle.State
		limits func(*limit.Limits)
		now    time.Duration
		want   string
	}{
		"now": {"", lifecycle.Active, nil, 0, `
cache of 5: ready false, api-bare NoController, api-loop deleted, api-wait deleted, web-1 deleted
etcd of 4: ready true, open for 1m0s, api-bare NoController, api-loop deleted, api-wait deleted
queue of 1: ready true, web-1 deleted
typo of 0: no endpoints`},
		"once the window is over": {"", lifecycle.Active, nil, time.Minute, `
cache of 5: ready false, api-bare NoController, api-loop deleted, api-wait deleted, web-1 deleted
etcd of 4: ready true, api-bare NoController, api-loop deleted, api-wait deleted
queue of 1: ready true, web-1 deleted
typo of 0: no endpoints`},
		"with a budget": {"maxDeletionsPerWatch: 1", lifecycle.Active, nil, 0, `
cache of 5: ready false, api-bare NoController, api-loop deleted, api-wait MaxDeletionsPerWatch, web-1 MaxDeletionsPerWatch
etcd of 4: ready true, open for 1m0s, api-bare NoController, api-loop deleted, api-wait MaxDeletionsPerWatch
queue of 1: ready true, web-1 deleted
typo of 0: no endpoints`},
		"with a cluster-wide limit": {"", lifecycle.Active, func(l *limit.Limits) { l.MaxPodDeletionsPerMinute = 3 }, 0, `
cache of 5: ready false, api-bare NoController, api-loop deleted, api-wait MaxPodDeletionsPerMinute, web-1 MaxPodDeletionsPerMinute
etcd of 4: ready true, open for 1m0s, api-bare NoController, api-loop deleted, api-wait deleted
queue of 1: ready true, web-1 deleted
typo of 0: no endpoints`},
		"when it is refused": {"", lifecycle.Refused, nil, 0, `
cache of 5: ready false, api-bare NoController, api-loop NotAdmitted, api-wait NotAdmitted, web-1 NotAdmitted
etcd of 4: ready true, open for 1m0s, api-bare NoController, api-loop NotAdmitted, api-wait NotAdmitted
queue of 1: ready true, web-1 NotAdmitted
typo of 0: no endpoints`},
	} {
		t.Run(name, func(t *testing.T) {
			limits := limit.Builtin()
			if test.limits != nil {
				test.limits(&limits)
			}
			got := told(t, y, newWeederConfig(t, "ns", "new", spec+test.more), test.state, limits, at(test.now))
			expect(t, "forecast", "\n"+got, test.want)
		})
	}
}

// TestForecastTakesWindowsFromTheStatus: a manager that has watched knows of recoveries that pods don't tell any more.
func TestForecastTakesWindowsFromTheStatus(t *testing.T) {
	y := newState()
	y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(-time.Hour))), at(0))
	y.ObservePod(weeder.ReadPod(newPod("api-1", backOff)), at(0))
	y.ObserveSlice(newSlice("a", "etcd", "etcd-0"), at(0))
	wc := newWeederConfig(t, "ns", "wc", etcdForAPI)
	wc.Status.Windows = []v1alpha1.RecoveryWindow{{Recovery: v1alpha1.Recovery{Namespace: "ns", Service: "etcd"}, Deleted: 1}}
	wc.Status.Windows[0].Time.Time = noon.Add(-30 * second)
	y.ObserveConfig(compiled(t, wc), lifecycle.NotJudged, at(0))
	y.MarkSynced(at(0))
	expect(t, "forecast", told(t, y, newWeederConfig(t, "ns", "wc", etcdForAPI), lifecycle.Active, limit.Builtin(), at(0)),
		"etcd of 1: ready true, open for 1m30s, api-1 deleted")
	expect(t, "with its budget spent", told(t, y, newWeederConfig(t, "ns", "wc", etcdForAPI+"maxDeletionsPerWatch: 1"), lifecycle.Active, limit.Builtin(), at(0)),
		"etcd of 1: ready true, open for 1m30s, api-1 MaxDeletionsPerWatch")
	expect(t, "another config has no window", told(t, y, newWeederConfig(t, "ns", "other", etcdForAPI), lifecycle.Active, limit.Builtin(), at(0)),
		"etcd of 1: ready true, api-1 deleted")
	y.ObserveSlice(newSlice("a", "etcd", "etcd-0:notready"), at(0))
	expect(t, "it is over when the Service is notReady again", told(t, y, newWeederConfig(t, "ns", "wc", etcdForAPI), lifecycle.Active, limit.Builtin(), at(0)),
		"etcd of 1: ready false, api-1 deleted")
}

// TestForecastSaysWhatDecideDoes: what is foretold is what is done, budgets, limits and repeats included.
func TestForecastSaysWhatDecideDoes(t *testing.T) {
	limits := limit.Builtin()
	for name, more := range map[string]string{
		"as it comes": "", "with a budget": "maxDeletionsPerWatch: 3", "without init containers": "includeInitContainers: false", "observing": "mode: Observe",
		"without repeats": "maxRepeatsPerOwner: 0",
	} {
		for _, most := range []int{0, 2, 5, 60} {
			t.Run(fmt.Sprintf("%s, %d a minute", name, most), func(t *testing.T) {
				y := watchingEtcd(t, etcdForAPI+more, newPod("api-0", backOff))
				limits.MaxPodDeletionsPerMinute = most
				y.SetLimits(limits)
				recoverEtcd(y, 0)
				if _, next := decideOn(y, key("api-0"), at(0), ""); next == weeder.Delete {
					y.Confirm("api-0-uid", at(0))
					y.ForgetPod(key("api-0"), "api-0-uid")
				}
				for i := range 4 {
					y.ObservePod(weeder.ReadPod(newPod(fmt.Sprintf("api-old%d", i), backOff, owned("StatefulSet", "old"))), at(second))
					y.ObservePod(weeder.ReadPod(newPod(fmt.Sprintf("api-new%d", i), backOff, created(10*second))), at(15*second))
				}
				y.ObservePod(weeder.ReadPod(newPod("api-bare", backOff, ownerless)), at(second))
				now := at(20 * second)
				pods := y.ForecastItems(newWeederConfig(t, "ns", "wc", etcdForAPI+more), lifecycle.Active, limits, now).Items.Services[0].Pods
				var foretold, done []string
				for _, p := range pods {
					foretold = append(foretold, fmt.Sprintf("%s %t %s", p.Name, p.Delete, p.Reason))
				}
				for _, p := range pods {
					reason := outcome(y, key(p.Name), now)
					done = append(done, fmt.Sprintf("%s %t %s", p.Name, reason == "", reason))
				}
				expect(t, "forecast", strings.Join(foretold, "\n"), strings.Join(done, "\n"))
			})
		}
	}
}

// outcome of a decision: the reason for which a pod isn't deleted, "" when it is.
func outcome(y *weeder.State, pod types.NamespacedName, now timing.Moment) string {
	plan, next := decideOn(y, pod, now, "")
	if next == weeder.Delete {
		return ""
	}
	if len(plan.Holds) == 0 {
		return "nothing to decide"
	}
	return string(plan.Holds[0].Reason)
}

package weeder_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

func newService(name string, spec corev1.ServiceSpec) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: spec}
}

func selecting(app string) corev1.ServiceSpec {
	return corev1.ServiceSpec{Selector: map[string]string{"app": app}}
}

// forecast of a config, which isn't told otherwise for having items.
func forecast(t *testing.T, y *weeder.State, name, spec string, now timing.Moment) weeder.Forecast {
	t.Helper()
	wc := newWeederConfig(t, "ns", name, spec)
	f, withItems := y.Forecast(wc, limit.Builtin(), now), y.ForecastItems(wc, lifecycle.Active, limit.Builtin(), now)
	if diff := cmp.Diff(f, withItems, cmpopts.IgnoreFields(weeder.Forecast{}, "Items")); diff != "" || len(withItems.Items.Services) != f.Services {
		t.Errorf("%d of %d Services are told of; -reviewed +with items\n%s", len(withItems.Items.Services), f.Services, diff)
	}
	return f
}

func TestForecastOfServices(t *testing.T) {
	y := newState()
	y.ObserveService(newService("good", selecting("x")))
	y.ObserveService(newService("external", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"}))
	y.ObserveService(newService("bare", corev1.ServiceSpec{}))
	y.ObserveService(newService("early", corev1.ServiceSpec{Selector: map[string]string{"app": "y"}, PublishNotReadyAddresses: true}))
	y.ObserveService(newService("gone", selecting("x")))
	y.ForgetService(key("gone"), "")
	y.ObserveSlice(newSlice("left", "gone", "x-0"), at(0)) // its slices may outlive it for a moment
	var spec strings.Builder
	spec.WriteString("servicesAndDependantSelectors:\n")
	for _, s := range []string{"good", "external", "bare", "early", "gone", "typo"} {
		fmt.Fprintf(&spec, "  %s: {podSelectors: [{matchLabels: {app: api}}]}\n", s)
	}
	want := weeder.Forecast{
		Namespaces: 1, Services: 6, Limit: 60,
		MissingServices: 2, MissingServiceNames: []string{"ns/gone", "ns/typo"},
		SelectorlessServices: 1, SelectorlessServiceNames: []string{"ns/bare"},
		ExternalServices: 1, ExternalServiceNames: []string{"ns/external"},
		PublishingServices: 1, PublishingServiceNames: []string{"ns/early"},
	}
	if diff := cmp.Diff(want, forecast(t, y, "new", spec.String(), at(0))); diff != "" {
		t.Error(diff)
	}
}

func TestForecastOfPods(t *testing.T) {
	y := newState()
	y.ObserveService(newService("etcd", selecting("etcd")))
	statefulSet := owned("StatefulSet", "quorum")
	for _, p := range []*corev1.Pod{
		newPod("etcd-0", readySince(-time.Minute), owned("StatefulSet", "etcd")), // label app=etcd: not selected
		newPod("api-run"),
		newPod("api-loop", backOff),
		newPod("api-job", backOff, owned("Job", "api")),
		newPod("api-bare", backOff, ownerless),
		newPod("api-mirror", backOff, mirror),
		newPod("api-own", backOff, labelled("app.kubernetes.io/name", "autohealer")),
		newPod("etcd-1", backOff, labelled("app", "api")), // behind etcd and selected
		newPod("api-init", func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "wait", State: crashLoop()}}
		}),
		newPod("api-ending", backOff, terminating),
		newPod("api-q0", statefulSet), newPod("q-1", statefulSet), newPod("q-2", statefulSet),
		newPod("api-pair0", owned("StatefulSet", "pair")), newPod("api-pair1", owned("StatefulSet", "pair")),
		newPod("other-0", in("elsewhere"), labelled("app", "api")),
		newPod("web-1"), newPod("web-2"),
	} {
		y.ObservePod(weeder.ReadPod(p), at(0))
	}
	y.ObserveSlice(newSlice("a", "etcd", "etcd-0", "etcd-1:notready"), at(0))
	y.ObserveConfig(newConfig(t, "shares", "servicesAndDependantSelectors: {web: {podSelectors: [{matchExpressions: [{key: app, operator: In, values: [api]}]}]}}"), lifecycle.Active, at(0))
	y.ObserveConfig(newConfig(t, "apart", "servicesAndDependantSelectors: {web: {podSelectors: [{matchLabels: {app: web}}]}}"), lifecycle.Active, at(0))
	y.MarkSynced(at(0))

	want := weeder.Forecast{
		Namespaces: 1, Services: 1, Limit: 60,
		SelectedPods: 12, SelectedPodNames: []string{"ns/api-bare", "ns/api-ending", "ns/api-init", "ns/api-job", "ns/api-loop", "ns/api-mirror", "ns/api-own", "ns/api-pair0", "ns/api-pair1", "ns/api-q0", "ns/api-run", "ns/etcd-1"},
		CrashLoopingPods: 7, CrashLoopingPodNames: []string{"ns/api-bare", "ns/api-init", "ns/api-job", "ns/api-loop", "ns/api-mirror", "ns/api-own", "ns/etcd-1"},
		WouldDelete: 4, WouldDeletePodNames: []string{"ns/api-init", "ns/api-job", "ns/api-loop", "ns/api-own"},
		LargestShare: 70, LargestShareNamespace: "ns", // 12 of 17
		BackingPods: 1, BackingPodNames: []string{"ns/etcd-1 (etcd)"},
		OwnerlessPods: 1, OwnerlessPodNames: []string{"ns/api-bare"},
		MirrorPods: 1, MirrorPodNames: []string{"ns/api-mirror"},
		JobPods: 1, JobPodNames: []string{"ns/api-job"},
		QuorumStatefulSets: 1, QuorumStatefulSetNames: []string{"ns/quorum"},
		SharedPods: 12, SharedWith: []string{"ns/shares"},
	}
	if diff := cmp.Diff(want, forecast(t, y, "new", etcdForAPI, at(0))); diff != "" {
		t.Error(diff)
	}

	for name, test := range map[string]struct {
		spec string
		now  time.Duration
		want string
	}{
		"without init containers":        {"includeInitContainers: false", 0, "ns/api-job ns/api-loop ns/api-own"},
		"with a budget":                  {"maxDeletionsPerWatch: 2", 0, "ns/api-init ns/api-job"},
		"when only observing":            {"mode: Observe", 0, "ns/api-init ns/api-job ns/api-loop ns/api-own"},
		"when its recovery is long past": {"", time.Minute, ""},
		"when a node's clock is ahead":   {"", -2 * time.Minute, "ns/api-init ns/api-job ns/api-loop ns/api-own"},
		"when it tells nothing":          {"", -4 * time.Minute, ""},
		"when not all pods are ready":    {"readyPolicy: AllReady", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := forecast(t, y, "new", etcdForAPI+test.spec, at(test.now))
			expect(t, "would delete", strings.Join(p.WouldDeletePodNames, " "), test.want)
		})
	}
}

func TestForecastInPlaceOfTheStoredConfig(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff), newPod("etcd-0", readySince(-time.Hour)))
	seeEtcdReady(y, 0) // not by its pods: its selector changed
	p := forecast(t, y, "wc", etcdForAPI, at(second))
	expect(t, "its open window goes on", strings.Join(p.WouldDeletePodNames, " "), "ns/api-1")
	expect(t, "it shares nothing with itself", p.SharedPods, 0)
	p = forecast(t, y, "wc", "watchDuration: 30s\n"+etcdForAPI[len("\nwatchDuration: 2m\n"):], at(40*second))
	expect(t, "a shorter one would be over", p.WouldDelete, 0)
	p = forecast(t, y, "another", etcdForAPI, at(second))
	expect(t, "another has no window", p.WouldDelete, 0)
	expect(t, "and shares the pod", strings.Join(p.SharedWith, " "), "ns/wc")
}

func TestForecastFindsAutohealersOwnPods(t *testing.T) {
	y := newState()
	y.ObservePod(weeder.ReadPod(newPod("api-1", in("autohealer-system"), labelled("app.kubernetes.io/name", "autohealer"))), at(0))
	p := y.Forecast(newWeederConfig(t, "autohealer-system", "new", etcdForAPI), limit.Builtin(), at(0))
	expect(t, "pods", strings.Join(p.AutohealerPodNames, " "), "autohealer-system/api-1")
	expect(t, "share", p.LargestShare, 100)
}

func TestForecastFindsCycles(t *testing.T) {
	depends := func(services ...string) string {
		spec := "servicesAndDependantSelectors:\n"
		for _, s := range services {
			on, dependent, _ := strings.Cut(s, "<")
			spec += fmt.Sprintf("  %s: {podSelectors: [{matchLabels: {app: %s}}]}\n", on, dependent)
		}
		return spec
	}
	for name, test := range map[string]struct {
		stored []string
		spec   string
		want   string
	}{
		"a chain":                         {spec: depends("a<b", "b<c", "c<d")},
		"two Services":                    {spec: depends("a<b", "b<a"), want: "ns: a → b → a"},
		"three, over three configs":       {stored: []string{depends("b<c"), depends("c<a")}, spec: depends("a<b"), want: "ns: a → b → c → a"},
		"a cycle of others only":          {stored: []string{depends("b<c"), depends("c<b")}, spec: depends("a<d")},
		"a way into a cycle of others":    {stored: []string{depends("b<c"), depends("c<b")}, spec: depends("a<b")},
		"a Service without pods":          {spec: depends("a<x", "x<a")},
		"a Service that no config names":  {stored: []string{depends("b<c")}, spec: depends("a<b")},
		"its own pods, which is no cycle": {spec: depends("a<a")},
		"two cycles":                      {spec: depends("a<b", "b<a", "c<d", "d<c"), want: "ns: a → b → a; ns: c → d → c"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newState()
			for _, s := range []string{"a", "b", "c", "d"} {
				y.ObserveService(newService(s, selecting(s)))
				y.ObservePod(weeder.ReadPod(newPod(s+"-0")), at(0))
				y.ObserveSlice(newSlice(s, s, s+"-0:notready"), at(0))
			}
			for i, spec := range test.stored {
				y.ObserveConfig(newConfig(t, fmt.Sprintf("stored%d", i), spec), lifecycle.Active, at(0))
			}
			p := forecast(t, y, "new", test.spec, at(0))
			expect(t, "cycles", strings.Join(p.CyclePaths, "; "), test.want)
			expect(t, "count", p.Cycles, len(p.CyclePaths))
		})
	}
}

// TestForecastLeavesOutWhatDoesNothing: who only observes spends no budget and closes no cycle. Who is refused counts: rights may
// come without an edit, and who reviews without the API server, as the CLI does, can't tell.
func TestForecastLeavesOutWhatDoesNothing(t *testing.T) {
	const dependsOnB = "servicesAndDependantSelectors: {b: {podSelectors: [{matchLabels: {app: a}}]}}"
	const dependsOnA = "servicesAndDependantSelectors: {a: {podSelectors: [{matchLabels: {app: b}}]}, c: {podSelectors: [{matchLabels: {app: a}}]}}"
	for name, c := range map[string]struct {
		mode   string
		state  lifecycle.State
		counts bool
	}{
		"it acts":            {"", lifecycle.Active, true},
		"it isn't judged":    {"", lifecycle.NotJudged, true},
		"a Guardrail pauses": {"", lifecycle.Paused, true},
		"a rule refuses it":  {"", lifecycle.Refused, true},
		"it observes":        {"\nmode: Observe", lifecycle.Active, false},
	} {
		t.Run(name, func(t *testing.T) {
			y := newState()
			for _, s := range []string{"a", "b"} {
				y.ObserveService(newService(s, selecting(s)))
				y.ObservePod(weeder.ReadPod(newPod(s+"-0", labelled("app", s))), at(0))
				y.ObserveSlice(newSlice(s, s, s+"-0:notready"), at(0))
			}
			y.ObserveConfig(newConfig(t, "stored", dependsOnB+c.mode), c.state, at(0))
			p := forecast(t, y, "new", dependsOnA, at(0))
			if counts := p.Cycles > 0 && p.SharedPods > 0; counts != c.counts {
				t.Errorf("cycles %q, shared with %q", p.CyclePaths, p.SharedWith)
			}
		})
	}
}

// The rule engine maps a forecast's fields to CEL by these types, and bounds its lists.
func TestAForecastHasFieldsThatRulesCanRead(t *testing.T) {
	for i := range reflect.TypeFor[weeder.Forecast]().NumField() {
		f := reflect.TypeFor[weeder.Forecast]().Field(i)
		switch f.Type {
		case reflect.TypeFor[weeder.Items](): // for people
		case reflect.TypeFor[int](), reflect.TypeFor[string](), reflect.TypeFor[[]string]():
		default:
			t.Errorf("%s is a %s", f.Name, f.Type)
		}
	}
	y := newState()
	for i := range 50 {
		y.ObservePod(weeder.ReadPod(newPod(fmt.Sprintf("api-%02d", 49-i))), at(0))
	}
	p := forecast(t, y, "new", etcdForAPI, at(0))
	expect(t, "selected", p.SelectedPods, 50)
	expect(t, "sampled", len(p.SelectedPodNames), 20)
	expect(t, "the first and the last", p.SelectedPodNames[0]+" "+p.SelectedPodNames[19], "ns/api-00 ns/api-19")
}

func TestAnUnreadableSpecTellsWhere(t *testing.T) {
	for spec, want := range map[string]string{
		"{}": "spec.servicesAndDependantSelectors: at least one",
		"servicesAndDependantSelectors: {a: {podSelectors: []}}":                          "spec.servicesAndDependantSelectors[a].podSelectors: at least one",
		"servicesAndDependantSelectors: {a: {podSelectors: [{}]}}":                        "spec.servicesAndDependantSelectors[a].podSelectors[0]: an empty selector",
		"servicesAndDependantSelectors: {a: {podSelectors: [{matchLabels: {a: 'b c'}}]}}": `spec.servicesAndDependantSelectors[a].podSelectors[0]: matchLabels: label a can't be "b c"; write at most 63 letters`,
		etcdForAPI + "cooldown: soon":                                                     `spec.cooldown: "soon" is no duration`,
		"watchDuration: 31m\n" + etcdForAPI[len("\nwatchDuration: 2m\n"):]:                `spec.watchDuration: "31m" is no duration of at most 30m0s`,
		"watchDuration: 0s\n" + etcdForAPI[len("\nwatchDuration: 2m\n"):]:                 `spec.watchDuration: "0s"`,
		etcdForAPI + "namespaceSelector: {matchLabels: {a: b}}":                           "spec.namespaceSelector: only in Autohealer's own namespace",
	} {
		wc := newWeederConfig(t, "ns", "new", spec)
		if diff := cmp.Diff(weeder.Forecast{}, newState().Forecast(wc, limit.Builtin(), at(0))); diff != "" {
			t.Errorf("%s: nothing is foretold of it, not %s", spec, diff)
		}
		_, err := weeder.NewConfig(wc, "autohealer-system")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", spec, err, want)
		}
	}
}

package snapshot_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/explain"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/guard"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func weederAt(now time.Time) timing.Moment { return timing.Moment{Now: now, Server: now} }

// weeding is a manager that watched its Services recover, and two namespaces that it acts in.
type weeding struct {
	t       *rapid.T
	weeder  *weeder.State
	policy  guardrail.Policy
	configs map[types.UID]*v1alpha1.WeederConfig
	pods    map[types.NamespacedName]*corev1.Pod
	slices  []*discoveryv1.EndpointSlice
	held    []client.Object
	now     time.Time
}

var (
	weededNamespaces = []string{"mail", "shop"}
	weededServices   = []string{"etcd", "web"}
)

func drawWeeding(t *rapid.T) *weeding {
	w := &weeding{t: t, configs: map[types.UID]*v1alpha1.WeederConfig{}, pods: map[types.NamespacedName]*corev1.Pod{}, now: noon.Add(-time.Minute)}
	w.policy = guardrail.Policy{Limits: limit.Builtin()}
	w.policy.Limits.MaxPodDeletionsPerMinute = rapid.SampledFrom([]int{1, 2, 4, 60}).Draw(t, "max a minute")
	if rapid.IntRange(0, 7).Draw(t, "paused") == 0 {
		w.policy.PausedBy = []string{"rail"}
	}
	w.weeder = weeder.NewState(w.policy.Limits, "autohealer-system")
	for _, namespace := range weededNamespaces {
		for _, service := range weededServices {
			w.addPod(namespace, service+"-0", service)
			w.serve(namespace, service, false)
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "pods") {
			w.drawPod(namespace, i)
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "configs") {
			w.drawConfig(namespace, i)
		}
	}
	w.weeder.MarkSynced(weederAt(w.now))
	return w
}

func (w *weeding) addPod(namespace, name, app string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + name + w.now.Format("150405")), ResourceVersion: fmt.Sprint(w.now.Unix()),
		CreationTimestamp: metav1.NewTime(w.now), Labels: map[string]string{"app": app},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: app, UID: types.UID(namespace + app), Controller: new(true)}},
	}, Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "main"}}}}
	w.pods[types.NamespacedName{Namespace: namespace, Name: name}] = p
	w.weeder.ObservePod(weeder.ReadPod(p), weederAt(w.now))
	return p
}

func crashLoops(p *corev1.Pod) {
	exited := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: 4, State: exited, LastTerminationState: exited}}
}

func (w *weeding) drawPod(namespace string, i int) {
	app := rapid.SampledFrom([]string{"api", "api", "db", "etcd"}).Draw(w.t, "app")
	p := w.addPod(namespace, fmt.Sprintf("%s-x%d", app, i), app)
	p.ResourceVersion += "1"
	switch rapid.SampledFrom([]string{"", "", "", "runs", "bare", "mirror", "held", "held workload", "held for good"}).Draw(w.t, "oddity") {
	case "runs":
		w.weeder.ObservePod(weeder.ReadPod(p), weederAt(w.now))
		return
	case "bare":
		p.OwnerReferences = nil
	case "mirror":
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "a"}
	case "held":
		p.Annotations = map[string]string{v1alpha1.AnnotationHoldUntil: "2026-11-21T15:00:00Z"}
	case "held for good":
		p.Annotations = map[string]string{v1alpha1.AnnotationHoldUntil: "for good"}
	case "held workload":
		held := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app, Annotations: map[string]string{v1alpha1.AnnotationHoldUntil: "2026-11-21T15:00:00Z"}}}
		w.held = append(w.held, held)
		w.weeder.ObserveHold(weeder.Workload{Namespace: namespace, Kind: "StatefulSet", Name: app}, hold.Of(held.Annotations), "1", weederAt(w.now))
	}
	crashLoops(p)
	w.weeder.ObservePod(weeder.ReadPod(p), weederAt(w.now))
}

var acceptances = map[string]*metav1.Condition{
	"admitted":  {Status: metav1.ConditionTrue, ObservedGeneration: 2},
	"refused":   {Status: metav1.ConditionFalse, ObservedGeneration: 2, Message: "weederconfig/dependency-cycle: no (docs)"},
	"forbidden": {Status: metav1.ConditionFalse, ObservedGeneration: 2, Message: "weederconfig/account-may-not-delete: no (docs)"},
	"both":      {Status: metav1.ConditionFalse, ObservedGeneration: 2, Message: "weederconfig/account-may-not-delete: no (docs)\nweederconfig/dependency-cycle: no (docs)"},
	"old":       {Status: metav1.ConditionTrue, ObservedGeneration: 1},
}

func (w *weeding) drawConfig(namespace string, i int) {
	wc := &v1alpha1.WeederConfig{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: fmt.Sprint("config", i), UID: types.UID(fmt.Sprint(namespace, i)), Generation: 2,
		CreationTimestamp: metav1.NewTime(noon.Add(time.Duration(i-60) * time.Minute)),
	}}
	wc.Spec.WatchDuration, wc.Spec.Cooldown = "10m", "10s"
	wc.Spec.Mode = rapid.SampledFrom([]v1alpha1.Mode{v1alpha1.Enforce, v1alpha1.Enforce, v1alpha1.Enforce, v1alpha1.Observe}).Draw(w.t, "mode")
	wc.Spec.MaxDeletionsPerWatch = new(rapid.SampledFrom([]int32{1, 2, 20}).Draw(w.t, "budget"))
	wc.Spec.ServicesAndDependantSelectors = map[string]v1alpha1.DependantSelectors{}
	for _, s := range rapid.SliceOfNDistinct(rapid.SampledFrom(weededServices), 1, 2, rapid.ID[string]).Draw(w.t, "services") {
		apps := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"api", "db", "etcd", "web"}), 1, 3, rapid.ID[string]).Draw(w.t, "dependents")
		wc.Spec.ServicesAndDependantSelectors[s] = v1alpha1.DependantSelectors{PodSelectors: []v1alpha1.LabelSelector{{
			MatchExpressions: []v1alpha1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: apps}},
		}}}
	}
	verdict := rapid.SampledFrom([]string{"admitted", "admitted", "admitted", "admitted", "refused", "forbidden", "both", "old"}).Draw(w.t, "verdict")
	accepted := *acceptances[verdict]
	accepted.Type = v1alpha1.ConditionAccepted
	wc.Status.Conditions = []metav1.Condition{accepted}
	c, err := weeder.NewConfig(wc, "autohealer-system")
	if err != nil {
		w.t.Fatal(err)
	}
	state := map[string]lifecycle.State{"admitted": lifecycle.Active, "refused": lifecycle.Refused, "forbidden": lifecycle.Forbidden, "both": lifecycle.Refused, "old": lifecycle.NotJudged}[verdict]
	if state == lifecycle.Active && len(w.policy.PausedBy) > 0 {
		state = lifecycle.Paused
	}
	w.configs[wc.UID] = wc
	w.weeder.ObserveConfig(c, state, weederAt(w.now))
}

// serve makes a Service Ready or not, and its pod first.
func (w *weeding) serve(namespace, service string, ready bool) {
	name := types.NamespacedName{Namespace: namespace, Name: service + "-0"}
	p := w.pods[name].DeepCopy()
	p.ResourceVersion = fmt.Sprint(w.now.Unix(), ready)
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(w.now)}}
	if ready {
		p.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	w.pods[name] = p
	w.weeder.ObservePod(weeder.ReadPod(p), weederAt(w.now))
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: service, UID: types.UID(namespace + service), ResourceVersion: p.ResourceVersion, Labels: map[string]string{discoveryv1.LabelServiceName: service},
	}, Endpoints: []discoveryv1.Endpoint{{
		Addresses: []string{"10.0.0.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name.Name},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
	}}}
	w.slices = slices.DeleteFunc(w.slices, func(s *discoveryv1.EndpointSlice) bool { return s.UID == slice.UID })
	w.slices = append(w.slices, slice)
	w.weeder.ObserveSlice(slice, weederAt(w.now))
}

// recover makes some Services Ready.
func (w *weeding) recover() {
	for _, namespace := range weededNamespaces {
		for _, service := range weededServices {
			if rapid.IntRange(0, 2).Draw(w.t, "recovers") > 0 {
				w.serve(namespace, service, true)
			}
		}
	}
}

// act lets the manager delete the pods that it may, and controllers replace them.
func (w *weeding) act() {
	w.weeder.Claim(nil, weederAt(w.now))
	for _, key := range w.weeder.Due(weederAt(w.now)) {
		plan, next := w.weeder.Decide(key, weederAt(w.now), "")
		if next != weeder.Delete {
			continue
		}
		w.weeder.Confirm(plan.Pod.UID, weederAt(w.now))
		w.weeder.ForgetPod(key, plan.Pod.UID)
		if old := w.pods[key]; rapid.Bool().Draw(w.t, "replaced") {
			w.now = w.now.Add(3 * time.Second)
			p := w.addPod(key.Namespace, key.Name, old.Labels["app"])
			p.ResourceVersion += "1"
			crashLoops(p)
			w.weeder.ObservePod(weeder.ReadPod(p), weederAt(w.now))
			w.now = w.now.Add(3 * time.Second) // what was created and deleted within two seconds a status doesn't tell in order
		} else {
			delete(w.pods, key)
		}
	}
}

// asked is what explain says of every pod, by a fresh look.
func (w *weeding) query(g *guard.Guard) map[types.NamespacedName]string {
	objects := slices.Clone(w.held)
	for _, p := range w.pods {
		objects = append(objects, p)
	}
	for _, slice := range w.slices {
		objects = append(objects, slice)
	}
	for uid, wc := range w.configs {
		sum, _ := w.weeder.Summary(uid, weederAt(w.now))
		told(&wc.Status, sum)
		objects = append(objects, wc)
	}
	s := snapshot.Of(w.t, w.now.Add(time.Hour), w.now, objects...)
	f, err := snapshot.NewWatchedFacts(w.t.Context(), s, g, "autohealer-system")
	if err != nil {
		w.t.Fatal(err)
	}
	views, says := f.ViewWeeders(w.policy), map[types.NamespacedName]string{}
	for key := range w.pods {
		p, found := f.Pod(key)
		if !found {
			w.t.Fatalf("%s isn't found", key)
		}
		says[key] = explain.Workload("pod/"+key.Name, explain.Dependent{Namespace: key.Namespace}, []*weeder.Pod{p}, views, w.now, func(v1alpha1.PodDeletion) bool { return false })
	}
	return says
}

// told is what the manager writes of a config into its status.
func told(st *v1alpha1.WeederConfigStatus, sum weeder.Summary) {
	conditions, generation := st.Conditions, st.ObservedGeneration
	*st = sum.WeederConfigStatus
	st.Conditions, st.ObservedGeneration = conditions, generation
}

// verdicts are what a text says of open windows, one a line: the config, the Service, and what becomes of the pod.
func verdicts(text string) string {
	var all []string
	for _, m := range verdict.FindAllStringSubmatch(text, -1) {
		all = append(all, fmt.Sprintf("%s, %s: %s", m[1], m[2], m[3]))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

var verdict = regexp.MustCompile(`(?m)^    WeederConfig (\S+), Service (\S+): .*its window is open until .*\n      (deleted now|kept: .*?\(\w+\)|would.*)`)

// TestExplainAndWeedingNeverDisagree: of every pod, explain says that it is deleted now, or why it isn't, as the manager that
// watched decides for all configs together.
func TestExplainAndWeedingNeverDisagree(t *testing.T) {
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		w := drawWeeding(t)
		w.now = noon
		w.recover()
		w.now = w.now.Add(5 * time.Second)
		later := []int{5, 20, 90}
		if rapid.Bool().Draw(t, "acts") {
			w.act()
			if w.policy.Limits.MaxPodDeletionsPerMinute < 60 {
				later = []int{5, 20} // before the minute is over: who then comes first, of those that wait, nobody writes down
			}
		}
		w.now = w.now.Add(time.Duration(rapid.SampledFrom(later).Draw(t, "later")) * time.Second)
		says := w.query(g)
		w.weeder.Claim(nil, weederAt(w.now))
		done := map[types.NamespacedName]string{}
		for _, key := range w.weeder.Due(weederAt(w.now)) {
			plan, _ := w.weeder.Decide(key, weederAt(w.now), "")
			done[key] = w.words(plan)
		}
		for key, text := range says {
			if got := verdicts(text); got != done[key] {
				t.Errorf("%s: explain says\n%s\nthe manager\n%s\nin\n%s", key, got, done[key], text)
			}
		}
	})
}

// words are a plan as verdicts gives them.
func (w *weeding) words(plan weeder.Plan) string {
	if d := plan.Delete; d != nil {
		return fmt.Sprintf("%s, %s: deleted now", d.Key.Name, d.Service)
	}
	var all []string
	for _, h := range plan.Holds {
		all = append(all, fmt.Sprintf("%s, %s: kept: %s (%s)", w.configs[h.Config].Name, h.Service, h.Message, h.Reason))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

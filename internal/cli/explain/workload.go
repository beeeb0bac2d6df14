package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// Dependent is an object that ProbeConfigs may scale, as a snapshot has it.
type Dependent struct {
	Namespace, Kind, Name string
	// Configs are the ProbeConfigs that name it.
	Configs []snapshot.ProberView
	// Hold on it, nil for none.
	Hold *hold.Hold
	// Orphan is the record on it of a ProbeConfig that doesn't exist, isn't known, or no longer names it; nil for none.
	Orphan *probe.Record
	// Unknown says what isn't known that ProbeConfigs are planned by; nil when all is.
	Unknown error
}

// dependent tells what ProbeConfigs did to an object and would do, by what the manager wrote into their status.
func (t *explanation) dependent(d Dependent) {
	if d.Hold.Active(t.now, t.now) {
		t.line(1, "Left alone: %s.", d.Hold.Message(t.now))
	}
	t.unknown("ProbeConfigs", d.Unknown)
	if r := d.Orphan; r != nil {
		t.line(1, "ProbeConfig %s, which %s or no longer names it: scaled down from %s %s", r.Policy, missingPolicy(d.Unknown), sample.Count(int(r.Replicas), "replica"), t.since(r.Since.Time))
	}
	if d.Orphan != nil && d.Unknown == nil {
		t.line(2, "Autohealer scales it up soon: once the ProbeConfig was found missing twice, a minute apart, or at once where it only names others now. By hand: kubectl autohealer undo")
	}
	for i := range d.Configs {
		pc := &d.Configs[i].Config
		t.line(1, "ProbeConfig %s: %s", nameIn(pc, d.Namespace), t.scaling(&d.Configs[i], d))
		for _, condition := range []string{v1alpha1.ConditionInternalHealthy, v1alpha1.ConditionExternalHealthy} {
			t.condition(pc, condition)
		}
		for _, why := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionBreakerOpen, v1alpha1.ConditionLimitReached} {
			if meta.IsStatusConditionTrue(pc.Status.Conditions, why) {
				t.condition(pc, why)
			}
		}
		if ready := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			t.line(2, "The manager says: %s", ready.Message)
		}
	}
}

// maxScaledNamed is how many objects that are scaled down a config's status names at most.
const maxScaledNamed = 20

const whileProbesFail = "while the probe from inside succeeds and the one from outside fails"

// scaling says what a config did to an object, and what would end it; or when it would do it, or why it doesn't.
func (t *explanation) scaling(v *snapshot.ProberView, d Dependent) string {
	pc := &v.Config
	if taken, since := t.removedReplicas(v, d); taken > 0 {
		return fmt.Sprintf("scaled down from %s %s; %s", sample.Count(int(taken), "replica"), t.since(since), restoration(v))
	}
	does := "did nothing to it"
	switch {
	case pc.DeletionTimestamp != nil:
		return "is being deleted, and did nothing to it"
	case pc.Spec.Mode == v1alpha1.Observe:
		does = "only observes"
	}
	switch {
	case v.Object == nil && len(pc.Status.Scaled) >= maxScaledNamed:
		return fmt.Sprintf("whether it is scaled down isn't known: the object can't be read, and the config's status names only %d of those that are", len(pc.Status.Scaled))
	case v.Down.Reason != "":
		return fmt.Sprintf("%s; it is left alone also %s: %s (%s)", does, whileProbesFail, v.Down.Message, v.Down.Reason)
	case v.Object != nil && v.Down.Step == probe.StepNone:
		return fmt.Sprintf("%s; it has no replicas that could be taken %s", does, whileProbesFail)
	case pc.Spec.Mode == v1alpha1.Observe:
		return fmt.Sprintf("%s; it would be scaled down %s", does, whileProbesFail)
	case !v.Permit.Allowed:
		return fmt.Sprintf("%s; it isn't scaled down now, also %s: %s (%s)", does, whileProbesFail, v.Permit.Message, v.Permit.Reason)
	}
	return fmt.Sprintf("%s; it is scaled down %s", does, whileProbesFail)
}

// removedReplicas is what was taken from an object that is down, by its record; by the config's status where the object can't be read.
func (t *explanation) removedReplicas(v *snapshot.ProberView, d Dependent) (replicas int32, since time.Time) {
	if r := v.Ours(); r != nil && v.Object.Replicas == 0 {
		return r.Replicas, r.Since.Time
	}
	i := slices.IndexFunc(v.Config.Status.Scaled, func(s v1alpha1.ScaledDependent) bool {
		return s.Namespace == d.Namespace && s.Ref.Kind == d.Kind && s.Ref.Name == d.Name
	})
	if v.Object != nil || i < 0 {
		return 0, time.Time{}
	}
	return v.Config.Status.Scaled[i].PreviousReplicas, v.Config.Status.Scaled[i].Since.Time
}

// restoration says when an object gets back what was taken, or why it doesn't.
func restoration(v *snapshot.ProberView) string {
	switch pc := &v.Config; {
	case v.Up.Reason != "":
		return fmt.Sprintf("it doesn't get them back: %s (%s)", v.Up.Message, v.Up.Reason)
	case pc.DeletionTimestamp != nil:
		return "it gets them back now, since the config is being deleted"
	case pc.Spec.Mode == v1alpha1.Observe:
		return "it gets them back now, since the config only observes"
	}
	return "it gets them back a minute after the probe from outside succeeds again"
}

func (t *explanation) condition(pc *v1alpha1.ProbeConfig, conditionType string) {
	c := meta.FindStatusCondition(pc.Status.Conditions, conditionType)
	if c == nil {
		return
	}
	text := fmt.Sprintf("%s is %s %s", conditionType, c.Status, t.since(c.LastTransitionTime.Time))
	if c.Status != metav1.ConditionTrue || !strings.HasSuffix(conditionType, "Healthy") {
		text += ": " + c.Message
	}
	t.line(2, "%s", text)
}

// Service says what WeederConfigs make of a Service's readiness.
func Service(key types.NamespacedName, weeders snapshot.Weeders, now time.Time) string {
	t := &explanation{now: now}
	t.line(0, "service/%s in namespace %s", key.Name, key.Namespace)
	found := false
	for _, v := range weeders.Views {
		for _, s := range v.Services {
			if s.Namespace != key.Namespace || s.Name != key.Name {
				continue
			}
			found = true
			t.line(1, "WeederConfig %s: %s", nameIn(v.Config, key.Namespace), t.service(s))
			t.line(2, "Pods that depend on it: %d; %d of them crash-loop", s.Dependents, s.CrashLooping)
			for _, p := range s.Pods[:min(len(s.Pods), maxPods)] {
				t.line(2, "pod/%s: %s", p.Name, t.podOutcome(p, s))
			}
			t.omitted(2, len(s.Pods))
			t.recent(v.Config, func(d v1alpha1.PodDeletion) bool { return d.Namespace == key.Namespace && d.Service == key.Name })
		}
	}
	t.unknown("WeederConfigs", weeders.Unknown)
	if !found && weeders.Unknown == nil {
		t.line(1, "No WeederConfig watches it.")
	}
	return t.out.String()
}

// Workload says what ProbeConfigs did and would do to what has a scale, and WeederConfigs to its pods: those deletions that are ours says.
func Workload(title string, d Dependent, pods []*weeder.Pod, weeders snapshot.Weeders, now time.Time, ours func(v1alpha1.PodDeletion) bool) string {
	t := &explanation{now: now}
	t.line(0, "%s in namespace %s", title, d.Namespace)
	t.dependent(d)
	if len(pods) > 0 {
		t.workload(pods, weeders, ours)
	}
	return t.out.String()
}

// maxPods of a workload or a Service are listed.
const maxPods = 20

// omitted counts the pods that aren't listed.
func (t *explanation) omitted(depth, pods int) {
	if more := pods - maxPods; more > 0 {
		t.line(depth, "%s more like these: see each with kubectl autohealer explain pod/NAME", sample.Count(more, "pod"))
	}
}

func (t *explanation) workload(pods []*weeder.Pod, weeders snapshot.Weeders, ours func(v1alpha1.PodDeletion) bool) {
	looping := 0
	for _, p := range pods {
		loop := p.Loop(true)
		if loop.Container == "" {
			continue
		}
		if looping++; looping > maxPods {
			continue
		}
		t.line(1, "pod/%s: %s", p.Name, loop)
		if !t.podOutcomes(p, weeders.Views) && weeders.Unknown == nil {
			t.line(2, "No WeederConfig says that it depends on a Service.")
		}
	}
	t.omitted(1, looping)
	if looping == 0 {
		t.line(1, "Of %s none crash-loops, so none is deleted.", sample.Count(len(pods), "pod"))
	}
	t.unknown("WeederConfigs", weeders.Unknown)
	for _, v := range weeders.Views {
		t.recent(v.Config, ours)
	}
}

// podOutcomes says for each Service that a pod depends on what becomes of the pod.
func (t *explanation) podOutcomes(p *weeder.Pod, views []snapshot.WeederView) (found bool) {
	for _, v := range views {
		for _, s := range v.Services {
			i := slices.IndexFunc(s.Pods, func(o weeder.PodForecast) bool { return o.Name == p.Name })
			if i < 0 || s.Namespace != p.Namespace {
				continue
			}
			found = true
			t.line(2, "WeederConfig %s, Service %s: %s", nameIn(v.Config, p.Namespace), s.Name, t.service(s))
			t.line(3, "%s", t.podOutcome(s.Pods[i], s))
		}
	}
	return found
}

// service says how a Service is, and whether a window is open for it.
func (t *explanation) service(s weeder.ServiceForecast) string {
	text := "not Ready"
	switch {
	case !s.Endpoints:
		text = "it has no EndpointSlices, so nothing is known of it"
	case s.Ready && s.ReadySince == nil:
		text = "Ready"
	case s.Ready:
		text = "Ready " + t.since(*s.ReadySince)
	}
	if s.WindowEnds != nil {
		return fmt.Sprintf("%s; it recovered, and its window is open until %s", text, s.WindowEnds.UTC().Format(time.RFC3339))
	}
	if s.Ready {
		return text + "; no window is open: it did not recover lately"
	}
	return text + "; a window opens when it is Ready again"
}

// podOutcome says what becomes of a crash-looping dependent.
func (t *explanation) podOutcome(p weeder.PodForecast, s weeder.ServiceForecast) string {
	switch {
	case !p.Delete && p.At.IsZero():
		return fmt.Sprintf("kept: %s (%s)", p.Message, p.Reason)
	case !p.Delete:
		return fmt.Sprintf("kept: %s (%s), until %s", p.Message, p.Reason, p.At.UTC().Format(time.RFC3339))
	case s.WindowEnds != nil:
		return fmt.Sprintf("deleted now: %s", p.CrashLoop)
	}
	return fmt.Sprintf("would be deleted if the Service recovered now: %s", p.CrashLoop)
}

// recent tells of deletions that the config's status remembers.
func (t *explanation) recent(wc *v1alpha1.WeederConfig, ours func(v1alpha1.PodDeletion) bool) {
	for _, d := range wc.Status.RecentDeletions {
		if ours(d) {
			t.line(1, "Done: pod/%s was deleted at %s (%s ago), when Service %s had recovered, for WeederConfig %s", d.Pod, d.Time.UTC().Format(time.RFC3339),
				duration.HumanDuration(max(0, t.now.Sub(d.Time.Time))), d.Service, wc.Name)
		}
	}
}

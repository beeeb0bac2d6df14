package explain

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// Service says what WeederConfigs make of a Service's readiness.
func Service(key types.NamespacedName, weeders snapshot.Weeders, now time.Time) string {
	t := &text{now: now}
	t.line(0, "service/%s in namespace %s", key.Name, key.Namespace)
	said := false
	for _, v := range weeders.Views {
		for _, s := range v.Services {
			if s.Namespace != key.Namespace || s.Name != key.Name {
				continue
			}
			said = true
			t.line(1, "WeederConfig %s: %s", nameOf(v, key.Namespace), t.service(s))
			t.line(2, "Pods that depend on it: %d; %d of them crash-loop", s.Dependents, s.CrashLooping)
			for _, p := range s.Pods[:min(len(s.Pods), podsShown)] {
				t.line(2, "pod/%s: %s", p.Name, t.fate(p, s))
			}
			t.rest(2, len(s.Pods))
			t.recent(v.Config, func(d v1alpha1.PodDeletion) bool { return d.Namespace == key.Namespace && d.Service == key.Name })
		}
	}
	t.unknown("WeederConfigs", weeders.Unknown)
	if !said && weeders.Unknown == nil {
		t.line(1, "No WeederConfig watches it.")
	}
	return t.out.String()
}

// Workload says what WeederConfigs did and would do to pods: those that are ours says.
func Workload(title, namespace string, pods []*weeder.Pod, weeders snapshot.Weeders, now time.Time, ours func(v1alpha1.PodDeletion) bool) string {
	t := &text{now: now}
	t.line(0, "%s in namespace %s", title, namespace)
	t.workload(pods, weeders, ours)
	return t.out.String()
}

// Scaled says what ProbeConfigs did and would do to what has a scale, and WeederConfigs to its pods.
func Scaled(title string, d Dependent, pods []*weeder.Pod, weeders snapshot.Weeders, now time.Time, ours func(v1alpha1.PodDeletion) bool) string {
	t := &text{now: now}
	t.line(0, "%s in namespace %s", title, d.Namespace)
	t.dependent(d)
	if len(pods) > 0 {
		t.workload(pods, weeders, ours)
	}
	return t.out.String()
}

// podsShown of a workload or a Service are told of one by one.
const podsShown = 20

// rest counts the pods that aren't told of.
func (t *text) rest(depth, pods int) {
	if more := pods - podsShown; more > 0 {
		t.line(depth, "%s more like these: kubectl autohealer explain pod/NAME tells of each", counted(more, "pod"))
	}
}

func (t *text) workload(pods []*weeder.Pod, weeders snapshot.Weeders, ours func(v1alpha1.PodDeletion) bool) {
	looping := 0
	for _, p := range pods {
		loop := p.Loop(true)
		if loop.Container == "" {
			continue
		}
		if looping++; looping > podsShown {
			continue
		}
		t.line(1, "pod/%s: %s", p.Name, loop)
		if !t.fates(p, weeders.Views) && weeders.Unknown == nil {
			t.line(2, "No WeederConfig says that it depends on a Service.")
		}
	}
	t.rest(1, looping)
	if looping == 0 {
		t.line(1, "Of %s none crash-loops, so none is deleted.", counted(len(pods), "pod"))
	}
	t.unknown("WeederConfigs", weeders.Unknown)
	for _, v := range weeders.Views {
		t.recent(v.Config, ours)
	}
}

// fates tells for each Service that a pod depends on what becomes of the pod.
func (t *text) fates(p *weeder.Pod, views []snapshot.WeederView) (said bool) {
	for _, v := range views {
		for _, s := range v.Services {
			i := slices.IndexFunc(s.Pods, func(o weeder.PodForecast) bool { return o.Name == p.Name })
			if i < 0 || s.Namespace != p.Namespace {
				continue
			}
			said = true
			t.line(2, "WeederConfig %s, Service %s: %s", nameOf(v, p.Namespace), s.Name, t.service(s))
			t.line(3, "%s", t.fate(s.Pods[i], s))
		}
	}
	return said
}

// service says how a Service is, and whether a window is open for it.
func (t *text) service(s weeder.ServiceForecast) string {
	says := "not Ready"
	switch {
	case !s.Endpoints:
		says = "it has no EndpointSlices, so nothing is known of it"
	case s.Ready && s.ReadySince == nil:
		says = "Ready"
	case s.Ready:
		says = "Ready " + t.since(*s.ReadySince)
	}
	if s.WindowEnds != nil {
		return fmt.Sprintf("%s; it recovered, and its window is open until %s", says, s.WindowEnds.UTC().Format(time.RFC3339))
	}
	if s.Ready {
		return says + "; no window is open: it did not recover lately"
	}
	return says + "; a window opens when it is Ready again"
}

// fate says what becomes of a crash-looping dependent.
func (t *text) fate(p weeder.PodForecast, s weeder.ServiceForecast) string {
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
func (t *text) recent(wc *v1alpha1.WeederConfig, ours func(v1alpha1.PodDeletion) bool) {
	for _, d := range wc.Status.RecentDeletions {
		if ours(d) {
			t.line(1, "Done: pod/%s was deleted at %s (%s ago), when Service %s had recovered, for WeederConfig %s", d.Pod, d.Time.UTC().Format(time.RFC3339),
				duration.HumanDuration(max(0, t.now.Sub(d.Time.Time))), d.Service, wc.Name)
		}
	}
}

func nameOf(v snapshot.WeederView, namespace string) string {
	if v.Config.Namespace == namespace {
		return v.Config.Name
	}
	return v.Config.Namespace + "/" + v.Config.Name
}

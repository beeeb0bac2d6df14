package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weed"
)

// WeederPlan is what a WeederConfig would do.
type WeederPlan struct {
	Config  *v1alpha1.WeederConfig
	Preview weed.Preview
	Outlook weed.Outlook
}

// deletions is how many pods would be deleted now.
func (w *WeederPlan) deletions() (n int) {
	for _, s := range w.Outlook.Services {
		if s.Open {
			n += deletionsFor(s)
		}
	}
	return n
}

func deletionsFor(s weed.ServiceOutlook) (n int) {
	for _, p := range s.Pods {
		if p.Hold.Reason == "" {
			n++
		}
	}
	return n
}

func (w *WeederPlan) open() (n int) {
	for _, s := range w.Outlook.Services {
		if s.Open {
			n++
		}
	}
	return n
}

func (w *WeederPlan) evicts() bool { return w.Config.Spec.Deletion == v1alpha1.Evict }

// outcome says in one line what would be done.
func (w *WeederPlan) outcome(pausedBy []string) string {
	switch {
	case w.Config.Spec.Mode == v1alpha1.Observe:
		return "observes, and deletes nothing"
	case len(pausedBy) > 0:
		return "would delete nothing: paused by Guardrail " + strings.Join(pausedBy, ", ")
	case w.evicts():
		return fmt.Sprintf("would evict %s now, as far as PodDisruptionBudgets let it", count(w.deletions(), "pod"))
	}
	return fmt.Sprintf("would delete %s now", count(w.deletions(), "pod"))
}

// details are lines of a name and a text.
func (w *WeederPlan) details() [][2]string {
	v := w.Preview
	return [][2]string{
		{"services", fmt.Sprintf("%d in %s; for %d a window is or would be open", v.Services, count(v.Namespaces, "namespace"), w.open())},
		{"dependents", fmt.Sprintf("%s, of which %d crash-loop", count(v.SelectedPods, "pod"), v.CrashLoopingPods)},
		{"limit", fmt.Sprintf("maxPodDeletionsPerMinute allows %d over all WeederConfigs; %d were deleted in the last minute", w.Outlook.Limit, w.Outlook.Spent)},
	}
}

const (
	// servicesShown of which there is nothing to tell but their state; podsShown of one Service.
	servicesShown = 10
	podsShown     = 20
)

// writeServices tells of each Service and of its dependents that crash-loop.
func (w *WeederPlan) writeServices(out *strings.Builder) {
	quiet := func(s weed.ServiceOutlook) bool { return !s.Open && len(s.Pods) == 0 }
	services, left := w.Outlook.Services, 0
	if len(services) > servicesShown {
		loud := slices.DeleteFunc(slices.Clone(services), quiet)
		services, left = loud, len(services)-len(loud)
	}
	for _, s := range services {
		fmt.Fprintf(out, "  Service %s: %s\n", printable(s.Namespace+"/"+s.Service), w.state(s))
		for _, p := range s.Pods[:min(podsShown, len(s.Pods))] {
			fmt.Fprintf(out, "    %s\n", printable(w.verdict(p)))
		}
		if more := len(s.Pods) - podsShown; more > 0 {
			fmt.Fprintf(out, "    … and %s more; -o json has them all\n", count(more, "pod"))
		}
	}
	if left > 0 {
		fmt.Fprintf(out, "  %s more: no window is open, and no dependent crash-loops\n", count(left, "Service"))
	}
}

// state says what a Service's readiness means now, and what its pods below are judged for.
func (w *WeederPlan) state(s weed.ServiceOutlook) string {
	verb := "be deleted"
	if w.evicts() {
		verb = "be evicted"
	}
	loops := fmt.Sprintf("of %s %d crash-loop", count(s.Dependents, "dependent"), s.CrashLooping)
	if s.Open {
		return fmt.Sprintf("%s; its window is open until %s; %s, and %d would %s", readinessOf(s), clockTime(s.Window.Ends), loops, deletionsFor(s), verb)
	}
	if len(s.Pods) == 0 {
		return fmt.Sprintf("%s; no window; %s", readinessOf(s), loops)
	}
	return fmt.Sprintf("%s; no window; %s; if it recovered now, %d would %s", readinessOf(s), loops, deletionsFor(s), verb)
}

func readinessOf(s weed.ServiceOutlook) string {
	switch {
	case !s.Endpoints:
		return "has no EndpointSlices"
	case !s.Ready:
		return "notReady"
	case s.ReadySince.IsZero():
		return "Ready"
	}
	return "Ready since " + clockTime(s.ReadySince)
}

func clockTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// verdict says what becomes of a pod, and why.
func (w *WeederPlan) verdict(p weed.PodOutlook) string {
	switch {
	case p.Hold.Reason != "":
		return fmt.Sprintf("keep    %s: %s (%s)", p.Pod.Name, p.Hold.Message, p.Hold.Reason)
	case w.evicts():
		return fmt.Sprintf("evict   %s: %s", p.Pod.Name, p.Loop)
	}
	return fmt.Sprintf("delete  %s: %s", p.Pod.Name, p.Loop)
}

type jsonWeeder struct {
	Namespaces int `json:"namespaces"`
	// Limit is how many pods may be deleted in a minute, over all WeederConfigs; Spent of them were in the last one.
	Limit    int           `json:"limit"`
	Spent    int           `json:"spent"`
	Services []jsonService `json:"services"`
}

type jsonService struct {
	Namespace  string     `json:"namespace"`
	Name       string     `json:"name"`
	Endpoints  bool       `json:"endpoints"`
	Ready      bool       `json:"ready"`
	ReadySince *time.Time `json:"readySince"`
	// WindowEnds is null when no window is or would be open; then the pods are judged as if the Service recovered now.
	WindowEnds *time.Time `json:"windowEnds"`
	Dependents int        `json:"dependents"`
	// CrashLooping are the dependents that crash-loop.
	CrashLooping []jsonPod `json:"crashLooping"`
}

type jsonPod struct {
	Name      string `json:"name"`
	Container string `json:"container"`
	Restarts  int32  `json:"restarts"`
	ExitCode  int32  `json:"exitCode"`
	Delete    bool   `json:"delete"`
	// Reason and Message say why it is kept.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

func (w *WeederPlan) json() *jsonWeeder {
	j := &jsonWeeder{Namespaces: w.Preview.Namespaces, Limit: w.Outlook.Limit, Spent: w.Outlook.Spent, Services: []jsonService{}}
	for _, s := range w.Outlook.Services {
		service := jsonService{
			Namespace: s.Namespace, Name: s.Service, Endpoints: s.Endpoints, Ready: s.Ready, Dependents: s.Dependents, CrashLooping: []jsonPod{},
		}
		if !s.ReadySince.IsZero() {
			service.ReadySince = &s.ReadySince
		}
		if s.Open {
			service.WindowEnds = &s.Window.Ends
		}
		for _, p := range s.Pods {
			service.CrashLooping = append(service.CrashLooping, jsonPod{
				Name: p.Pod.Name, Container: p.Loop.Container, Restarts: p.Loop.Restarts, ExitCode: p.Loop.ExitCode,
				Delete: p.Hold.Reason == "", Reason: string(p.Hold.Reason), Message: p.Hold.Message,
			})
		}
		j.Services = append(j.Services, service)
	}
	return j
}

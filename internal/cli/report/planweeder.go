package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

const (
	// servicesShown of which there is nothing to tell but their state; podsShown of one Service.
	servicesShown = 10
	podsShown     = 20
)

type jsonWeeder struct {
	Namespaces int `json:"namespaces"`
	// Limit is how many pods may be deleted in a minute, over all WeederConfigs; Spent of them were in the last one.
	Limit    int                      `json:"limit"`
	Spent    int                      `json:"spent"`
	Services []weeder.ServiceForecast `json:"services"`
}

// WeederConfig takes in what a config would do.
func (p *Plan) WeederConfig(wc *v1alpha1.WeederConfig, f weeder.Forecast, pausedBy []string) {
	open := 0
	for _, s := range f.Items.Services {
		if s.WindowEnds != nil {
			open, p.Acts = open+1, p.Acts+s.Deletions()
		}
	}
	verb := "delete"
	switch {
	case wc.Spec.Mode == v1alpha1.Observe:
		p.outcome = "observes, and deletes nothing"
	case len(pausedBy) > 0:
		p.outcome = "would delete nothing: paused by Guardrail " + strings.Join(pausedBy, ", ")
	case wc.Spec.Deletion == v1alpha1.Evict:
		p.outcome = fmt.Sprintf("would evict %s now, as far as PodDisruptionBudgets let it", count(p.Acts, "pod"))
	default:
		p.outcome = fmt.Sprintf("would delete %s now", count(p.Acts, "pod"))
	}
	if wc.Spec.Deletion == v1alpha1.Evict {
		verb = "evict"
	}
	p.row("services", "%d in %s; for %d a window is or would be open", f.Services, count(f.Namespaces, "namespace"), open)
	p.row("dependents", "%s, of which %d crash-loop", count(f.SelectedPods, "pod"), f.CrashLoopingPods)
	p.row("limit", "maxPodDeletionsPerMinute allows %d over all WeederConfigs; %d were deleted in the last minute", f.Limit, f.Items.Spent)
	p.services(f.Items.Services, verb)
	p.json.Weeder = jsonWeeder{f.Namespaces, f.Limit, f.Items.Spent, append([]weeder.ServiceForecast{}, f.Items.Services...)}
}

// services tells of each Service and of its dependents that crash-loop.
func (p *Plan) services(services []weeder.ServiceForecast, verb string) {
	left := 0
	if len(services) > servicesShown {
		loud := slices.DeleteFunc(slices.Clone(services), func(s weeder.ServiceForecast) bool { return s.WindowEnds == nil && len(s.Pods) == 0 })
		services, left = loud, len(services)-len(loud)
	}
	for _, s := range services {
		p.line(1, "Service %s/%s: %s", s.Namespace, s.Name, serviceState(s, strings.TrimSuffix(verb, "e")+"ed"))
		for _, pod := range s.Pods[:min(podsShown, len(s.Pods))] {
			if pod.Delete {
				p.line(2, "%-8s%s: %s", verb, pod.Name, pod.CrashLoop)
			} else {
				p.line(2, "keep    %s: %s (%s)", pod.Name, pod.Message, pod.Reason)
			}
		}
		p.more(2, len(s.Pods)-podsShown, "pod", hasThemAll)
	}
	if left > 0 {
		p.line(1, "%s more: no window is open, and no dependent crash-loops", count(left, "Service"))
	}
}

// serviceState says what a Service's readiness means now, and what its pods below are judged for.
func serviceState(s weeder.ServiceForecast, done string) string {
	loops := fmt.Sprintf("of %s %d crash-loop", count(s.Dependents, "dependent"), s.CrashLooping)
	if s.WindowEnds != nil {
		return fmt.Sprintf("%s; its window is open until %s; %s, and %d would be %s", readinessOf(s), clockTime(*s.WindowEnds), loops, s.Deletions(), done)
	}
	state := fmt.Sprintf("%s; no window; %s", readinessOf(s), loops)
	if len(s.Pods) > 0 {
		state += fmt.Sprintf("; if it recovered now, %d would be %s", s.Deletions(), done)
	}
	return state
}

func readinessOf(s weeder.ServiceForecast) string {
	switch {
	case !s.Endpoints:
		return "has no EndpointSlices"
	case !s.Ready:
		return "notReady"
	case s.ReadySince == nil:
		return "Ready"
	}
	return "Ready since " + clockTime(*s.ReadySince)
}

func clockTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

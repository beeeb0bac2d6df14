package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

const (
	// maxServices of which only the state is shown; maxPods of one Service.
	maxServices = 10
	maxPods     = 20
)

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
	case p.idles(wc.Spec.Mode, "observes, and deletes nothing", pausedBy, "would delete nothing"):
	case wc.Spec.Deletion == v1alpha1.Evict:
		p.outcome = fmt.Sprintf("would evict %s now, as far as PodDisruptionBudgets let it", sample.Count(p.Acts, "pod"))
	default:
		p.outcome = fmt.Sprintf("would delete %s now", sample.Count(p.Acts, "pod"))
	}
	if wc.Spec.Deletion == v1alpha1.Evict {
		verb = "evict"
	}
	p.row("services", "%d in %s; for %d a window is or would be open", f.Services, sample.Count(f.Namespaces, "namespace"), open)
	p.row("dependents", "%s, of which %d crash-loop", sample.Count(f.SelectedPods, "pod"), f.CrashLoopingPods)
	p.row("limit", "maxPodDeletionsPerMinute allows %d over all WeederConfigs; %s in the last minute", f.Limit, sample.Clause(f.Items.DeletedLastMinute, "was deleted", "were deleted"))
	p.services(f.Items.Services, verb)
	p.json = map[string]any{"weeder": map[string]any{
		"namespaces": f.Namespaces, "limit": f.Limit, "spent": f.Items.DeletedLastMinute, "services": append([]weeder.ServiceForecast{}, f.Items.Services...),
	}}
}

// services tells of each Service and of its dependents that crash-loop.
func (p *Plan) services(services []weeder.ServiceForecast, verb string) {
	omitted := 0
	if len(services) > maxServices {
		loud := slices.DeleteFunc(slices.Clone(services), func(s weeder.ServiceForecast) bool { return s.WindowEnds == nil && len(s.Pods) == 0 })
		services, omitted = loud, len(services)-len(loud)
	}
	for _, s := range services {
		p.line(1, "Service %s/%s: %s", s.Namespace, s.Name, serviceState(s, strings.TrimSuffix(verb, "e")+"ed"))
		for _, pod := range s.Pods[:min(maxPods, len(s.Pods))] {
			if pod.Delete {
				p.line(2, "%-8s%s: %s", verb, pod.Name, pod.CrashLoop)
			} else {
				p.line(2, "keep    %s: %s (%s)", pod.Name, pod.Message, pod.Reason)
			}
		}
		p.more(2, len(s.Pods)-maxPods, "pod", allInJSON)
	}
	if omitted > 0 {
		p.line(1, "%s more: no window is open, and no dependent crash-loops", sample.Count(omitted, "Service"))
	}
}

// serviceState says what a Service's readiness means now, and what its pods below are judged for.
func serviceState(s weeder.ServiceForecast, done string) string {
	loops := fmt.Sprintf("of %s %d crash-loop", sample.Count(s.Dependents, "dependent"), s.CrashLooping)
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

// maxProbes are the targets of which each step is shown.
const maxProbes = 5

// Probes is what else is known of ProbeConfigs.
type Probes struct {
	// Unknown says what could not be read; then the forecast is empty.
	Unknown string
	// BreakerOpen: nothing is scaled down for any config.
	BreakerOpen bool
	// Now is how the targets of the stored config of its name are, by its status; nil when none is stored.
	Now *v1alpha1.TargetCounts
}

// ProbeConfig takes in what a config would do. Nothing follows from it alone but what is given back: it is probes that decide.
func (p *Plan) ProbeConfig(pc *v1alpha1.ProbeConfig, f probe.Forecast, of Probes, pausedBy []string) {
	p.Acts = len(f.Items.Restores)
	switch {
	case p.idles(pc.Spec.Mode, "observes, and scales nothing down", pausedBy, "would scale nothing down"):
	case of.BreakerOpen:
		p.outcome = "would scale nothing down: the breaker of all ProbeConfigs is open, see kubectl autohealer reset"
	case of.Unknown != "":
		p.outcome = "would scale nothing now; what it would scale is not known"
	default:
		p.outcome = fmt.Sprintf("would scale nothing down now; if only the way from outside failed, %s in %s", sample.Count(f.WouldScaleDown, "object"), sample.Count(f.Targets, "target"))
	}
	if p.Acts > 0 {
		p.outcome += "; gives " + sample.Count(p.Acts, "object") + " back what it scaled down"
	}
	asJSON := map[string]any{
		"targets": f.Targets, "limit": f.Limit, "probed": f.Probed, "scaledDown": f.ScaledDown, "wouldScaleDown": f.WouldScaleDown,
		"givesBack": append([]v1alpha1.ScaledDependent{}, f.Items.Restores...), "steps": append([]probe.TargetForecast{}, f.Items.Targets...),
	}
	p.json = map[string]any{"probe": asJSON}
	if of.Unknown != "" {
		asJSON["unknown"] = of.Unknown
		p.row("not known", "%s", of.Unknown)
		return
	}
	p.probeRows(f, of.Now)
	for _, t := range f.Items.Targets[:min(maxProbes, len(f.Items.Targets))] {
		p.steps(t)
	}
	p.more(1, f.Targets-min(maxProbes, len(f.Items.Targets)), "target", "; -o json has more of them")
}

func (p *Plan) probeRows(f probe.Forecast, now *v1alpha1.TargetCounts) {
	targets := sample.Count(f.Targets, "target")
	if checked := len(f.Items.Targets); checked < f.Targets {
		targets += fmt.Sprintf(", of which the first %d were looked at", checked)
	}
	p.row("targets", "%s", targets)
	p.row("limit", "maxScaledDownTargets allows %d; over all ProbeConfigs %d probed, %d scaled down", f.Limit, f.Probed, f.ScaledDown)
	if now != nil {
		p.row("now", "%d of %s failing the external probe, %d scaled down", now.ExternalUnhealthy, sample.Count(int(now.Total), "target"), now.ScaledDown)
	}
	for _, s := range f.Items.Restores {
		p.row("gives back", "%s %s/%s: 0 → %d", s.Ref.Kind, s.Namespace, s.Ref.Name, s.PreviousReplicas)
	}
}

// steps tells of a target what would be scaled, in which order.
func (p *Plan) steps(t probe.TargetForecast) {
	if len(t.Down)+len(t.Up)+len(t.Findings) == 0 {
		p.line(1, "Target %s: nothing to scale", t.Namespace)
		return
	}
	p.line(1, "Target %s:", t.Namespace)
	p.levels("down", t.Down)
	p.levels("up", t.Up)
	for _, f := range t.Findings {
		p.line(2, "not     %s: %s (%s)", f.Ref, f.Message, f.Reason)
	}
}

func (p *Plan) levels(verb string, levels []probe.LevelForecast) {
	for _, l := range levels {
		var changes []string
		for _, c := range l.Changes {
			changes = append(changes, fmt.Sprintf("%s %d → %d", c.Ref, c.From, c.To))
		}
		p.line(2, "%-8slevel %d: %s", verb, l.Level, strings.Join(changes, ", "))
	}
}

// maxClusters with something to show, and without.
const maxClusters = 20

type jsonOutlier struct {
	Disabled bool `json:"disabled"`
	// Effective is what Envoy does, with all defaults; null when disabled.
	Effective *v1alpha1.OutlierDetection `json:"effective"`
	outlier.Items
}

// OutlierPolicy takes in what a policy, read as such, would mean.
func (p *Plan) OutlierPolicy(op *v1alpha1.OutlierPolicy, read *outlier.Policy, f outlier.Forecast, pausedBy []string) {
	where := fmt.Sprintf("%s with %s", sample.Count(f.Clusters, "cluster"), sample.Count(f.Hosts, "host"))
	switch {
	case op.Spec.Disabled:
		p.outcome = "would switch detection off for " + where
	case p.idles(op.Spec.Mode, "observes "+where+", and ejects nobody", pausedBy, "would eject nobody"):
	default:
		p.outcome = "would detect failing hosts in " + where
	}
	for _, c := range f.Items.Clusters {
		if c.Ejectable > 0 && len(pausedBy) == 0 {
			p.Acts++
		}
	}
	j := jsonOutlier{Disabled: op.Spec.Disabled, Items: f.Items}
	if !j.Disabled {
		effective := read.Settings.WithDefaults()
		j.Effective = &effective
		p.settings(&read.Settings)
	}
	p.json = map[string]any{"outlier": j}
	p.clusters(f.Items, read.Detects())
}

func (p *Plan) settings(s *outlier.Settings) {
	p.row("after", "%s", s.TriggerText())
	p.row("for", "%s", s.DurationText())
	if s.ConnectTimeout != nil {
		p.row("connect", "a connection that takes longer than %s has failed", *s.ConnectTimeout)
	}
	if s.PanicThreshold > 0 {
		p.row("panic", "when less than %d%% are healthy, all get requests again", s.PanicThreshold)
	} else {
		p.row("panic", "off: when all are ejected, requests fail")
	}
}

// clusters tells of each cluster how many hosts may go, and by which of the policy's targets it holds.
func (p *Plan) clusters(items outlier.Items, detects bool) {
	for _, c := range items.Clusters[:min(maxClusters, len(items.Clusters))] {
		text := sample.Count(c.Hosts, "host")
		if c.Hosts > 0 && detects {
			text += fmt.Sprintf(", of which at most %d ejected at once", c.Ejectable)
		}
		if c.Hosts > 0 && c.EjectsEverything {
			text += ", which is all of them"
		}
		p.line(1, "Cluster %s: %s; for %s", c.Name, text, c.Level)
	}
	p.more(1, len(items.Clusters)-maxClusters, "cluster", allInJSON)
	for _, c := range items.Overridden[:min(maxClusters, len(items.Overridden))] {
		p.line(1, "Cluster %s: OutlierPolicy %s holds, for %s", c.Name, c.Policy, c.Level)
	}
	p.more(1, len(items.Overridden)-maxClusters, "cluster", " that others hold for"+allInJSON)
}

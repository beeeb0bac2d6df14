package report

import (
	"fmt"
	"strings"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// probesShown are the targets of which each step is told.
const probesShown = 5

type jsonProbe struct {
	Targets int `json:"targets"`
	// Limit is how many targets may be scaled down at once; of Probed ones, over all ProbeConfigs, ScaledDown are.
	Limit      int `json:"limit"`
	Probed     int `json:"probed"`
	ScaledDown int `json:"scaledDown"`
	// WouldScaleDown counts the objects if all targets failed outside, in the targets that were looked at.
	WouldScaleDown int    `json:"wouldScaleDown"`
	Unknown        string `json:"unknown,omitempty"`
	// GivesBack would get their replicas back now.
	GivesBack []v1alpha1.ScaledDependent `json:"givesBack"`
	// Steps of the targets that were looked at.
	Steps []probe.TargetForecast `json:"steps"`
}

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
	p.Acts = len(f.Items.GivesBack)
	switch {
	case pc.Spec.Mode == v1alpha1.Observe:
		p.outcome = "observes, and scales nothing down"
	case len(pausedBy) > 0:
		p.outcome = "would scale nothing down: paused by Guardrail " + strings.Join(pausedBy, ", ")
	case of.BreakerOpen:
		p.outcome = "would scale nothing down: the breaker of all ProbeConfigs is open, see kubectl autohealer reset"
	case of.Unknown != "":
		p.outcome = "would scale nothing now; what it would scale is not known"
	default:
		p.outcome = fmt.Sprintf("would scale nothing down now; if only the way from outside failed, %s in %s", count(f.WouldScaleDown, "object"), count(f.Targets, "target"))
	}
	if p.Acts > 0 {
		p.outcome += "; gives " + count(p.Acts, "object") + " back what it scaled down"
	}
	p.json.Probe = jsonProbe{
		f.Targets, f.Limit, f.Probed, f.ScaledDown, f.WouldScaleDown, of.Unknown,
		append([]v1alpha1.ScaledDependent{}, f.Items.GivesBack...), append([]probe.TargetForecast{}, f.Items.Targets...),
	}
	if of.Unknown != "" {
		p.row("not known", "%s", of.Unknown)
		return
	}
	p.probeRows(f, of.Now)
	for _, t := range f.Items.Targets[:min(probesShown, len(f.Items.Targets))] {
		p.steps(t)
	}
	p.more(1, f.Targets-min(probesShown, len(f.Items.Targets)), "target", "; -o json has more of them")
}

func (p *Plan) probeRows(f probe.Forecast, now *v1alpha1.TargetCounts) {
	targets := count(f.Targets, "target")
	if looked := len(f.Items.Targets); looked < f.Targets {
		targets += fmt.Sprintf(", of which the first %d were looked at", looked)
	}
	p.row("targets", "%s", targets)
	p.row("limit", "maxScaledDownTargets allows %d; over all ProbeConfigs %d probed, %d scaled down", f.Limit, f.Probed, f.ScaledDown)
	if now != nil {
		p.row("now", "%d of %s failing outside, %d scaled down", now.ExternalUnhealthy, count(int(now.Total), "target"), now.ScaledDown)
	}
	for _, s := range f.Items.GivesBack {
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

package report

import (
	"fmt"
	"strings"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// ProbePlan is what a ProbeConfig would do.
type ProbePlan struct {
	Config *v1alpha1.ProbeConfig
	// Unknown says what could not be read; then Preview and Outlook are empty.
	Unknown string
	Preview probe.Preview
	Outlook probe.Outlook
	// BreakerOpen: nothing is scaled down for any config.
	BreakerOpen bool
	// Now is how the targets of the stored config of its name are, by its status; nil when none is stored.
	Now *v1alpha1.TargetCounts
}

// acts is how many objects would get their replicas back now. Nothing else follows from a config alone: it is probes that
// decide.
func (p *ProbePlan) acts() int { return len(p.Outlook.GivesBack) }

func (p *ProbePlan) observes() bool { return p.Config.Spec.Mode == v1alpha1.Observe }

// outcome says in one line what would be done.
func (p *ProbePlan) outcome(pausedBy []string) string {
	back := ""
	if n := p.acts(); n > 0 {
		back = "; gives " + count(n, "object") + " back what it scaled down"
	}
	switch {
	case p.observes():
		return "observes, and scales nothing down" + back
	case len(pausedBy) > 0:
		return "would scale nothing down: paused by Guardrail " + strings.Join(pausedBy, ", ") + back
	case p.BreakerOpen:
		return "would scale nothing down: the breaker of all ProbeConfigs is open, see kubectl autohealer reset" + back
	case p.Unknown != "":
		return "would scale nothing now; what it would scale is not known"
	}
	return fmt.Sprintf("would scale nothing down now; if only the way from outside failed, %s in %s%s",
		count(p.Preview.WouldScaleDown, "object"), count(p.Preview.Targets, "target"), back)
}

// details are lines of a name and a text.
func (p *ProbePlan) details() [][2]string {
	if p.Unknown != "" {
		return [][2]string{{"not known", p.Unknown}}
	}
	v := p.Preview
	targets := count(v.Targets, "target")
	if looked := len(p.Outlook.Targets); looked < v.Targets {
		targets += fmt.Sprintf(", of which the first %d were looked at", looked)
	}
	lines := [][2]string{
		{"targets", targets},
		{"limit", fmt.Sprintf("maxScaledDownTargets allows %d; over all ProbeConfigs %d probed, %d scaled down", v.Limit, v.Probed, v.ScaledDown)},
	}
	if n := p.Now; n != nil {
		lines = append(lines, [2]string{"now", fmt.Sprintf("%d of %s failing outside, %d scaled down", n.ExternalUnhealthy, count(int(n.Total), "target"), n.ScaledDown)})
	}
	for _, s := range p.Outlook.GivesBack {
		lines = append(lines, [2]string{"gives back", fmt.Sprintf("%s %s/%s: 0 → %d", s.Ref.Kind, s.Namespace, s.Ref.Name, s.PreviousReplicas)})
	}
	return lines
}

// targetsShown of which each step is told.
const targetsShown = 5

// writeTargets tells of each target what would be scaled, in which order.
func (p *ProbePlan) writeTargets(out *strings.Builder) {
	shown := p.Outlook.Targets[:min(targetsShown, len(p.Outlook.Targets))]
	for _, t := range shown {
		if len(t.Down)+len(t.Up)+len(t.Findings) == 0 {
			fmt.Fprintf(out, "  Target %s: nothing to scale\n", printable(t.Namespace))
			continue
		}
		fmt.Fprintf(out, "  Target %s:\n", printable(t.Namespace))
		writeLevels(out, "down", t.Down)
		writeLevels(out, "up", t.Up)
		for _, f := range t.Findings {
			fmt.Fprintf(out, "    %s\n", printable(fmt.Sprintf("not     %s: %s (%s)", f.Ref, f.Message, f.Reason)))
		}
	}
	if more := p.Preview.Targets - len(shown); more > 0 {
		fmt.Fprintf(out, "  … and %s more; -o json has more of them\n", count(more, "target"))
	}
}

func writeLevels(out *strings.Builder, verb string, levels []probe.LevelOutlook) {
	for _, l := range levels {
		var changes []string
		for _, c := range l.Changes {
			changes = append(changes, fmt.Sprintf("%s %d → %d", c.Ref, c.From, c.To))
		}
		fmt.Fprintf(out, "    %-8s%s\n", verb, printable(fmt.Sprintf("level %d: %s", l.Level, strings.Join(changes, ", "))))
	}
}

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
	Steps []jsonTarget `json:"steps"`
}

type jsonTarget struct {
	Namespace string        `json:"namespace"`
	Down      []jsonLevel   `json:"down"`
	Up        []jsonLevel   `json:"up"`
	Not       []jsonFinding `json:"not"`
}

type jsonLevel struct {
	Level   int          `json:"level"`
	Changes []jsonChange `json:"changes"`
}

type jsonChange struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	From int32  `json:"from"`
	To   int32  `json:"to"`
}

type jsonFinding struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (p *ProbePlan) json() *jsonProbe {
	v := p.Preview
	j := &jsonProbe{
		Targets: v.Targets, Limit: v.Limit, Probed: v.Probed, ScaledDown: v.ScaledDown, WouldScaleDown: v.WouldScaleDown, Unknown: p.Unknown,
		GivesBack: append([]v1alpha1.ScaledDependent{}, p.Outlook.GivesBack...), Steps: []jsonTarget{},
	}
	for _, t := range p.Outlook.Targets {
		target := jsonTarget{Namespace: t.Namespace, Down: jsonLevels(t.Down), Up: jsonLevels(t.Up), Not: []jsonFinding{}}
		for _, f := range t.Findings {
			target.Not = append(target.Not, jsonFinding{Kind: f.Ref.Kind, Name: f.Ref.Name, Reason: string(f.Reason), Message: f.Message})
		}
		j.Steps = append(j.Steps, target)
	}
	return j
}

func jsonLevels(levels []probe.LevelOutlook) []jsonLevel {
	all := []jsonLevel{}
	for _, l := range levels {
		level := jsonLevel{Level: l.Level, Changes: []jsonChange{}}
		for _, c := range l.Changes {
			level.Changes = append(level.Changes, jsonChange{Kind: c.Ref.Kind, Name: c.Ref.Name, From: c.From, To: c.To})
		}
		all = append(all, level)
	}
	return all
}

package report

import (
	"fmt"
	"strings"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// clustersShown of which there is something to tell, and of which there is nothing.
const clustersShown = 20

type jsonOutlier struct {
	Disabled bool `json:"disabled"`
	// Effective is what Envoy does, with all defaults; null when disabled.
	Effective *v1alpha1.OutlierDetection `json:"effective"`
	outlier.Items
}

// OutlierPolicy takes in what a policy, read as such, would mean.
func (p *Plan) OutlierPolicy(op *v1alpha1.OutlierPolicy, read *outlier.Policy, f outlier.Forecast, pausedBy []string) {
	where := fmt.Sprintf("%s with %s", count(f.Clusters, "cluster"), count(f.Hosts, "host"))
	switch {
	case op.Spec.Disabled:
		p.outcome = "would switch detection off for " + where
	case op.Spec.Mode == v1alpha1.Observe:
		p.outcome = "observes " + where + ", and ejects nobody"
	case len(pausedBy) > 0:
		p.outcome = "would eject nobody: paused by Guardrail " + strings.Join(pausedBy, ", ")
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
	p.json.Outlier = j
	p.clusters(f.Items, read.Detects())
}

func (p *Plan) settings(s *outlier.Settings) {
	p.row("after", "%s", s.After())
	p.row("for", "%s", s.Length())
	if s.PanicThreshold > 0 {
		p.row("panic", "when less than %d%% are healthy, all get requests again", s.PanicThreshold)
	} else {
		p.row("panic", "off: when all are ejected, requests fail")
	}
}

// clusters tells of each cluster how many hosts may go, and by which of the policy's targets it holds.
func (p *Plan) clusters(items outlier.Items, detects bool) {
	for _, c := range items.Clusters[:min(clustersShown, len(items.Clusters))] {
		text := count(c.Hosts, "host")
		if c.Hosts > 0 && detects {
			text += fmt.Sprintf(", of which at most %d ejected at once", c.Ejectable)
		}
		if c.Hosts > 0 && c.EjectsEverything {
			text += ", which is all of them"
		}
		p.line(1, "Cluster %s: %s; for %s", c.Name, text, c.Level)
	}
	p.more(1, len(items.Clusters)-clustersShown, "cluster", hasThemAll)
	for _, c := range items.Overridden[:min(clustersShown, len(items.Overridden))] {
		p.line(1, "Cluster %s: OutlierPolicy %s holds, for %s", c.Name, c.Policy, c.Level)
	}
	p.more(1, len(items.Overridden)-clustersShown, "cluster", " that others hold for"+hasThemAll)
}

package report

import (
	"io"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

type jsonForecast struct {
	TakenAt    time.Time  `json:"takenAt"`
	AgeSeconds int64      `json:"ageSeconds"`
	PausedBy   []string   `json:"pausedBy"`
	Plans      []jsonPlan `json:"plans"`
}

type jsonPlan struct {
	File       string          `json:"file"`
	Line       int             `json:"line"`
	Kind       string          `json:"kind"`
	Name       string          `json:"name"`
	Allowed    bool            `json:"allowed"`
	Violations []jsonViolation `json:"violations"`
	// Acts is how many nodes it would taint now, how many pods it would delete, how many objects it would scale, of how many
	// clusters Envoy would eject hosts, or how many conditions it would write.
	Acts         int          `json:"acts"`
	HeldByLimits int          `json:"heldByLimits"`
	HeldByCap    int          `json:"heldByCap"`
	TaintedNow   int          `json:"taintedNow"`
	BreakerOpens bool         `json:"breakerOpens"`
	Preview      *jsonPreview `json:"preview"`
	// Weeder is there for a WeederConfig, Probe for a ProbeConfig, Outlier for an OutlierPolicy; Preview is null then.
	Weeder  *jsonWeeder  `json:"weeder,omitempty"`
	Probe   *jsonProbe   `json:"probe,omitempty"`
	Outlier *jsonOutlier `json:"outlier,omitempty"`
	// Checks is there for a HealthCheckRegistration.
	Checks *jsonChecks `json:"checks,omitempty"`
}

type jsonPreview struct {
	Nodes         int      `json:"nodes"`
	Selected      int      `json:"selected"`
	Matching      int      `json:"matching"`
	MatchingNodes []string `json:"matchingNodes"`
	WouldTaint    int      `json:"wouldTaint"`
	// Limit is null when none applies.
	Limit               *int     `json:"limit"`
	LimitName           string   `json:"limitName"`
	UnionTainted        int      `json:"unionTainted"`
	UnionLimit          int      `json:"unionLimit"`
	ForeignTainted      int      `json:"foreignTainted"`
	ForeignTaintedNodes []string `json:"foreignTaintedNodes"`
}

func (f Forecast) writeJSON(w io.Writer) error {
	out := jsonForecast{TakenAt: f.TakenAt, AgeSeconds: int64(f.Age / time.Second), PausedBy: append([]string{}, f.PausedBy...), Plans: []jsonPlan{}}
	for _, p := range f.Plans {
		j := jsonPlan{File: p.Report.File, Line: p.Report.Line, Kind: p.Report.Kind, Name: p.Report.Name, Allowed: p.Report.Allowed,
			Violations: violationsOf(p.Report)}
		if p.Set != nil {
			j.Acts, j.HeldByLimits, j.HeldByCap, j.TaintedNow, j.BreakerOpens = f.acts(p), p.heldByLimits(), p.heldByCap(), p.TaintedNow, p.BreakerOpens
			j.Preview = previewOf(p.Preview)
		}
		if p.Weeder != nil {
			j.Acts, j.Weeder = f.acts(p), p.Weeder.json()
		}
		if p.Probe != nil {
			j.Acts, j.Probe = f.acts(p), p.Probe.json()
		}
		if p.Outlier != nil {
			j.Acts, j.Outlier = f.acts(p), p.Outlier.json()
		}
		if p.Checks != nil {
			j.Acts, j.Checks = f.acts(p), p.Checks.json()
		}
		out.Plans = append(out.Plans, j)
	}
	return writeJSON(w, out)
}

func previewOf(v condition.Preview) *jsonPreview {
	j := &jsonPreview{
		Nodes: v.Nodes, Selected: v.Selected, Matching: v.Matching, MatchingNodes: append([]string{}, v.MatchingNodes...), WouldTaint: v.WouldTaint,
		LimitName: v.LimitName, UnionTainted: v.UnionTainted, UnionLimit: v.UnionLimit,
		ForeignTainted: v.ForeignTainted, ForeignTaintedNodes: append([]string{}, v.ForeignTaintedNodes...),
	}
	if v.Limit != limit.None {
		j.Limit = &v.Limit
	}
	return j
}

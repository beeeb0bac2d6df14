package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/outlier/detector"
)

// OutlierPlan is what an OutlierPolicy would mean.
type OutlierPlan struct {
	Policy   *v1alpha1.OutlierPolicy
	Settings outlier.Settings
	Outlook  outlier.Outlook
}

// acts is how many clusters Envoy would eject hosts of.
func (o *OutlierPlan) acts() (n int) {
	for i := range o.Outlook.Clusters {
		if o.Outlook.Clusters[i].Ejectable > 0 {
			n++
		}
	}
	return n
}

func (o *OutlierPlan) hosts() (n int) {
	for i := range o.Outlook.Clusters {
		n += len(o.Outlook.Clusters[i].Hosts)
	}
	return n
}

// outcome says in one line what would be done.
func (o *OutlierPlan) outcome(pausedBy []string) string {
	where := fmt.Sprintf("%s with %s", count(len(o.Outlook.Clusters), "cluster"), count(o.hosts(), "host"))
	switch {
	case o.Policy.Spec.Disabled:
		return "would switch detection off for " + where
	case o.Policy.Spec.Mode == v1alpha1.Observe:
		return "observes " + where + ", and ejects nobody"
	case len(pausedBy) > 0:
		return "would eject nobody: paused by Guardrail " + strings.Join(pausedBy, ", ")
	}
	return "would detect failing hosts in " + where
}

// details are lines of a name and a text.
func (o *OutlierPlan) details() [][2]string {
	if o.Policy.Spec.Disabled {
		return nil
	}
	s := &o.Settings
	panics := "off: when all are ejected, requests fail"
	if s.PanicThreshold > 0 {
		panics = fmt.Sprintf("when less than %d%% are healthy, all get requests again", s.PanicThreshold)
	}
	return [][2]string{
		{"after", s.After()}, {"for", s.Length()}, {"panic", panics},
	}
}

// clustersShown of which there is something to tell, and of which there is nothing.
const clustersShown = 20

// writeClusters tells of each cluster how many hosts may go, and by which of the policy's targets it holds.
func (o *OutlierPlan) writeClusters(out *strings.Builder) {
	for i := range o.Outlook.Clusters[:min(clustersShown, len(o.Outlook.Clusters))] {
		c := &o.Outlook.Clusters[i]
		fmt.Fprintf(out, "  Cluster %s: %s\n", printable(c.Key.String()), printable(o.fate(c)))
	}
	if more := len(o.Outlook.Clusters) - clustersShown; more > 0 {
		fmt.Fprintf(out, "  … and %s more; -o json has them all\n", count(more, "cluster"))
	}
	for i := range o.Outlook.Overridden[:min(clustersShown, len(o.Outlook.Overridden))] {
		c := &o.Outlook.Overridden[i]
		fmt.Fprintf(out, "  Cluster %s: OutlierPolicy %s holds, for %s\n", printable(c.Key.String()), printable(c.Policy.Key().String()), c.Level)
	}
	if more := len(o.Outlook.Overridden) - clustersShown; more > 0 {
		fmt.Fprintf(out, "  … and %s more that others hold for; -o json has them all\n", count(more, "cluster"))
	}
}

func (o *OutlierPlan) fate(c *outlier.ClusterOutlook) string {
	text := fmt.Sprintf("%s, of which at most %d ejected at once", count(len(c.Hosts), "host"), c.Ejectable)
	switch {
	case len(c.Hosts) == 0 || !c.Policy.Detects():
		text = count(len(c.Hosts), "host")
	case c.EjectsEverything():
		text += ", which is all of them"
	}
	return text + "; for " + c.Level.String()
}

type jsonOutlier struct {
	Disabled bool `json:"disabled"`
	// Effective is what Envoy does, with all defaults; null when disabled.
	Effective  *v1alpha1.OutlierDetection `json:"effective"`
	Clusters   []jsonCluster              `json:"clusters"`
	Overridden []jsonCluster              `json:"overridden"`
}

type jsonCluster struct {
	Name   string `json:"name"`
	Policy string `json:"policy"`
	Level  string `json:"level"`
	// Hosts and Ejectable are those of clusters that the policy would hold for.
	Hosts            int  `json:"hosts"`
	Ejectable        int  `json:"ejectable"`
	EjectsEverything bool `json:"ejectsEverything"`
}

func (o *OutlierPlan) json() *jsonOutlier {
	out := &jsonOutlier{Disabled: o.Policy.Spec.Disabled, Clusters: clustersOf(o.Outlook.Clusters), Overridden: clustersOf(o.Outlook.Overridden)}
	if !out.Disabled {
		effective := o.Settings.WithDefaults()
		out.Effective = &effective
	}
	return out
}

func clustersOf(all []outlier.ClusterOutlook) []jsonCluster {
	clusters := []jsonCluster{}
	for i := range all {
		c := &all[i]
		clusters = append(clusters, jsonCluster{
			Name: c.Key.String(), Policy: c.Policy.Key().String(), Level: c.Level.String(),
			Hosts: len(c.Hosts), Ejectable: c.Ejectable, EjectsEverything: c.EjectsEverything(),
		})
	}
	return clusters
}

// Simulation is what Envoy would have done with a trace.
type Simulation struct {
	// Name of the policy.
	Name   string
	Began  time.Time
	Hosts  int
	Events []detector.Event
}

// Ejections counts them.
func (s *Simulation) Ejections() (n int) {
	for _, e := range s.Events {
		if e.Action == detector.Ejected {
			n++
		}
	}
	return n
}

// Text tells it line by line.
func (s *Simulation) Text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "OutlierPolicy %s: %s of %s\n", printable(s.Name), count(s.Ejections(), "ejection"), count(s.Hosts, "host"))
	for _, e := range s.Events {
		at := e.At.String()
		if !s.Began.IsZero() {
			at = s.Began.Add(e.At).UTC().Format("15:04:05.000")
		}
		fmt.Fprintf(&out, "  %12s  %s %s\n", at, printable(e.Host), happened(e))
	}
	return out.String()
}

// happened says what became of a host.
func happened(e detector.Event) string {
	why := map[detector.Cause]string{
		detector.ConsecutiveServerErrors: "consecutive 5xx", detector.ConsecutiveLocalOrigin: "consecutive failures of Envoy's own",
	}[e.Cause]
	switch e.Action {
	case detector.Ejected:
		return fmt.Sprintf("ejected for %s, time %d: %s", e.For, e.Times, why)
	case detector.Returned:
		return fmt.Sprintf("back after %s", e.For)
	case detector.Observed:
		return "counted, not ejected: " + why
	}
	return "spared, as many as may be are ejected: " + why
}

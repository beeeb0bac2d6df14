package explain

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Ejections tells of hosts whether Envoys have ejected them, and what ejects them and brings them back. Unknown says
// what isn't known that policies are planned by; nil when all is.
func Ejections(assignments []snapshot.HostAssignment, unknown error, now time.Time) string {
	t := &explanation{now: now}
	t.unknown("OutlierPolicies", unknown)
	var last *snapshot.HostAssignment
	for i := range assignments {
		s := &assignments[i]
		if last == nil || last.Cluster != s.Cluster {
			t.cluster(s)
		}
		t.line(2, "%s: %s", hostName(s), t.ejection(s))
		last = s
	}
	return t.out.String()
}

// cluster tells what the policy does there, and with which limits.
func (t *explanation) cluster(s *snapshot.HostAssignment) {
	settings := &s.Read.Settings
	t.line(1, "OutlierPolicy %s, Envoy cluster %s: %s", nameIn(s.Policy, s.Cluster.Service.Namespace), s.Cluster, policyEffect(s.Read))
	if s.OutOfDate != "" {
		t.line(2, "Not what Envoys have everywhere: %s", s.OutOfDate)
	}
	if !s.Read.Detects() {
		return
	}
	t.line(2, "A host is ejected after %s", settings.TriggerText())
	if settings.Observe {
		return
	}
	t.line(2, "It stays so for %s", settings.DurationText())
	most := fmt.Sprintf("At most %d of %s may be ejected at once by one Envoy", settings.Ejectable(len(s.Hosts)), sample.Count(len(s.Hosts), "host"))
	if n, known := ejectedIn(s); known {
		most += fmt.Sprintf("; %d now", n)
	}
	t.line(2, "%s", most)
}

func policyEffect(p *outlier.Policy) string {
	switch {
	case p.Refused:
		return "a rule refuses the policy, so nothing is detected"
	case p.Disabled:
		return "the policy switches detection off"
	case p.Settings.Observe:
		return "Envoy counts errors, and ejects nobody"
	}
	return "Envoy ejects hosts that keep failing"
}

// ejectedIn counts the ejected hosts of a cluster; known is false while nobody can tell, or not all are named.
func ejectedIn(s *snapshot.HostAssignment) (n int, known bool) {
	status := &s.Policy.Status
	for _, x := range status.Ejections {
		if x.Cluster == s.Cluster.String() {
			n++
		}
	}
	return n, status.Ejected != nil && int(*status.Ejected) == len(status.Ejections)
}

// ejection says whether a host is ejected, since when, and when it may be back.
func (t *explanation) ejection(s *snapshot.HostAssignment) string {
	status := &s.Policy.Status
	i := slices.IndexFunc(status.Ejections, func(x v1alpha1.OutlierEjection) bool { return x.Cluster == s.Cluster.String() && x.Address == s.At() })
	unknown := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionEjectionsUnknown)
	switch {
	case i >= 0:
		x := status.Ejections[i]
		settings := &s.Read.Settings
		earliest, latest := x.Since.Add(settings.BaseEjectionTime()), x.Since.Add(settings.MaxEjectionTime()+settings.MaxJitter()+settings.SweepInterval())
		text := fmt.Sprintf("ejected by %s %s", sample.Count(int(x.Envoys), "Envoy"), t.since(x.Since.Time))
		switch {
		case earliest.After(t.now):
			return text + "; back " + t.at(earliest) + " or so, if it is its first time"
		case latest.After(t.now):
			return text + "; back " + t.at(latest) + " or so at the latest"
		}
		return text
	case unknown != nil:
		return "whether it is ejected isn't known: " + unknown.Message
	case status.Ejected == nil:
		return "whether it is ejected isn't known: no Envoy is asked; start the manager with --ejections-from"
	case int(*status.Ejected) > len(status.Ejections):
		return fmt.Sprintf("not among the %d of %d ejected hosts that the policy's status names, so it isn't known", len(status.Ejections), *status.Ejected)
	}
	return "not ejected"
}

func hostName(s *snapshot.HostAssignment) string {
	if s.Pod == "" {
		return s.At()
	}
	return fmt.Sprintf("pod/%s (%s)", s.Pod, s.At())
}

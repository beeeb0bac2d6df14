package probeconfig

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

func internalHealthy(st state) metav1.Condition {
	return side(st, v1alpha1.ConditionInternalHealthy, aspect{
		name: "internal", unhealthy: (*sight).internalUnhealthy,
		healthy: func(s *sight) bool { return s.State.Internal.Healthy(s.Config.Thresholds) },
		counts:  func(s *sight) *probe.Counts { return &s.State.Internal }, failure: func(s *sight) probe.Class { return s.State.Internal.LastFailure },
		undetermined: func(s *sight) time.Time { return s.State.InternalUndetermined(s.Config) },
	})
}

func externalHealthy(st state) metav1.Condition {
	c := side(st, v1alpha1.ConditionExternalHealthy, aspect{
		name: "external", unhealthy: (*sight).externalUnhealthy,
		healthy: func(s *sight) bool { return s.State.OuterHealthy(s.Config) },
		counts:  func(s *sight) *probe.Counts { return &s.State.External }, failure: (*sight).lastOuterFailure,
		undetermined: func(s *sight) time.Time { return s.State.ExternalUndetermined(s.Config) },
	})
	s := st.single()
	if s != nil && c.Status == metav1.ConditionFalse && s.untried() {
		c.Reason, c.Message = v1alpha1.ReasonKubeconfigUntried, s.saysUntried()
	}
	if s != nil && c.Status == metav1.ConditionFalse && s.externalUnhealthy() && !s.State.External.Unhealthy(s.Config.Thresholds) {
		j := s.State.LastLeases
		c.Reason, c.Message = v1alpha1.ReasonLeasesExpired, "Too many nodes don't renew their leases."
		if j.Outcome.Class == probe.LeasesExpired { // else the latest run counted nothing
			c.Message = fmt.Sprintf("%d of %d nodes don't renew their leases.", j.Expired, j.Candidates)
		}
	}
	if s != nil && c.Reason == v1alpha1.ReasonBelowThreshold && s.State.LeasesHold(s.Config) {
		c.Message = "The external probe succeeds, and the nodes' leases can't be listed; see LeasesUnreadable."
	}
	return c
}

// aspect is what one probe tells of a target.
type aspect struct {
	name               string
	healthy, unhealthy func(*sight) bool
	counts             func(*sight) *probe.Counts
	// failure is the latest that counted.
	failure      func(*sight) probe.Class
	undetermined func(*sight) time.Time
}

// side is the condition of one probe: of the only target, or of all of them.
func side(st state, kind string, of aspect) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonBelowThreshold, Message: "Neither threshold of the " + of.name + " probe is reached."}
	s := st.single()
	if s == nil {
		return fleetSide(st, c, of)
	}
	undetermined := of.undetermined(s)
	switch {
	case s.hibernated:
		c.Reason, c.Message = v1alpha1.ReasonHibernated, "The namespace is hibernated, and nothing is probed."
	case s.Supply.Unusable.Class != "":
		c.Reason, c.Message = v1alpha1.ReasonSecretUnusable, sentence(s.Supply.Unusable)
	case !undetermined.IsZero():
		c.Reason, c.Message = v1alpha1.ReasonUndetermined, unclear(s, of, undetermined)
	case of.unhealthy(s):
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonProbeFails, fmt.Sprintf("The %s probe failed %d times in a row: %s.", of.name, s.Config.Thresholds.Failure, of.failure(s))
	case of.healthy(s):
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonProbeSucceeds, "The "+of.name+" probe succeeds."
	case !of.counts(s).Unclear.IsZero(): // the latest run counted nothing
		c.Message += fmt.Sprintf(" What it finds counts nothing: %s.", of.counts(s).LastError)
	}
	return c
}

// unclear tells of a probe that has had no clear answer for long.
func unclear(s *sight, of aspect, since time.Time) string {
	at := since.UTC().Format("2006-01-02T15:04:05Z")
	if of.name == "external" && !s.State.InternalUndetermined(s.Config).IsZero() {
		return "It hasn't been run since " + at + ": the internal probe gets no clear answer, and nothing is scaled."
	}
	return fmt.Sprintf("The %s probe has had no clear answer since %s, and nothing is scaled: %s. Look at the kubeconfig's credentials, and at the API server.", of.name, at, of.counts(s).LastError)
}

func fleetSide(st state, c metav1.Condition, of aspect) metav1.Condition {
	good, bad, undetermined := 0, 0, 0
	for i := range st.sights {
		switch s := &st.sights[i]; {
		case s.Supply.Probes() && !s.hibernated && !of.undetermined(s).IsZero():
			undetermined++
		case of.unhealthy(s):
			bad++
		case of.healthy(s):
			good++
		}
	}
	switch {
	case bad > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonProbeFails, fmt.Sprintf("The %s probe of some targets fails; see worstTargets.", of.name)
	case undetermined > 0:
		c.Reason, c.Message = v1alpha1.ReasonUndetermined, fmt.Sprintf("The %s probe of %s gets no clear answer, and nothing is scaled there; see worstTargets.", of.name, sample.Count(undetermined, "target"))
	case good > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonProbeSucceeds, "No target's "+of.name+" probe fails."
	}
	return c
}

func protectionActive(after v1alpha1.ProbeConfigStatus, sights []sight) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionProtectionActive, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNothingScaledDown, Message: "Nothing is scaled down."}
	if len(after.Scaled) > 0 {
		var names []string
		for _, s := range after.Scaled {
			names = append(names, fmt.Sprintf("%s %s/%s", s.Ref.Kind, s.Namespace, s.Ref.Name))
		}
		if len(names) == probe.SampleSize {
			names = append(names, "…")
		}
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonScaledDown, "Scaled down: "+strings.Join(names, ", ")+"."
	}
	byOthers := func(f probe.Finding) bool { return f.Reason == probe.ScaledByOthers }
	for i := range sights {
		if j := slices.IndexFunc(sights[i].Findings, byOthers); j >= 0 {
			f := sights[i].Findings[j]
			c.Reason, c.Message = v1alpha1.ReasonScaledByOthers, fmt.Sprintf("%s Not protected: %s %s/%s: %s.", c.Message, f.Kind, sights[i].Namespace, f.Name, f.Message)
			break
		}
	}
	return c
}

func leasesUnreadable(st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLeasesUnreadable}
	n := 0
	for i := range st.sights {
		s := &st.sights[i]
		if !s.State.LeasesUnreadable(s.Config) {
			continue
		}
		if n++; n == 1 {
			why, decides := s.State.LastUnlisted, "There the external probe decides alone."
			if s.State.LeasesHold(s.Config) {
				decides = fmt.Sprintf("There what is scaled down stays so until %s, and then the external probe decides alone.", s.State.LeasesStand.UTC().Format("2006-01-02T15:04:05Z"))
			}
			c.Reason = string(why.Class)
			c.Message = fmt.Sprintf("in %s: %s: %s. %s %s", s.Namespace, why.Class, why.Detail, decides, listingRemedy(s.Config, why.Class))
		}
	}
	if n > 0 {
		c.Message = fmt.Sprintf("The nodes' leases of %s can't be listed, %s", sample.Count(n, "target"), c.Message)
	}
	return c
}

// leasesOutlasted tells of nodes that aren't waited for any more. Somebody must look: nothing holds back who replaces them, and yet
// they are there. What was told stays until all targets were probed: a process that begins knows nothing.
func leasesOutlasted(pc *v1alpha1.ProbeConfig, st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLeasesOutlasted}
	n, unseen := 0, false
	for i := range st.sights {
		s := &st.sights[i]
		j := s.State.LastLeases
		unseen = unseen || s.Config.Leases != nil && s.State.At.IsZero() && !s.hibernated && s.Supply.Unusable.Class == ""
		if !s.State.LeasesGaveUp(s.Config) {
			continue
		}
		if n++; n == 1 {
			c.Reason = v1alpha1.ReasonMaxProtectionDuration
			c.Message = fmt.Sprintf("in %s %d of %d nodes haven't renewed theirs for more than %s. Nothing is scaled down for these any more, and what was comes back. "+
				"If they are dead, replace or delete them; if they are cut off, repair their way, or make nodeLeases.maxProtectionDuration longer.",
				s.Namespace, j.Outlasted, j.Candidates+j.Outlasted, s.Config.Leases.MaxProtection)
		}
	}
	if n > 0 {
		c.Message = fmt.Sprintf("The leases of %s protect no more: %s", sample.Count(n, "target"), c.Message)
	} else if told := meta.FindStatusCondition(pc.Status.Conditions, c.Type); told != nil && unseen {
		c.Reason, c.Message = told.Reason, told.Message
	}
	return c
}

// listingRemedy says what to do about leases that can't be listed.
func listingRemedy(c *probe.Config, class probe.Class) string {
	switch class {
	case probe.Forbidden, probe.Unauthorized:
		return fmt.Sprintf("Let the user of the kubeconfig in Secret %s list nodes, and leases in the namespace %s.", c.ExternalSecret, corev1.NamespaceNodeLease)
	case probe.Timeout:
		return "Make probeTimeout longer: a list has as much time as a probe."
	default:
		return "Look at the API server, or leave out nodeLeases."
	}
}

func limitReached(st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLimitReached}
	n := 0
	for i := range st.sights {
		if held := st.sights[i].Held; held.Reason == probe.HeldByLimit {
			n++
			c.Reason, c.Message = v1alpha1.ReasonTooManyScaledDown, held.Message
		}
	}
	if n > 0 {
		c.Message = fmt.Sprintf("%d held back: %s.", n, c.Message)
	}
	return c
}

func breakerOpen(pc *v1alpha1.ProbeConfig, st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionBreakerOpen}
	if !st.broken {
		return c
	}
	c.Reason = v1alpha1.ReasonProbeSuspect
	holds := "Nothing new is scaled down for any ProbeConfig"
	if st.witnessed {
		holds += ", but of targets that witnesses vouch for"
	}
	c.Message = fmt.Sprintf("Too many targets turned unhealthy together at %s. %s. It closes by itself once for a minute at most half as many are unhealthy or unknown as would open it. %s %s=%s --overwrite",
		st.breaker.OpenedAt.UTC().Format("2006-01-02T15:04:05Z"), holds, st.resetBy(pc), v1alpha1.AnnotationResetBreaker, st.breaker.ID)
	return c
}

// resetBy is who resets the breaker, and how. Whoever reads it of a config elsewhere may not be allowed to: it concerns others.
func (st *state) resetBy(pc *v1alpha1.ProbeConfig) string {
	if pc.Namespace == st.ownNamespace {
		return fmt.Sprintf("Look whether the cause is on this side; then, to let them act: kubectl annotate probeconfig -n %s %s", pc.Namespace, pc.Name)
	}
	return fmt.Sprintf("It is reset by who runs Autohealer, since it is one for all: kubectl annotate namespace %s", st.ownNamespace)
}

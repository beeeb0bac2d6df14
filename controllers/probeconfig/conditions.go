package probeconfig

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

func internalHealthy(pc *v1alpha1.ProbeConfig, st configState) metav1.Condition {
	return probeCondition(pc, st, v1alpha1.ConditionInternalHealthy, "internal", (*targetView).internalSide)
}

func externalHealthy(pc *v1alpha1.ProbeConfig, st configState) metav1.Condition {
	c := probeCondition(pc, st, v1alpha1.ConditionExternalHealthy, "external", (*targetView).externalSide)
	s := st.single()
	if s != nil && c.Status == metav1.ConditionFalse && s.untried() {
		c.Reason, c.Message = v1alpha1.ReasonKubeconfigUntried, s.untriedMessage()
	}
	if s != nil && c.Status == metav1.ConditionFalse && s.externalUnhealthy() && !s.State.External.Unhealthy(s.Config.Thresholds) {
		j := s.State.LastLeases
		c.Reason, c.Message = v1alpha1.ReasonLeasesExpired, "Too many nodes don't renew their leases."
		if j.Outcome.Class == probe.LeasesExpired { // else the latest run counted nothing
			c.Message = fmt.Sprintf("%d of %d nodes don't renew their leases.", j.Expired, j.Candidates)
		}
	}
	if s != nil && c.Reason == v1alpha1.ReasonBelowThreshold && s.State.LeasesHoldRestore(s.Config) {
		c.Message = "The external probe succeeds, and the nodes' leases can't be listed; see LeasesUnreadable."
	}
	return c
}

// probeCondition is the condition of one probe: of the only target, or of all of them.
func probeCondition(pc *v1alpha1.ProbeConfig, st configState, kind, name string, of func(*targetView) probeSide) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonBelowThreshold, Message: "The " + name + " probe has reached neither failureThreshold nor successThreshold."}
	s := st.single()
	if s == nil {
		return targetsCondition(pc, st, c, name, of)
	}
	a := of(s)
	switch {
	case s.hibernated:
		c.Reason, c.Message = v1alpha1.ReasonHibernated, "The namespace is hibernated, and nothing is probed."
	case s.Credentials.Unusable.Class != "":
		c.Reason, c.Message = v1alpha1.ReasonSecretUnusable, sentence(s.Credentials.Unusable)
	case !a.undetermined.IsZero():
		c.Reason, c.Message = v1alpha1.ReasonUndetermined, undeterminedMessage(s, a)
	case a.unhealthy:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonProbeFails, fmt.Sprintf("The %s probe failed %d times in a row: %s.", name, s.Config.Thresholds.Failure, a.failure)
	case a.healthy:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonProbeSucceeds, "The "+name+" probe succeeds."
	case !a.counts.InconclusiveSince.IsZero(): // the latest run counted nothing
		c.Message += fmt.Sprintf(" The latest result doesn't count: %s.", a.counts.LastError)
	}
	return c
}

// undeterminedMessage reports a probe that has had no clear answer for long.
func undeterminedMessage(s *targetView, a probeSide) string {
	at := a.undetermined.UTC().Format("2006-01-02T15:04:05Z")
	if a.name == "external" && !s.internalSide().undetermined.IsZero() {
		return "The external probe hasn't run since " + at + ": the internal probe gets no clear answer, and nothing is scaled."
	}
	return fmt.Sprintf("The %s probe has had no clear answer since %s, and nothing is scaled: %s. Look at the kubeconfig's credentials, and at the API server.", a.name, at, a.counts.LastError)
}

// targetsCondition is True once the probe of each target that is probed has succeeded, and stays so while some of them have single failures.
func targetsCondition(pc *v1alpha1.ProbeConfig, st configState, c metav1.Condition, name string, of func(*targetView) probeSide) metav1.Condition {
	n := countSides(st.targets, of)
	switch {
	case n.unhealthy > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonProbeFails, fmt.Sprintf("The %s probe of some targets fails; see worstTargets.", name)
	case n.undetermined > 0:
		c.Reason, c.Message = v1alpha1.ReasonUndetermined, fmt.Sprintf("The %s probe of %s gets no clear answer, and nothing is scaled there; see worstTargets.", name, sample.Count(n.undetermined, "target"))
	case n.untried > 0 || n.pending > 0 && !meta.IsStatusConditionTrue(pc.Status.Conditions, c.Type):
		c.Message = fmt.Sprintf("The %s probe of %s hasn't succeeded yet.", name, sample.Count(n.untried+n.pending, "target"))
	case n.healthy > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonProbeSucceeds, "No target's "+name+" probe fails."
	}
	return c
}

// sideCounts are targets by how their probe is: untried ones may have an external kubeconfig that never worked, and pending ones had a
// failure since they were healthy, or no result yet.
type sideCounts struct{ healthy, unhealthy, undetermined, untried, pending int }

func countSides(targets []*targetView, of func(*targetView) probeSide) (n sideCounts) {
	for _, s := range targets {
		probed := s.Credentials.Usable() && !s.hibernated
		switch a := of(s); {
		case probed && !a.undetermined.IsZero():
			n.undetermined++
		case a.unhealthy:
			n.unhealthy++
		case a.healthy:
			n.healthy++
		case probed && !s.KubeconfigProven():
			n.untried++
		case probed:
			n.pending++
		}
	}
	return n
}

func protectionActive(after v1alpha1.ProbeConfigStatus, targets []*targetView) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionProtectionActive, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNothingScaledDown, Message: "Nothing is scaled down."}
	if len(after.Scaled) > 0 {
		var names []string
		for _, s := range after.Scaled {
			names = append(names, fmt.Sprintf("%s %s/%s", s.Ref.Kind, s.Namespace, s.Ref.Name))
		}
		if len(names) == sample.Size {
			names = append(names, "…")
		}
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonScaledDown, "Scaled down: "+strings.Join(names, ", ")+"."
	}
	byOthers := func(f probe.Finding) bool { return f.Reason == probe.ScaledByOthers }
	for _, s := range targets {
		if i := slices.IndexFunc(s.Findings, byOthers); i >= 0 {
			f := s.Findings[i]
			c.Reason, c.Message = v1alpha1.ReasonScaledByOthers, fmt.Sprintf("%s Not protected: %s %s/%s: %s.", c.Message, f.Kind, s.Namespace, f.Name, f.Message)
			break
		}
	}
	return c
}

func leasesUnreadable(st configState) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLeasesUnreadable}
	n, s := first(st.targets, func(s *targetView) bool { return s.State.LeasesUnreadable(s.Config) })
	if n == 0 {
		return c
	}
	why, decides := s.State.LastListError, "There the external probe decides alone."
	if s.State.LeasesHoldRestore(s.Config) {
		decides = fmt.Sprintf("There what is scaled down stays so until %s, and then the external probe decides alone.", s.State.LeasesCountUntil.UTC().Format("2006-01-02T15:04:05Z"))
	}
	c.Reason = string(why.Class)
	c.Message = fmt.Sprintf("The nodes' leases of %s can't be listed, in %s: %s: %s. %s %s",
		sample.Count(n, "target"), s.Namespace, why.Class, why.Detail, decides, listRemedy(s.Config, why.Class))
	return c
}

// leaseProtectionExpired reports nodes that aren't waited for any more. Somebody must look: nothing holds back who replaces them, and yet
// they are there. What was reported stays until all targets were probed: a process that begins knows nothing.
func leaseProtectionExpired(pc *v1alpha1.ProbeConfig, st configState) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLeaseProtectionExpired}
	n, s := first(st.targets, func(s *targetView) bool { return s.State.LeaseProtectionExpired(s.Config) })
	if n > 0 {
		j := s.State.LastLeases
		c.Reason = v1alpha1.ReasonMaxProtectionDurationExceeded
		c.Message = fmt.Sprintf("Node leases no longer protect %s: in %s %d of %d nodes haven't renewed theirs for more than %s. These nodes no longer cause a scale-down, and what was scaled down is scaled up again. "+
			"If the nodes are dead, replace or delete them; if they are cut off, repair their network path, or make nodeLeases.maxProtectionDuration longer.",
			sample.Count(n, "target"), s.Namespace, j.TooOld, j.Candidates+j.TooOld, s.Config.Leases.MaxProtection)
		return c
	}
	unseen, _ := first(st.targets, func(s *targetView) bool {
		return s.Config.Leases != nil && s.State.At.IsZero() && !s.hibernated && s.Credentials.Unusable.Class == ""
	})
	if reported := meta.FindStatusCondition(pc.Status.Conditions, c.Type); reported != nil && unseen > 0 {
		c.Reason, c.Message = reported.Reason, reported.Message
	}
	return c
}

// listRemedy says what to do about leases that can't be listed.
func listRemedy(c *probe.Config, class probe.Class) string {
	switch class {
	case probe.Forbidden, probe.Unauthorized:
		return fmt.Sprintf("Let the user of the kubeconfig in Secret %s list nodes, and leases in the namespace %s.", c.ExternalSecret, corev1.NamespaceNodeLease)
	case probe.Timeout:
		return "Make probeTimeout longer: a list has as much time as a probe."
	default:
		return "Look at the API server, or leave out nodeLeases."
	}
}

func limitReached(st configState) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLimitReached}
	if n, s := first(st.targets, func(s *targetView) bool { return s.Permit.Reason == probe.HeldByLimit }); n > 0 {
		c.Reason, c.Message = v1alpha1.ReasonTooManyScaledDown, fmt.Sprintf("%s held back: %s.", sample.Count(n, "target"), s.Permit.Message)
	}
	return c
}

func breakerOpen(pc *v1alpha1.ProbeConfig, st configState) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionBreakerOpen}
	if !st.breakerOpen {
		return c
	}
	c.Reason = v1alpha1.ReasonTooManyFailTogether
	holds := "Nothing new is scaled down for any ProbeConfig"
	if st.hasWitnesses {
		holds += ", but of targets that witnesses vouch for"
	}
	c.Message = fmt.Sprintf("Too many targets turned unhealthy together at %s. %s. The breaker closes by itself once at most half as many targets as would open it have been unhealthy or unknown for a minute. %s %s=%s --overwrite",
		st.breaker.OpenedAt.UTC().Format("2006-01-02T15:04:05Z"), holds, st.resetCommand(pc), v1alpha1.AnnotationResetBreaker, st.breaker.ID)
	return c
}

// resetCommand is who resets the breaker, and how. Whoever reads it of a config elsewhere may not be allowed to: it concerns others.
func (st *configState) resetCommand(pc *v1alpha1.ProbeConfig) string {
	if pc.Namespace == st.ownNamespace {
		return fmt.Sprintf("Look whether the cause is on this side; then, to let ProbeConfigs act: kubectl annotate probeconfig -n %s %s", pc.Namespace, pc.Name)
	}
	return fmt.Sprintf("The breaker is one for all ProbeConfigs, and only who runs Autohealer can reset it: kubectl annotate namespace %s", st.ownNamespace)
}

package probeconfig

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

func internalHealthy(st state) metav1.Condition {
	return side(st, v1alpha1.ConditionInternalHealthy, "internal", (*sight).internalUnhealthy, func(s *sight) (bool, probe.Class) {
		return s.state.Internal.Healthy(s.config.Thresholds), s.state.Internal.LastError
	})
}

func externalHealthy(st state) metav1.Condition {
	c := side(st, v1alpha1.ConditionExternalHealthy, "external", (*sight).externalUnhealthy, func(s *sight) (bool, probe.Class) {
		return s.state.OuterHealthy(s.config), s.lastOuterError()
	})
	if s := st.single(); s != nil && s.externalUnhealthy() && !s.state.External.Unhealthy(s.config.Thresholds) {
		j := s.state.LastLeases
		c.Reason, c.Message = v1alpha1.ReasonLeasesExpired, fmt.Sprintf("%d of %d nodes don't renew their leases.", j.Expired, j.Candidates)
	}
	return c
}

// side is the condition of one probe: of the only target, or of all of them.
func side(st state, kind, name string, unhealthy func(*sight) bool, healthy func(*sight) (bool, probe.Class)) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonBelowThreshold, Message: "Neither threshold of the " + name + " probe is reached."}
	s := st.single()
	switch {
	case s == nil:
		return fleetSide(st, c, name, unhealthy, healthy)
	case s.hibernated:
		c.Reason, c.Message = v1alpha1.ReasonHibernated, "The namespace is hibernated, and nothing is probed."
	case s.unusable.Class != "":
		c.Reason, c.Message = v1alpha1.ReasonSecretUnusable, sentence(s.unusable)
	case unhealthy(s):
		_, class := healthy(s)
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonProbeFails, fmt.Sprintf("The %s probe failed %d times in a row: %s.", name, s.config.Thresholds.Failure, class)
	default:
		if ok, _ := healthy(s); ok {
			c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonProbeSucceeds, "The "+name+" probe succeeds."
		}
	}
	return c
}

func fleetSide(st state, c metav1.Condition, name string, unhealthy func(*sight) bool, healthy func(*sight) (bool, probe.Class)) metav1.Condition {
	good, bad := 0, 0
	for i := range st.sights {
		if unhealthy(&st.sights[i]) {
			bad++
		} else if ok, _ := healthy(&st.sights[i]); ok {
			good++
		}
	}
	switch {
	case bad > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonProbeFails, fmt.Sprintf("The %s probe of some targets fails; see worstTargets.", name)
	case good > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonProbeSucceeds, "No target's "+name+" probe fails."
	}
	return c
}

func protectionActive(after v1alpha1.ProbeConfigStatus) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionProtectionActive, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNothingScaledDown, Message: "Nothing is scaled down."}
	if len(after.Scaled) == 0 {
		return c
	}
	var names []string
	for _, s := range after.Scaled {
		names = append(names, fmt.Sprintf("%s %s/%s", s.Ref.Kind, s.Namespace, s.Ref.Name))
	}
	if len(names) == probe.SampleSize {
		names = append(names, "…")
	}
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonScaledDown, "Scaled down: "+strings.Join(names, ", ")+"."
	return c
}

func leasesUnreadable(st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLeasesUnreadable}
	n := 0
	for i := range st.sights {
		s := &st.sights[i]
		if !s.state.LeasesUnreadable(s.config) {
			continue
		}
		if n++; n == 1 {
			why := s.state.LastUnlisted
			c.Reason = string(why.Class)
			c.Message = fmt.Sprintf("in %s: %s: %s. There the external probe decides alone. %s", s.namespace, why.Class, why.Detail, listingRemedy(s.config, why.Class))
		}
	}
	if n > 0 {
		c.Message = fmt.Sprintf("The nodes' leases of %d targets can't be listed, %s", n, c.Message)
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
		if held := st.sights[i].held; held.Reason == probe.HeldByLimit {
			n++
			c.Reason, c.Message = v1alpha1.ReasonTooManyScaledDown, held.Message
		}
	}
	if n > 0 {
		c.Message = fmt.Sprintf("%d targets are held back: %s.", n, c.Message)
	}
	return c
}

func breakerOpen(pc *v1alpha1.ProbeConfig, st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionBreakerOpen}
	if !st.broken {
		return c
	}
	c.Reason = v1alpha1.ReasonProbeSuspect
	c.Message = fmt.Sprintf("Too many targets turned unhealthy together at %s. Nothing new is scaled down for any ProbeConfig. %s %s=%s --overwrite",
		st.breaker.OpenedAt.UTC().Format("2006-01-02T15:04:05Z"), st.resetBy(pc), v1alpha1.AnnotationResetBreaker, st.breaker.ID)
	return c
}

// resetBy is who resets the breaker, and how. Whoever reads it of a config elsewhere may not be allowed to: it concerns others.
func (st *state) resetBy(pc *v1alpha1.ProbeConfig) string {
	if pc.Namespace == st.ownNamespace {
		return fmt.Sprintf("Look whether the cause is on this side; then, to let them act: kubectl annotate probeconfig -n %s %s", pc.Namespace, pc.Name)
	}
	return fmt.Sprintf("It is reset by who runs Autohealer, since it is one for all: kubectl annotate namespace %s", st.ownNamespace)
}

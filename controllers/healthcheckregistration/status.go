package healthcheckregistration

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/policy"
)

// statusInput is everything that a status reports.
type statusInput struct {
	storedRegistration
	summary summary
	// synced: all targets are read. complete: and looked at, so that counts mean something.
	synced, complete bool
	// kindError says why targets can't be read, or take no conditions; nil when nothing does.
	kindError   error
	writeErrors *policy.WriteErrors
	breaker     limit.Opening
	breakerOpen bool
	// unreleased are the targets that a deleted registration's conditions are still on.
	unreleased policy.Remaining
}

// statusOf describes a registration. It is pure: the same state gives the same status, so that nothing is written when nothing
// changed.
func statusOf(hcr *v1alpha1.HealthCheckRegistration, st statusInput) v1alpha1.HealthCheckRegistrationStatus {
	after := *hcr.Status.DeepCopy()
	after.ObservedGeneration = hcr.Generation
	if st.complete {
		s := &st.summary
		after.Targets, after.Healthy, after.Unhealthy, after.Progressing, after.Unknown = s.targets, s.by[health.True], s.by[health.False], s.by[health.Progressing], s.by[health.Unknown]
		after.Worst = s.worst
	}
	after.Breaker = nil
	if st.breakerOpen {
		after.Breaker = &v1alpha1.Breaker{ID: st.breaker.ID, OpenedAt: metav1.NewTime(st.breaker.OpenedAt.Truncate(1e9))}
	}
	commonConditions(hcr, st).Apply(&after.Conditions, hcr.Generation)
	policy.Set(&after.Conditions, hcr.Generation, targetsHealthy(st))
	policy.SetWhileTrue(&after.Conditions, hcr.Generation, breakerOpen(hcr, st))
	return after
}

// commonConditions is what the conditions that every kind has report of this registration.
func commonConditions(hcr *v1alpha1.HealthCheckRegistration, st statusInput) policy.Conditions {
	s := policy.Conditions{
		Acceptance: policy.AcceptanceOf(st.Verdict, st.Read.unreadable),
		Changes:    "conditions of targets", Synced: st.synced, WriteErrors: st.writeErrors, Paused: st.Pause, Deleting: hcr.DeletionTimestamp != nil,
	}
	if message := readyMessage(st); hcr.Spec.Mode == v1alpha1.Observe {
		s.Observes, s.Summary = true, "Mode Observe, no condition is written: "+message
	} else {
		s.Summary = strings.ToUpper(message[:1]) + message[1:]
	}
	if st.kindError != nil {
		s.Stalled = policy.Cause{Reason: v1alpha1.ReasonKindUnusable, Message: st.kindError.Error() + "."}
	}
	if st.unreleased.Targets > 0 {
		s.Undoing = fmt.Sprintf("The registration is deleted once its conditions are off %s, such as %s.", sample.Count(st.unreleased.Targets, "target"), st.unreleased.Sample[0])
	}
	return s
}

// readyMessage tells in numbers how the targets are, and why conditions aren't written: many tools show the message of Ready
// alone.
func readyMessage(st statusInput) string {
	s := &st.summary
	clauses := []string{pendingMessage(st)}
	if st.complete {
		clauses[0] = fmt.Sprintf("%d of %d targets are healthy, %s, %s, %s", s.by[health.True], s.targets, sample.Clause(s.by[health.False], "isn't", "aren't"),
			sample.Clause(s.by[health.Progressing], "progresses", "progress"), sample.Clause(s.by[health.Unknown], "is unknown", "are unknown"))
	}
	if s.unwritten > 0 {
		clauses = append(clauses, fmt.Sprintf("conditions of %s aren't written: %s", sample.Count(s.unwritten, "target"), s.problem))
	}
	if s.contested > 0 {
		clauses = append(clauses, fmt.Sprintf("somebody else, or an admission webhook, keeps changing conditions of %s, and Autohealer corrects them at longer and longer intervals: condition %s; kubectl get -o yaml --show-managed-fields names the writer: stop it, or choose another conditionType",
			sample.Count(s.contested, "target"), s.contest))
	}
	if t := st.writeErrors; t != nil && t.Partial {
		clauses = append(clauses, fmt.Sprintf("%s can't be written, such as %s: %s", sample.Count(t.Targets, "target"), t.Sample, t.Err))
	}
	if st.breakerOpen {
		clauses = append(clauses, "the breaker is open and nothing new turns False, see BreakerOpen")
	}
	return policy.Sentence(clauses...)
}

// pendingMessage has no numbers: a status is written when what it says changes.
func pendingMessage(st statusInput) string {
	if st.Pause.Frozen {
		return "targets aren't checked meanwhile; the counts are those of before"
	}
	return "not all targets are checked yet"
}

func targetsHealthy(st statusInput) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionTargetsHealthy, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonStarting, Message: "Not all targets are checked yet."}
	s := &st.summary
	switch {
	case !st.complete && st.Pause.Frozen:
		c.Reason, c.Message = v1alpha1.ReasonFrozen, "Targets aren't checked while everything is frozen; the counts are those of before."
		return c
	case !st.complete:
		return c
	}
	c.Message = fmt.Sprintf("%d of %d targets are healthy.", s.by[health.True], s.targets)
	switch {
	case s.by[health.True] == s.targets:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonAllHealthy
	case s.by[health.False] > 0:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonSomeUnhealthy
	default:
		c.Reason = v1alpha1.ReasonSomeUnhealthy
	}
	return c
}

func breakerOpen(hcr *v1alpha1.HealthCheckRegistration, st statusInput) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionBreakerOpen}
	if !st.breakerOpen {
		return c
	}
	c.Reason = v1alpha1.ReasonTooManyTurnFalse
	c.Message = fmt.Sprintf("Too many targets turned False together at %s, so one common cause is likelier: conditions that would turn False are Unknown instead. The breaker closes by itself once none of them is left. Look at what the targets have in common; if they really are unhealthy: kubectl annotate healthcheckregistration %s %s=%s --overwrite",
		st.breaker.OpenedAt.UTC().Format("2006-01-02T15:04:05Z"), hcr.Name, v1alpha1.AnnotationResetBreaker, st.breaker.ID)
	return c
}

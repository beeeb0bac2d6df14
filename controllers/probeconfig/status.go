package probeconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/policy"
)

// configState is everything that a status reports.
type configState struct {
	storedConfig
	// targets are the targets, by namespace.
	targets []*targetView
	// synced: caches are full, so that counts mean something.
	synced      bool
	writeError  *policy.WriteErrors
	breaker     limit.Opening
	breakerOpen bool
	// hasWitnesses: there are witnesses.
	hasWitnesses bool
	// ownNamespace is Autohealer's.
	ownNamespace string
	// recordsKnown: nothing is scaled down that the config doesn't name.
	recordsKnown bool
	// restoring are the namespaces that a deletion waits for.
	restoring []string
}

// single is the target of a config without a namespaceSelector.
func (st *configState) single() *targetView {
	c := st.Read.config
	if c == nil || c.Namespaces != nil {
		return nil
	}
	_, only := first(st.targets, func(s *targetView) bool { return s.Namespace == c.Namespace })
	return only
}

// statusOf describes a config. It is pure: the same state gives the same status, so that nothing is written when nothing
// changed.
func statusOf(pc *v1alpha1.ProbeConfig, st configState) v1alpha1.ProbeConfigStatus {
	after := *pc.Status.DeepCopy()
	after.ObservedGeneration = pc.Generation
	after.DependentKinds = dependentKinds(pc, !st.recordsKnown)
	if st.synced && st.Read.config != nil {
		updateCounts(&after, pc, st)
	}
	after.BreakerID = ""
	if st.breakerOpen {
		after.BreakerID = st.breaker.ID
	}
	commonConditions(pc, st).Apply(&after.Conditions, pc.Generation)
	for _, c := range []metav1.Condition{internalHealthy(pc, st), externalHealthy(pc, st), protectionActive(after, st.targets)} {
		policy.Set(&after.Conditions, pc.Generation, c)
	}
	policy.SetWhileTrue(&after.Conditions, pc.Generation, leasesUnreadable(st))
	policy.SetWhileTrue(&after.Conditions, pc.Generation, leaseProtectionExpired(pc, st))
	policy.SetWhileTrue(&after.Conditions, pc.Generation, limitReached(st))
	policy.SetWhileTrue(&after.Conditions, pc.Generation, breakerOpen(pc, st))
	return after
}

// updateCounts takes in what is known of the targets.
func updateCounts(to *v1alpha1.ProbeConfigStatus, pc *v1alpha1.ProbeConfig, st configState) {
	to.Internal, to.External, to.NodeLeases, to.WorstTargets = nil, nil, nil, nil
	if s := st.single(); s != nil {
		to.Internal, to.External = probeState(s.State.Internal), probeState(s.State.External)
		if j := s.State.LastLeases; s.Config.Leases != nil {
			to.NodeLeases = &v1alpha1.NodeLeasesState{Candidates: int32(j.Candidates), Expired: int32(j.Expired), Skewed: int32(j.Skewed), LeftOut: int32(j.Faulty + j.TooOld)}
		}
	} else {
		to.WorstTargets = worstTargets(st.targets)
	}
	n := counts(st.targets)
	to.Targets = &n
	to.Scaled = scaledDependents(pc.Status.Scaled, st.targets)
	to.ProvenKubeconfigs = provenKubeconfigs(pc.Status, st.targets)
}

// provenKubeconfigs are the kubeconfigs that work. Of a target whose Secrets weren't read yet it is what was reported.
func provenKubeconfigs(before v1alpha1.ProbeConfigStatus, targets []*targetView) (all []v1alpha1.ProvenKubeconfig) {
	for _, s := range targets {
		p := v1alpha1.ProvenKubeconfig{Namespace: s.Namespace, Mark: s.ProvenMark}
		if s.ProvenMark == "" && s.Credentials.Config == nil {
			p = provenKubeconfig(before, s.Namespace)
		}
		if p.Mark != "" && len(all) < probe.MaxProvenKubeconfigs {
			all = append(all, p)
		}
	}
	return all
}

func probeState(c probe.Counts) *v1alpha1.ProbeState {
	s := &v1alpha1.ProbeState{SuccessCount: int32(c.Successes), ErrorCount: int32(c.Errors), LastError: string(c.LastError)}
	if !c.LastErrorAt.IsZero() {
		at := seconds(c.LastErrorAt)
		s.LastErrorTime = &at
	}
	return s
}

// seconds is a time as the API stores it: one that has more would differ from what is stored at each look.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

func counts(targets []*targetView) v1alpha1.TargetCounts {
	count := func(is func(*targetView) bool) int32 {
		n, _ := first(targets, is)
		return int32(n)
	}
	return v1alpha1.TargetCounts{
		Total:             int32(len(targets)),
		Probed:            count(func(s *targetView) bool { return s.Credentials.Usable() }),
		InternalUnhealthy: count((*targetView).internalUnhealthy),
		ExternalUnhealthy: count((*targetView).externalUnhealthy),
		ScaledDown:        count(func(s *targetView) bool { return len(s.scaledDown()) > 0 }),
		Unusable:          count(func(s *targetView) bool { return s.Credentials.Unusable.Class != "" || s.untried() }),
		Undetermined:      count((*targetView).undetermined),
		Vouched:           count(func(s *targetView) bool { return s.State.Vouched }),
	}
}

// scaledDependents are the objects that are scaled down. What isn't read yet stays as it was reported: a process that takes over finds in
// it what a config no longer names.
func scaledDependents(before []v1alpha1.ScaledDependent, targets []*targetView) []v1alpha1.ScaledDependent {
	var all []v1alpha1.ScaledDependent
	for _, s := range targets {
		for _, b := range before {
			if b.Namespace == s.Namespace && s.recordUnknown(b.Ref) {
				all = append(all, b)
			}
		}
		all = append(all, s.scaledDown()...)
	}
	slices.SortFunc(all, func(a, b v1alpha1.ScaledDependent) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Ref.Kind, b.Ref.Kind), strings.Compare(a.Ref.Name, b.Ref.Name))
	})
	return all[:min(len(all), sample.Size)]
}

// commonConditions is what the conditions that every kind has report of this config.
func commonConditions(pc *v1alpha1.ProbeConfig, st configState) policy.Conditions {
	s := policy.Conditions{
		Acceptance: policy.AcceptanceOf(st.Verdict, st.Read.unreadable),
		Changes:    "dependents", Synced: st.synced, WriteErrors: st.writeError, Paused: st.Pause, Deleting: pc.DeletionTimestamp != nil, Summary: summary(st),
	}
	if pc.Spec.Mode == v1alpha1.Observe {
		s.Observes, s.Summary = true, "Mode Observe, nothing is scaled: "+summary(st)
	}
	if t := st.single(); t != nil && t.Credentials.Unusable.Class != "" {
		s.Stalled = policy.Cause{Reason: v1alpha1.ReasonSecretUnusable, Message: sentence(t.Credentials.Unusable)}
	} else if t != nil && t.untried() {
		s.Stalled = policy.Cause{Reason: v1alpha1.ReasonKubeconfigUntried, Message: t.untriedMessage()}
	}
	if len(st.restoring) > 0 {
		names := st.restoring[:min(len(st.restoring), sample.Size)]
		s.Undoing = fmt.Sprintf("The ProbeConfig is deleted once what it scaled down is scaled up again in %s: %s.", sample.Count(len(st.restoring), "namespace"), strings.Join(names, ", "))
		if obstacles := findings(st.targets); len(obstacles) > 0 {
			s.Undoing += " In the way: " + obstacles[0] + "."
		}
	}
	return s
}

func sentence(o probe.Outcome) string { return string(o.Class) + ": " + o.Detail + "." }

// summary tells in numbers what the config does, and why it does less than it asks: many tools show the message of Ready
// alone.
func summary(st configState) string {
	n := counts(st.targets)
	sentences := []string{fmt.Sprintf("%d of %d targets are probed, %s the external probe, %s", n.Probed, n.Total,
		sample.Clause(n.ExternalUnhealthy, "fails", "fail"), sample.Clause(n.ScaledDown, "is scaled down", "are scaled down"))}
	if n.Vouched > 0 {
		sentences = append(sentences, fmt.Sprintf("witnesses vouch for %d of those that fail", n.Vouched))
	}
	if n.Undetermined > 0 {
		sentences = append(sentences, sample.Clause(n.Undetermined, "has had no clear answer for long, and isn't protected", "have had no clear answer for long, and aren't protected"))
	}
	sentences = append(sentences, findings(st.targets)...)
	sentences = append(sentences, waitingTargets(st.targets)...)
	if t := st.writeError; t != nil && t.Partial {
		sentences = append(sentences, fmt.Sprintf("%s can't be written, such as %s: %s", sample.Count(t.Targets, "target"), t.Sample, t.Err))
	}
	if limitReached(st).Reason != "" {
		sentences = append(sentences, "a limit holds targets back, see LimitReached")
	}
	if st.breakerOpen {
		sentences = append(sentences, "the breaker is open, see BreakerOpen")
	}
	return policy.Sentence(sentences...)
}

// waitingTargets counts the targets that wait for a kubeconfig that works, or for a turn.
func waitingTargets(targets []*targetView) (sentences []string) {
	if untried, _ := first(targets, (*targetView).untried); untried > 0 {
		sentences = append(sentences, fmt.Sprintf("the external kubeconfig of %s has never worked, and nothing is scaled down there", sample.Count(untried, "target")))
	}
	paced, _ := first(targets, func(s *targetView) bool {
		return s.Permit.Reason == probe.HeldByPace || s.Permit.Reason == probe.HeldByClock
	})
	if paced > 0 {
		sentences = append(sentences, fmt.Sprintf("waiting to be scaled: %s", sample.Count(paced, "target")))
	}
	return sentences
}

// findings reports the dependents that aren't as they should be: how many, and the first.
func findings(targets []*targetView) []string {
	n, first := 0, ""
	for _, s := range targets {
		for _, f := range s.Findings {
			if n++; first == "" {
				first = fmt.Sprintf("%s in %s: %s", f.Ref, s.Namespace, f.Message)
			}
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return []string{first}
	}
	return []string{fmt.Sprintf("%s, and %d more", first, n-1)}
}

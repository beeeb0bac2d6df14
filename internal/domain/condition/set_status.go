package condition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// SetStatus is a set's status for one node, for explanations.
type SetStatus struct {
	Set   *Set
	State lifecycle.State
	// HoldReason says why the set may not add taints; "" when it may.
	HoldReason Reason
	Match      Match
	// Members are the set's conditions as the node has them, in the set's order.
	Members []MemberStatus
	// Claim is what the node's record has of the set, or of a former one of its name, which it takes over; nil when nothing.
	Claim *OwnedTaint
	// TaintPresent: the claim's taint is on the node.
	TaintPresent bool
	// RecoverAfter is how long the node must be clear before that taint goes: longer than the set says where conditions flap.
	RecoverAfter time.Duration
}

// MemberStatus is one condition of a set, as a node has it.
type MemberStatus struct {
	Member
	// Reported: the node has the condition.
	Reported    bool
	Observation Observation
	// Alive: its reporter is known to live.
	Alive bool
	// Phase: Matching, Clear or Doubtful.
	Phase Phase
}

// SetStatuses are those of the sets that select a node or have a claim in its record, the oldest first.
func (f *Fleet) SetStatuses(name string, at timing.Moment) []SetStatus {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := f.nodes[name]
	if n == nil {
		return nil
	}
	var all []SetStatus
	for _, s := range f.sets {
		status := SetStatus{Set: s.Set, State: s.state, HoldReason: s.holdReason(), Match: s.Match(n.Node, at)}
		i := slices.IndexFunc(n.Owned.Taints, func(t OwnedTaint) bool { return t.Set == s.UID || f.takesOver(s, t) })
		if i >= 0 {
			claim := n.Owned.Taints[i]
			status.Claim, status.TaintPresent = &claim, n.hasTaint(claim.Key, n.Owned.Effect(claim.Key))
			status.Match, status.RecoverAfter = s.matchWithClaim(claim, n.Node, at), s.recoverAfter(claim)
		}
		if status.Claim == nil && status.Match.Phase == NotSelected {
			continue
		}
		for _, m := range s.Members {
			r, phase := n.memberPhase(m, s.StaleAfter, at)
			isReported := r.Status != ""
			alive := isReported && n.alive(r, m, s.StaleAfter, at)
			status.Members = append(status.Members, MemberStatus{m, isReported, r, alive, phase})
		}
		all = append(all, status)
	}
	slices.SortFunc(all, func(a, b SetStatus) int {
		return cmp.Or(a.Set.Created.Compare(b.Set.Created), cmp.Compare(a.Set.Name, b.Set.Name))
	})
	return all
}

// takesOver says whether a claim is of a deleted set, and this set was recreated under its name: where the taint is known to be ours,
// this set decides what happens to it.
func (f *Fleet) takesOver(s *setState, claim OwnedTaint) bool {
	return f.sets[claim.Set] == nil && claim.Name == s.Name && f.declared[claim.Key]
}

// QueueOrder are all nodes in the order in which limits let them through: those whose match expired first come first, and those
// that no set matches last.
func (f *Fleet) QueueOrder(at timing.Moment) []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	waits := map[string]time.Time{}
	for _, s := range f.sets {
		for _, n := range f.index.nodes(f.matching(s)) {
			if m := s.Match(n.Node, at); m.Phase == Matching {
				waits[n.Name] = timing.Earlier(waits[n.Name], m.ForElapsedAt)
			}
		}
	}
	names := make([]string, 0, len(f.nodes))
	for name := range f.nodes {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, waitsA := waits[a]
		y, waitsB := waits[b]
		switch {
		case waitsA && !waitsB:
			return -1
		case waitsB && !waitsA:
			return 1
		}
		return cmp.Or(x.Compare(y), cmp.Compare(a, b))
	})
	return names
}

// BrokenRecord is a node whose ownership record can't be read: nobody knows what was done to it, so that nothing is done and nothing
// undone there, and its taints that may be ours count under the limits.
type BrokenRecord struct {
	Node string
	// Taints are those that may be ours, as key:effect.
	Taints []string
}

// RepairSteps says how people end it. The taints come first: once the record is gone they are somebody else's.
func (b BrokenRecord) RepairSteps() string {
	annotate := fmt.Sprintf("kubectl annotate node %s %s-", b.Node, v1alpha1.AnnotationOwnedTaints)
	if len(b.Taints) == 0 {
		return "repair the annotation, or remove it: " + annotate
	}
	return fmt.Sprintf("repair the annotation; or remove the taints, those of them that ConditionSets set, and then the annotation: kubectl taint node %s %s-; %s",
		b.Node, strings.Join(b.Taints, "- "), annotate)
}

// possiblyOurs are the node's taints that may be ours, though its record can't be read: those of keys that a set declared.
func (n *nodeState) possiblyOurs(declared func(key string) bool) (taints []corev1.Taint) {
	for _, t := range n.Taints {
		if declared(t.Key) && !ecosystem.NeverOurs(t.Key) {
			taints = append(taints, t)
		}
	}
	return taints
}

func (f *Fleet) broken(n *nodeState) BrokenRecord {
	b := BrokenRecord{Node: n.Name}
	for _, t := range n.possiblyOurs(f.isDeclared) {
		b.Taints = append(b.Taints, t.Key+":"+string(t.Effect))
	}
	return b
}

// BrokenRecord describes a node's unreadable record; ok is false when the record can be read.
func (f *Fleet) BrokenRecord(node string) (b BrokenRecord, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := f.nodes[node]
	if n == nil || !n.RecordBroken {
		return BrokenRecord{}, false
	}
	return f.broken(n), true
}

// BrokenRecords are all of them, by node.
func (f *Fleet) BrokenRecords() (all []BrokenRecord) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, n := range f.index.nodes(f.index.with(traitUnreadable)) {
		all = append(all, f.broken(n))
	}
	slices.SortFunc(all, func(a, b BrokenRecord) int { return strings.Compare(a.Node, b.Node) })
	return all
}

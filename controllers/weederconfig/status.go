package weederconfig

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/policy"
)

// steps keep configs' statuses. The acting is the PodReconciler's, and a deleted pod needs no undoing.
func (o *Observer) steps() policy.Steps[*v1alpha1.WeederConfig] {
	return policy.Steps[*v1alpha1.WeederConfig]{
		New: func() *v1alpha1.WeederConfig { return &v1alpha1.WeederConfig{} }, Describe: o.describe, Gone: forgetStates,
	}
}

// describe gathers what the status tells, once this generation is judged and the rules are known by which it was.
func (o *Observer) describe(_ context.Context, wc *v1alpha1.WeederConfig, _ policy.Left) (is policy.Description[*v1alpha1.WeederConfig], err error) {
	unknown := policy.Description[*v1alpha1.WeederConfig]{Skip: true}
	config, ok := o.policies.Current(wc)
	if !ok || config.Object.ResourceVersion != wc.ResourceVersion { // the planner knows another status
		return unknown, nil
	}
	st := state{storedConfig: config, synced: o.weeder().Synced(), trouble: o.policies.Troubles.Get(wc.UID)}
	if st.summary, ok = o.weeder().Summary(wc.UID, o.moment()); !ok && config.Read.unreadable == nil {
		return unknown, nil
	}
	is.After = wc.DeepCopy()
	is.After.Status = statusOf(wc, st)
	gaugeStates(client.ObjectKeyFromObject(wc), st.summary, meta.IsStatusConditionTrue(is.After.Status.Conditions, v1alpha1.ConditionLimitReached))
	return is, nil
}

// state is everything that a status tells.
type state struct {
	storedConfig
	summary weeder.Summary
	// synced: caches are full, so that counts mean something.
	synced  bool
	trouble *policy.Trouble
}

// statusOf describes a config. It is pure: the same state gives the same status, so that nothing is written when nothing
// changed.
func statusOf(wc *v1alpha1.WeederConfig, st state) v1alpha1.WeederConfigStatus {
	after := *wc.Status.DeepCopy()
	after.ObservedGeneration = wc.Generation
	if st.synced && st.Read.unreadable == nil {
		after.Services = int32(st.summary.Services)
		recount(&after, st.summary)
	}
	shared(wc, st).Put(&after.Conditions, wc.Generation)
	policy.SetWhileTrue(&after.Conditions, wc.Generation, limitReached(st))
	return after
}

// recount takes in what the planner counted.
func recount(to *v1alpha1.WeederConfigStatus, sum weeder.Summary) {
	to.ActiveWindows, to.Deleted = int32(sum.Active), sum.Deleted
	to.Windows, to.RecentDeletions, to.Skipped = nil, nil, nil
	for _, w := range sum.Windows {
		window := v1alpha1.RecoveryWindow{Recovery: recovery(w), Until: seconds(w.Stored(w.Ends)), Deleted: int32(w.Deleted)}
		if !w.LastDeletion.IsZero() {
			last := seconds(w.Stored(w.LastDeletion))
			window.LastDeletion = &last
		}
		to.Windows = append(to.Windows, window)
	}
	for _, r := range sum.Recent {
		to.RecentDeletions = append(to.RecentDeletions, v1alpha1.PodDeletion{
			Time: seconds(r.Server), Namespace: r.Namespace, Pod: r.Pod, PodUID: string(r.UID), Owner: r.Owner, Service: r.Service, Repeats: int32(len(r.Before)),
		})
	}
	for _, reason := range slices.Sorted(maps.Keys(sum.Skipped)) {
		to.Skipped = append(to.Skipped, v1alpha1.SkippedPods{Reason: string(reason), Count: sum.Skipped[reason]})
	}
	to.Spent = spent(sum.Spent)
	if sum.Last.Service != "" {
		last := recovery(sum.Last)
		to.LastTriggered = &last
	}
}

func spent(s weeder.Spent) *v1alpha1.SpentBudgets {
	if s.LastDeletion.IsZero() {
		return nil
	}
	to := &v1alpha1.SpentBudgets{LastMinute: int32(s.LastMinute), LastDeletion: seconds(s.LastDeletion)}
	if u := s.Unlisted; !u.To.IsZero() {
		to.Unlisted = &v1alpha1.UnlistedDeletions{From: seconds(u.From), To: seconds(u.To), Repeats: int32(u.Repeats)}
	}
	return to
}

func recovery(w weeder.Window) v1alpha1.Recovery {
	return v1alpha1.Recovery{Namespace: w.Namespace, Service: w.Service, Time: seconds(w.Stored(w.Opened))}
}

// seconds is a time as the API stores it: one that has more would differ from what is stored at each look.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// shared is what the conditions that every kind has tell of this config.
func shared(wc *v1alpha1.WeederConfig, st state) policy.Conditions {
	s := policy.Conditions{
		Acceptance: policy.FromVerdict(st.Verdict, st.Read.unreadable),
		Changes:    "pods", Synced: st.synced, Trouble: st.trouble, Paused: st.Pause, Says: operative(st),
	}
	if wc.Spec.Mode == v1alpha1.Observe {
		s.Observes = true
		s.Says = fmt.Sprintf("Mode Observe: %d of %d Services are there, %d recovered lately; %d pods would be deleted now, and none is.",
			st.summary.Services, st.summary.Named, st.summary.Active, st.summary.Held[weeder.HeldByMode].Pods)
	}
	return s
}

// operative tells in numbers what the config does, and why it does less than it asks: many tools show the message of Ready
// alone.
func operative(st state) string {
	says := []string{fmt.Sprintf("%d of %d Services are there, %d recovered lately, %d pods were deleted so far", st.summary.Services, st.summary.Named, st.summary.Active, st.summary.Deleted)}
	for _, reason := range slices.Sorted(maps.Keys(st.summary.Held)) {
		if ofLimit(reason) || reason == weeder.HeldByPause {
			continue
		}
		held := st.summary.Held[reason]
		says = append(says, fmt.Sprintf("%d held back, %s", held.Pods, held.Message))
	}
	if t := st.trouble; t != nil && t.Partly {
		says = append(says, fmt.Sprintf("%d can't be deleted, %s: %s", t.Targets, t.Sample, t.Err))
	}
	if limitReached(st).Reason != "" {
		says = append(says, "a limit holds pods back, see LimitReached")
	}
	return policy.Sentence(says...)
}

// limitReasons are the holds that are a limit's, with the reason that status gives for them.
var limitReasons = []struct {
	hold   weeder.Reason
	reason string
}{
	{weeder.HeldByLimit, v1alpha1.ReasonTooManyPodDeletions},
	{weeder.HeldByBudget, v1alpha1.ReasonBudgetSpent},
	{weeder.HeldByRepeats, v1alpha1.ReasonBudgetSpent},
}

func ofLimit(hold weeder.Reason) bool {
	for _, l := range limitReasons {
		if l.hold == hold {
			return true
		}
	}
	return false
}

func limitReached(st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLimitReached}
	var says []string
	for _, l := range limitReasons {
		held, ok := st.summary.Held[l.hold]
		if !ok {
			continue
		}
		if c.Reason == "" {
			c.Reason = l.reason
		}
		says = append(says, fmt.Sprintf("%d held back, %s", held.Pods, held.Message))
	}
	if len(says) > 0 {
		c.Message = policy.Sentence(says...)
	}
	return c
}

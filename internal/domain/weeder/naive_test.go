package weeder_test

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// noteRestart lets the first restart end a first run, which a pod may have begun long after it was created.
func (w *world) noteRestart(p *corev1.Pod) {
	c := &p.Status.ContainerStatuses[0]
	if _, known := w.ran[p.UID]; known || c.RestartCount == 0 {
		return
	}
	w.ran[p.UID] = 0
	if rapid.Bool().Draw(w.t, "restarts unseen") {
		return
	}
	age := w.now.Truncate(second).Sub(p.CreationTimestamp.Time)
	pending := min(age, rapid.SampledFrom([]time.Duration{0, 10 * time.Minute}).Draw(w.t, "pending"))
	started, finished := metav1.NewTime(p.CreationTimestamp.Add(pending)), metav1.NewTime(p.CreationTimestamp.Add(age))
	c.RestartCount, c.LastTerminationState = 1, exited(1)
	c.LastTerminationState.Terminated.StartedAt, c.LastTerminationState.Terminated.FinishedAt = started, finished
	w.ran[p.UID] = age - pending
}

// match makes a new pod the heir of its workload's latest deletion without one.
func (w *world) match(p *corev1.Pod) {
	for _, d := range slices.Backward(w.deletions) {
		if p.OwnerReferences != nil && d.owner == p.OwnerReferences[0].Name && p.DeletionTimestamp == nil && !d.replaced {
			d.replaced, w.replaces[p.UID] = true, d
			return
		}
	}
}

// past is how many of the last hour's deletions the pod comes after, and when the latest of them was.
func (w *world) past(p *corev1.Pod) (repeats int, last time.Time) {
	d := w.replaces[p.UID]
	if d == nil || w.ran[p.UID] >= 10*time.Minute {
		return 0, time.Time{}
	}
	last = d.at
	for ; d != nil && w.now.Sub(d.at) < time.Hour; d = d.replaces {
		repeats++
	}
	return repeats, last
}

// forbidden says why the page forbids a config to delete the pod for a Service, "" when it doesn't.
func (w *world) forbidden(p *corev1.Pod, wc *v1alpha1.WeederConfig, service string) string {
	window := w.windows[wc.Name+"/"+service]
	selectors, names := wc.Spec.ServicesAndDependantSelectors[service]
	repeats, last := w.past(p)
	cooldown, _ := wc.Spec.Cooldown.Or(0)
	looping := weeder.ReadPod(p).Loop(true).Container != ""
	switch {
	case !names || window == nil || w.now.Before(window.opened) || !w.now.Before(window.ends):
		return "no open window"
	case !slices.Contains(selectors.PodSelectors[0].MatchExpressions[0].Values, p.Labels["app"]):
		return "not selected"
	case w.may[wc.Name] != lifecycle.Active || wc.Spec.Mode == v1alpha1.Observe:
		return "the config may not act"
	case !looping:
		return "it doesn't crash-loop"
	case p.OwnerReferences == nil || p.Annotations != nil || p.DeletionTimestamp != nil || w.gone[p.UID]:
		return "excluded"
	case p.Name == service+"-0" || p.Name == service+"-1":
		return "the Service's own"
	case window.deleted >= int(*wc.Spec.MaxDeletionsPerWatch):
		return "budget"
	case repeats > int(*wc.Spec.MaxRepeatsPerOwner):
		return "repeats"
	case repeats > 0 && w.now.Sub(last) < cooldown:
		return "cooldown"
	case w.lately() >= w.max:
		return "limit"
	}
	return ""
}

func (w *world) lately() (n int) {
	for _, d := range w.deletions {
		if w.now.Sub(d.at) < time.Minute {
			n++
		}
	}
	return n
}

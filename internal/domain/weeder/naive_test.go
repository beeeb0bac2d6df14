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

// past is the workload's: whether the pod is a replacement, the latest deletion, and how many repeats there were.
func (w *world) past(p *corev1.Pod) (replacement bool, last time.Time, repeats int) {
	for _, d := range w.deletions {
		if d.owner != p.OwnerReferences[0].Name || w.now.Sub(d.at) >= time.Hour {
			continue
		}
		replacement = replacement || w.born[p.UID].After(d.at) && w.ran[p.UID] < 10*time.Minute
		last = d.at
		if d.repeat {
			repeats++
		}
	}
	return replacement, last, repeats
}

// forbidden says why the page forbids a config to delete the pod for a Service, "" when it doesn't.
func (w *world) forbidden(p *corev1.Pod, wc *v1alpha1.WeederConfig, service string) string {
	window := w.windows[wc.Name+"/"+service]
	selectors, names := wc.Spec.ServicesAndDependantSelectors[service]
	replacement, last, repeats := false, time.Time{}, 0
	if p.OwnerReferences != nil {
		replacement, last, repeats = w.past(p)
	}
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
	case replacement && repeats >= int(*wc.Spec.MaxRepeatsPerOwner):
		return "repeats"
	case replacement && w.now.Sub(last) < cooldown:
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

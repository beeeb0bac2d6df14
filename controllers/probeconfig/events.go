package probeconfig

import (
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kube"
)

// Reporter tells of scaling: Events for people, metrics for machines.
type Reporter struct {
	Events events.EventRecorder
	acts   *kube.ActEvents
}

// NewReporter reports to a recorder.
func NewReporter(recorder events.EventRecorder) *Reporter {
	dropped := func(events int) { eventsDropped.Add(float64(events)) }
	return &Reporter{Events: recorder, acts: kube.NewActEvents(recorder, dropped)}
}

// acted tells of an act, on the dependent and on the config.
func (r *Reporter) acted(t *probe.Target, act probe.Act, err error, now time.Time) {
	c := t.Config
	verb, reason, note := telling(c, t.Namespace, act)
	switch {
	case errors.Is(err, actuate.ErrUnfinished): // the replicas are back, which is what is told of
	case errors.Is(err, actuate.ErrStale):
		countScaling(c, verb, "stale")
		return
	case err != nil:
		countScaling(c, verb, "failed")
		return
	}
	countScaling(c, verb, "done")
	if act.Step == probe.Take || act.Step == probe.Lower {
		if since := t.State.UnhealthySince; !since.IsZero() {
			scaleDownDelay.Observe(max(0, now.Sub(since).Seconds()))
		}
	}
	if reason != "" {
		r.acts.Emit(now, dependentRef(t.Namespace, act), configRef(c), reason, verb, note)
	}
}

// putBack tells of objects that others scaled up since the last look, and that stay so while the outage lasts.
func (r *Reporter) putBack(t *probe.Target, before, now []probe.Finding, at time.Time) {
	for _, f := range now {
		same := func(was probe.Finding) bool { return was.Ref == f.Ref && was.Reason == f.Reason }
		if f.Reason != probe.ScaledByOthers || slices.ContainsFunc(before, same) {
			continue
		}
		note := fmt.Sprintf("ProbeConfig %s leaves %s %s/%s up while its nodes are cut off: %s. Have whoever applies it leave its replicas alone.",
			t.Config.Key(), f.Kind, t.Namespace, f.Name, f.Message)
		r.acts.Emit(at, dependentRef(t.Namespace, probe.Act{Ref: f.Ref}), configRef(t.Config), v1alpha1.ReasonScaledByOthers, "Leave", note)
	}
}

// left tells of objects that keep their record while their config goes, or goes elsewhere: nobody else will give them back
// what was taken.
func (r *Reporter) left(t *probe.Target, now time.Time) {
	c := t.Config
	for _, f := range t.Left {
		note := fmt.Sprintf("ProbeConfig %s leaves %s %s/%s as it is: %s. The annotation %s says how many replicas it had.",
			c.Key(), f.Kind, t.Namespace, f.Name, f.Message, v1alpha1.AnnotationOriginalReplicas)
		r.acts.Emit(now, dependentRef(t.Namespace, probe.Act{Ref: f.Ref}), configRef(c), v1alpha1.ReasonNotRestored, "Leave", note)
	}
}

// telling is what is said of an act; no reason for one that nobody needs to hear of.
func telling(c *probe.Config, namespace string, act probe.Act) (verb, reason, note string) {
	object := act.Ref.Kind + " " + namespace + "/" + act.Ref.Name
	switch act.Step {
	case probe.Take, probe.Lower:
		return "ScaleDown", v1alpha1.ReasonScaledDown,
			fmt.Sprintf("ProbeConfig %s scales %s from %d to 0: the API server answers inside, and not the way its nodes go", c.Key(), object, act.Record.Replicas)
	case probe.Raise:
		return "ScaleUp", v1alpha1.ReasonScaledUp, fmt.Sprintf("ProbeConfig %s scales %s back to %d", c.Key(), object, act.Record.Replicas)
	case probe.Release:
		if act.Object.Replicas == 0 {
			return "Forget", v1alpha1.ReasonNotRestored,
				fmt.Sprintf("ProbeConfig %s forgets that %s had %d replicas: the namespace is hibernated, and whoever wakes it says how many it gets", c.Key(), object, act.Record.Replicas)
		}
	}
	return "Forget", "", ""
}

func dependentRef(namespace string, act probe.Act) runtime.Object {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: act.Ref.APIVersion, Kind: act.Ref.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: act.Ref.Name, UID: act.Object.UID},
	}
}

func configRef(c *probe.Config) *v1alpha1.ProbeConfig {
	return &v1alpha1.ProbeConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kindProbeConfig},
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: c.UID},
	}
}

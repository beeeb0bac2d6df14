package weederconfig

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/kube"
)

// Reporter reports recoveries and deletions as Events and metrics.
type Reporter struct {
	Events events.EventRecorder
	acts   *kube.ActEvents
}

// NewReporter reports to a recorder.
func NewReporter(recorder events.EventRecorder) *Reporter {
	dropped := func(events int) { eventsDropped.Add(float64(events)) }
	return &Reporter{Events: recorder, acts: kube.NewActEvents(recorder, dropped)}
}

// reportRecoveries reports windows that opened, on the Service and on the config. Of equal Events only the first one's note is kept,
// so this one has nothing that another recovery would have different.
func (r *Reporter) reportRecoveries(opened []weeder.Opened, now time.Time) {
	for _, w := range opened {
		recoveriesTotal.WithLabelValues(w.Key.Namespace, w.Key.Name).Inc()
		verb := "would delete"
		if w.Acts {
			verb = "deletes"
		}
		note := fmt.Sprintf("Service %s/%s turned Ready; WeederConfig %s %s pods that depend on it and crash-loop within %s of that",
			w.Namespace, w.Service, w.Key, verb, w.Ends.Sub(w.Opened))
		service := ref("v1", "Service", w.Namespace, w.Service, "")
		r.acts.Emit(now, service, configRef(w.Key, w.Config), v1alpha1.ReasonServiceRecovered, "Watch", note)
	}
}

// reportDeletion reports a deletion, on the pod's owner and on the config; each pod has Events of its own.
func (r *Reporter) reportDeletion(plan weeder.Plan, now time.Time) {
	d := plan.Delete
	countAct(d, "done")
	deletionDelay.Observe(max(0, now.Sub(d.Recovered).Seconds()))
	verb := "deletes"
	if d.Evict {
		verb = "evicts"
	}
	note := fmt.Sprintf("WeederConfig %s %s pod %s: Service %s recovered at %s, and %s", d.Key, verb, plan.Pod.Key(), d.Service, clockTime(d.Recovered), d.Loop)
	if len(d.Before) > 0 {
		note += "; it had replaced a pod that was deleted before"
	}
	p, c := plan.Pod, plan.Pod.Controller
	owner := ref(c.APIVersion, c.Kind, p.Namespace, c.Name, c.UID) // the pod itself is gone before anyone reads an Event on it
	r.acts.EmitRelated(now, owner, configRef(d.Key, d.Config), ref("v1", "Pod", p.Namespace, p.Name, p.UID), v1alpha1.ReasonPodDeleted, string(methodOf(d)), note)
}

func methodOf(d *weeder.Deletion) v1alpha1.DeletionMethod {
	if d.Evict {
		return v1alpha1.Evict
	}
	return v1alpha1.Delete
}

func clockTime(t time.Time) string { return t.UTC().Format("15:04:05Z") }

// ref names an object in an Event.
func ref(apiVersion, kind, namespace, name string, uid types.UID) runtime.Object {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid},
	}
}

func configRef(key types.NamespacedName, uid types.UID) runtime.Object {
	return ref(v1alpha1.GroupVersion.String(), kindWeederConfig, key.Namespace, key.Name, uid)
}

package probeconfig

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/metric"
)

// Reporter reports scaling: Events for people, metrics for machines.
type Reporter struct {
	Events events.EventRecorder
	acts   *actuate.Events
}

// NewReporter reports to a recorder.
func NewReporter(recorder events.EventRecorder) *Reporter {
	dropped := func(events int) { eventsDropped.Add(float64(events)) }
	return &Reporter{Events: recorder, acts: actuate.NewEvents(recorder, dropped)}
}

// reportAct reports an act, on the dependent and on the config.
func (r *Reporter) reportAct(t *probe.Target, act probe.Act, err error, now time.Time) {
	c := t.Config
	verb, reason, note := describeAct(c, t.Namespace, act)
	switch {
	case errors.Is(err, actuate.ErrUnfinished): // the replicas are back, which is what is reported
	case errors.Is(err, actuate.ErrStale):
		countScaling(c, verb, "stale")
		return
	case err != nil:
		countScaling(c, verb, "failed")
		return
	}
	countScaling(c, verb, "done")
	if act.Step == probe.StepScaleDown || act.Step == probe.StepScaleDownAgain {
		if since := t.State.UnhealthySince; !since.IsZero() {
			scaleDownDelay.Observe(max(0, now.Sub(since).Seconds()))
		}
	}
	if reason != "" {
		r.acts.Emit(now, dependentRef(t.Namespace, act), configRef(c), reason, verb, note)
	}
}

// reportScaledByOthers reports objects that others scaled up since the last look, and that stay so while the outage lasts.
func (r *Reporter) reportScaledByOthers(t *probe.Target, before, now []probe.Finding, at time.Time) {
	for _, f := range now {
		same := func(was probe.Finding) bool { return was.Ref == f.Ref && was.Reason == f.Reason }
		if f.Reason != probe.ScaledByOthers || slices.ContainsFunc(before, same) {
			continue
		}
		note := fmt.Sprintf("ProbeConfig %s leaves %s %s/%s up while its nodes are cut off: %s. Stop what applies the object from setting its replicas.",
			t.Config.Key(), f.Kind, t.Namespace, f.Name, f.Message)
		r.acts.Emit(at, dependentRef(t.Namespace, probe.Act{Ref: f.Ref}), configRef(t.Config), v1alpha1.ReasonScaledByOthers, "Leave", note)
	}
}

// reportUnrestored reports objects that keep their record while their config goes, or goes elsewhere: nobody else will give them back
// what was taken.
func (r *Reporter) reportUnrestored(t *probe.Target, now time.Time) {
	c := t.Config
	for _, f := range t.Unrestored {
		note := fmt.Sprintf("ProbeConfig %s leaves %s %s/%s as it is: %s. The annotation %s says how many replicas it had.",
			c.Key(), f.Kind, t.Namespace, f.Name, f.Message, v1alpha1.AnnotationOriginalReplicas)
		r.acts.Emit(now, dependentRef(t.Namespace, probe.Act{Ref: f.Ref}), configRef(c), v1alpha1.ReasonNotRestored, "Leave", note)
	}
}

// describeAct is what is said of an act; no reason for one that nobody needs to hear of.
func describeAct(c *probe.Config, namespace string, act probe.Act) (verb, reason, note string) {
	object := act.Ref.Kind + " " + namespace + "/" + act.Ref.Name
	switch act.Step {
	case probe.StepScaleDown, probe.StepScaleDownAgain:
		return "ScaleDown", v1alpha1.ReasonScaledDown,
			fmt.Sprintf("ProbeConfig %s scales %s from %d to 0: the API server answers inside its network, but not from where its nodes are", c.Key(), object, act.Record.Replicas)
	case probe.StepScaleUp:
		return "ScaleUp", v1alpha1.ReasonScaledUp, fmt.Sprintf("ProbeConfig %s scales %s back to %d", c.Key(), object, act.Record.Replicas)
	case probe.StepRemoveRecord:
		if act.Object.Replicas == 0 {
			return "Forget", v1alpha1.ReasonNotRestored,
				fmt.Sprintf("ProbeConfig %s removes its record that %s had %d replicas: the namespace is hibernated, and waking it up sets them", c.Key(), object, act.Record.Replicas)
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

// Labels are bounded: policies by namespace and name, never targets or dependents.
var (
	scalingsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_probeconfig_scalings_total",
		Help: "Scalings of dependents, by ProbeConfig, verb (ScaleDown, ScaleUp, Forget) and result (done, stale, failed).",
	}, []string{"namespace", "policy", "verb", "result"})

	scaleDownDelay = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "autohealer_probeconfig_scale_down_delay_seconds",
		Help:    "Time from the run that made a target unhealthy to the scaling down of a dependent. Levels and delays are part of it.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60, 300},
	})

	targetsGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_probeconfig_targets",
		Help: "Targets of a ProbeConfig, by state (total, probed, internal_unhealthy, external_unhealthy, scaled_down, unusable, undetermined, vouched). One may count more than once.",
	}, []string{"namespace", "policy", "state"})

	limitGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_probeconfig_limit_reached",
		Help: "1 while a limit holds back a ProbeConfig.",
	}, []string{"namespace", "policy"})

	breakerGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_probeconfig_breaker_open",
		Help: "1 while the breaker is open, which is one for all ProbeConfigs: too many targets turned unhealthy together.",
	}, []string{"namespace", "policy"})

	eventsDropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "autohealer_probeconfig_events_dropped_total",
		Help: "Events on single scalings left out because there were too many at once; the audit trail has them.",
	})
)

// registerMetrics adds the metrics to the manager's registry; a second manager in one process shares them.
func registerMetrics() error {
	return metric.Register(scalingsTotal, scaleDownDelay, targetsGauge, limitGauge, breakerGauge, eventsDropped)
}

func countScaling(c *probe.Config, verb, result string) {
	scalingsTotal.WithLabelValues(c.Namespace, c.Name, verb, result).Inc()
}

func gaugeStates(key types.NamespacedName, st v1alpha1.ProbeConfigStatus) {
	metric.AtZero(scalingsTotal, []string{key.Namespace}, []string{key.Name}, []string{"ScaleDown", "ScaleUp", "Forget"}, []string{"done", "stale", "failed"})
	if n := st.Targets; n != nil {
		for state, count := range map[string]int32{
			"total": n.Total, "probed": n.Probed, "internal_unhealthy": n.InternalUnhealthy, "external_unhealthy": n.ExternalUnhealthy,
			"scaled_down": n.ScaledDown, "unusable": n.Unusable, "undetermined": n.Undetermined, "vouched": n.Vouched,
		} {
			targetsGauge.WithLabelValues(key.Namespace, key.Name, state).Set(float64(count))
		}
	}
	for condition, gauge := range map[string]*prometheus.GaugeVec{
		v1alpha1.ConditionLimitReached: limitGauge, v1alpha1.ConditionBreakerOpen: breakerGauge,
	} {
		gauge.WithLabelValues(key.Namespace, key.Name).Set(metric.Bool(meta.IsStatusConditionTrue(st.Conditions, condition)))
	}
}

// forgetStates drops the series of a config that is gone.
func forgetStates(key types.NamespacedName) {
	metric.Forget(prometheus.Labels{"namespace": key.Namespace, "policy": key.Name}, scalingsTotal, targetsGauge, limitGauge, breakerGauge)
}

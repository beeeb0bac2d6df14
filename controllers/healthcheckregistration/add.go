// Package healthcheckregistration checks what the targets of HealthCheckRegistrations depend on, and writes the results as conditions on
// the targets:
//
//	Observer           every replica: registrations, and which targets to evaluate when one changes
//	TargetReconciler   leader: evaluates one target: checks it, plans its conditions, writes them (execute.go)
//	resultStore        what was found on each target, by registration, and each registration's breaker
//	statusKeeper       leader: finalizers and statuses of registrations, from the resultStore
//
// Begin reading at TargetReconciler.Reconcile; registration.TargetInput.Plan decides what is written.
package healthcheckregistration

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/metric"
	"github.com/resourcestack/autohealer/internal/policy"
)

const (
	// Checks of shoots wait for other clusters.
	targetWorkers       = 32
	registrationWorkers = 4
)

// Options are what the controllers for HealthCheckRegistrations need.
type Options struct {
	policy.Options
	// Dial says which addresses the kubeconfigs of shoots may have.
	Dial kubeconfig.Policy
}

// AddToManager adds the observer and both controllers.
func AddToManager(mgr manager.Manager, opts Options) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	observer := NewObserver(mgr.GetCache(), opts)
	watches, err := checking.NewWatches(mgr, observer.targetChanged, opts.Facts.Clock)
	if err != nil {
		return err
	}
	checker, err := checking.NewChecker(mgr, watches, opts.Dial)
	if err != nil {
		return err
	}
	observer.Watches = watches
	report := NewReporter(mgr.GetEventRecorder("autohealer"))
	layouts := checking.NewLayouts(mgr.GetAPIReader(), mgr.GetRESTMapper(), opts.Facts.Clock)
	targets := &TargetReconciler{
		Observer: observer, Layouts: layouts, Errors: &observer.policies.Errors, Report: report,
		Checker: checker,
		Conditions: &actuate.Conditions{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Acts: mgr.GetLogger().WithName(kube.HistoryLogger), Leads: opts.Leads,
			Current: opts.Current(mgr),
		},
	}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	if err := kube.AddController(mgr, "healthcheckregistration-target", targets, targetWorkers, observer.attachTargets); err != nil {
		return err
	}
	registrations := &policy.Keeper[*v1alpha1.HealthCheckRegistration]{Steps: (&statusKeeper{Observer: observer, Live: mgr.GetAPIReader(), Layouts: layouts}).steps(), Clock: opts.Facts.Clock, Urgent: observer.policies.VerdictUnreported, Leads: opts.Leads}
	return registrations.AddToManager(mgr, "healthcheckregistration", registrationWorkers, observer.attachRegistrations)
}

// Labels are bounded: policies by name, never targets.
var (
	actsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_healthcheckregistration_condition_changes_total",
		Help: "Writes of conditions of targets, by HealthCheckRegistration, verb (SetCondition, RemoveCondition) and result (done, stale, failed).",
	}, []string{"policy", "verb", "result"})

	targetsGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_healthcheckregistration_targets",
		Help: "Targets of a HealthCheckRegistration by the worst of their conditions: healthy, unhealthy, progressing, unknown.",
	}, []string{"policy", "state"})

	breakerGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_healthcheckregistration_breaker_open",
		Help: "1 while a HealthCheckRegistration's breaker is open: something is in doubt, and wasn't reset.",
	}, []string{"policy"})

	eventsDropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "autohealer_healthcheckregistration_events_dropped_total",
		Help: "Events on single targets left out because there were too many at once; the audit trail has them.",
	})
)

// registerMetrics adds the metrics to the manager's registry; a second manager in one process shares them.
func registerMetrics() error {
	return metric.Register(actsTotal, targetsGauge, breakerGauge, eventsDropped)
}

// count counts a write once for each registration that decides the condition; one that nothing decides any more counts as unknown.
func count(deciding []activeRegistration, step health.Step, result string) {
	for _, d := range deciding {
		actsTotal.WithLabelValues(d.Registration.Name, verb(step), result).Inc()
	}
	if len(deciding) == 0 {
		actsTotal.WithLabelValues("unknown", verb(step), result).Inc()
	}
}

func gaugeStates(policy string, s v1alpha1.HealthCheckRegistrationStatus) {
	for state, n := range map[string]int32{"healthy": s.Healthy, "unhealthy": s.Unhealthy, "progressing": s.Progressing, "unknown": s.Unknown} {
		targetsGauge.WithLabelValues(policy, state).Set(float64(n))
	}
	metric.AtZero(actsTotal, []string{policy}, []string{"SetCondition", "RemoveCondition"}, []string{"done", "stale", "failed"})
	breakerGauge.WithLabelValues(policy).Set(metric.Bool(s.Breaker != nil))
}

// forgetStates drops the series of a registration that is gone.
func forgetStates(policy string) {
	metric.Forget(prometheus.Labels{"policy": policy}, actsTotal, targetsGauge, breakerGauge)
}

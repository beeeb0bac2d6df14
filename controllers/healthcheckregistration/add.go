package healthcheckregistration

import (
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
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
	observer.Watches, observer.Shoots = watches, checker.Shoots
	report := NewReporter(mgr.GetEventRecorder("autohealer"))
	layouts := &checking.Layouts{Live: mgr.GetAPIReader(), Mapper: mgr.GetRESTMapper(), Clock: opts.Facts.Clock}
	targets := &TargetReconciler{
		Observer: observer, Layouts: layouts, Troubles: &observer.policies.Troubles, Report: report,
		Checker: checker,
		Conditions: &actuate.Conditions{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Acts: mgr.GetLogger().WithName("acts"), Leads: opts.Leads,
			Current: opts.Current(mgr),
		},
	}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	if err := kube.AddController(mgr, "healthcheckregistration-target", targets, targetWorkers, observer.lead); err != nil {
		return err
	}
	registrations := &policy.Keeper[*v1alpha1.HealthCheckRegistration]{Steps: (&keeper{Observer: observer, Live: mgr.GetAPIReader(), Layouts: layouts}).steps(), Clock: opts.Facts.Clock, Urgent: observer.policies.Unseen, Leads: opts.Leads}
	return registrations.AddToManager(mgr, "healthcheckregistration", registrationWorkers, observer.leadRegistrations)
}

package probeconfig

import (
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/probing"
)

const (
	targetWorkers = 16
	configWorkers = 4
	// judges ask the API server what accounts may do, one question after the other.
	judges = 4
)

// Options are what the controllers for ProbeConfigs need.
type Options struct {
	Guard *guard.Guard
	Facts *kube.Facts
	// OwnNamespace is where Autohealer's own pods run; "" when it runs outside the cluster.
	OwnNamespace string
	// Stored confirms just before an act that the rules in force are those that are stored.
	Stored *kube.Stored
	// Rejections learns which rules refuse which configs.
	Rejections *kube.Rejections
	// Leads says whether this replica surely leads, just before each act. Default: it does.
	Leads func() bool
	// Vital says which objects must not be scaled down after all.
	Vital Vital
	// Dial says which addresses probes may dial.
	Dial kubeconfig.Policy
}

// AddToManager adds the observer, the prober and the controllers.
func AddToManager(mgr manager.Manager, opts Options) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	if err := probing.RegisterMetrics(); err != nil {
		return err
	}
	report := NewReporter(mgr.GetEventRecorder("autohealer"))
	observer := NewObserver(mgr.GetCache(), opts)
	prober := (&probing.Prober{Handler: &Runs{Observer: observer}, Policy: opts.Dial}).Init()
	reader := &actuate.ScaleReader{Live: mgr.GetAPIReader(), Client: mgr.GetClient()}
	targets := &TargetReconciler{
		Observer: observer, Prober: prober, Live: mgr.GetAPIReader(), Troubles: &observer.policies.Troubles, Report: report,
		Reader: reader, Vital: opts.Vital,
		Scales: &actuate.Scales{
			Client: mgr.GetClient(), Acts: mgr.GetLogger().WithName("acts"), Leads: opts.Leads,
			Current: &kube.Generations{Reader: mgr.GetAPIReader(), Clock: clock.RealClock{}, Stored: opts.Stored},
		},
	}
	configs := &policy.Keeper[*v1alpha1.ProbeConfig]{
		Steps:  (&keeper{Observer: observer, Report: report, Reader: reader}).steps(),
		Client: mgr.GetClient(), Events: report.Events, Clock: opts.Facts.Clock, Urgent: observer.policies.Unseen, Leads: opts.Leads,
	}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	if err := mgr.Add(prober); err != nil {
		return err
	}
	if err := kube.AddController(mgr, "probeconfig-target", targets, targetWorkers, observer.lead); err != nil {
		return err
	}
	orphans := NewOrphanReconciler(targets)
	if err := kube.AddController(mgr, "probeconfig-orphans", orphans, 1, observer.leadOrphans); err != nil {
		return err
	}
	return kube.AddController(mgr, "probeconfig", configs, configWorkers, observer.leadConfigs)
}

package probeconfig

import (
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/probing"
)

const (
	targetWorkers = 16
	configWorkers = 4
	// ruleWorkers ask the API server what accounts may do, one question after the other.
	ruleWorkers = 4
)

// Options are what the controllers for ProbeConfigs need.
type Options struct {
	policy.Options
	// Protection says which objects must not be scaled down after all.
	Protection Protection
	// Dial says which addresses probes may dial.
	Dial kubeconfig.Policy
	// Witnesses are asked when external probes fail.
	Witnesses *probing.Witnesses
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
	prober := (&probing.Prober{Handler: observer, Policy: opts.Dial, Witnesses: opts.Witnesses}).Init()
	reader := &actuate.ScaleReader{Live: mgr.GetAPIReader(), Client: mgr.GetClient()}
	targets := &TargetReconciler{
		Observer: observer, Prober: prober, Live: mgr.GetAPIReader(), Troubles: &observer.policies.Troubles, Report: report,
		Reader: reader, Protection: opts.Protection,
		Scales: &actuate.Scales{
			Client: mgr.GetClient(), Acts: mgr.GetLogger().WithName(kube.HistoryLogger), Leads: opts.Leads,
			Current: opts.Current(mgr),
		},
	}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	if err := errors.Join(mgr.Add(prober), mgr.Add(opts.Witnesses)); err != nil {
		return err
	}
	if err := kube.AddController(mgr, "probeconfig-target", targets, targetWorkers, observer.attachTargets); err != nil {
		return err
	}
	orphans := NewOrphanReconciler(targets)
	if err := kube.AddController(mgr, "probeconfig-orphans", orphans, 1, observer.attachOrphans); err != nil {
		return err
	}
	configs := &policy.Keeper[*v1alpha1.ProbeConfig]{Steps: (&statusKeeper{Observer: observer, Report: report, Reader: reader}).steps(), Clock: opts.Facts.Clock, Urgent: observer.policies.Unseen, Leads: opts.Leads}
	return configs.AddToManager(mgr, "probeconfig", configWorkers, observer.attachConfigs)
}

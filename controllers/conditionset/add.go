// Package conditionset turns ConditionSets into node taints. The Observer keeps the fleet's state up to date on every
// replica; on the leader the NodeReconciler plans and acts, and a policy.Keeper writes finalizers and status. Begin at
// AddToManager, then NodeReconciler.Reconcile.
package conditionset

import (
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

const (
	nodeWorkers = 16
	setWorkers  = 4
)

// AddToManager adds the observer and both controllers.
func AddToManager(mgr manager.Manager, opts policy.Options) error {
	if err := registerMetrics(opts.Facts.Fleet); err != nil {
		return err
	}
	observer := NewObserver(mgr.GetCache(), opts.Guard, opts.Facts, opts.Rejections)
	report := NewReporter(mgr.GetEventRecorder("autohealer"), observer.isStored)
	nodes := &NodeReconciler{
		Observer: observer, Live: mgr.GetAPIReader(), Errors: &observer.policies.Errors, Report: report, OwnNamespace: opts.OwnNamespace,
		Orphans: &kube.Orphans{
			Live: mgr.GetAPIReader(), Kind: v1alpha1.GroupVersion.WithKind(kindConditionSet), Confirm: opts.Facts.Fleet.ConfirmOrphan,
			Timings: opts.Facts.Timings,
		},
		Evictions: &actuate.Record{Reader: mgr.GetAPIReader(), Writer: mgr.GetClient(), Namespace: opts.OwnNamespace, Name: "autohealer-evictions"},
		Taints: &actuate.Taints{
			Client: mgr.GetClient(), Acts: mgr.GetLogger().WithName(kube.HistoryLogger), Leads: opts.Leads,
			Current: opts.Current(mgr),
		},
	}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	if err := kube.AddController(mgr, "conditionset-node", nodes, nodeWorkers, observer.attachNodes); err != nil {
		return err
	}
	sets := &policy.Keeper[*v1alpha1.ConditionSet]{Steps: observer.steps(), Clock: opts.Facts.Clock, Urgent: observer.policies.VerdictUnreported, Leads: opts.Leads}
	return sets.AddToManager(mgr, "conditionset", setWorkers, observer.attachSets)
}

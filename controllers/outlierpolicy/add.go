// Package outlierpolicy translates OutlierPolicies into Envoy clusters and endpoints and serves them. Every replica translates all
// policies and serves the result by internal/xds; the leader patches Gateways of Envoy Gateway and writes statuses.
//
//	informers ──> staleNamespaces ──> policySnapshot ──> translate ──> actuate.Clusters ──> Envoys
//	                                        │
//	                                        └──> patcher (EnvoyPatchPolicies), keeper (statuses, Events)
//
// A cluster that Envoys were sent is recorded (Record) and served until live reads find its Service or route gone:
//
//	served ──(informers don't have its object)──> missing ──(deletionConfirmer: live NotFound)──> gone ──> removed
//	   ^──────────(object is back)──────────────────┘
//
// Begin to read at Publisher.publish.
package outlierpolicy

import (
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/outliers"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/probing/envoys"
)

const (
	// statusWorkers write statuses.
	statusWorkers = 4
	// admissionWorkers evaluate the rules for policies concurrently.
	admissionWorkers = 4
)

// Options are what the controller for OutlierPolicies needs.
type Options struct {
	policy.Options
	// Informers have Services, EndpointSlices, routes and policies.
	Informers *outliers.Informers
	// Clusters sends clusters to Envoys; nil when no xDS is served.
	Clusters *actuate.Clusters
	// Ejections polls Envoys for ejected hosts; nil when none is polled.
	Ejections *envoys.Poller
}

// AddToManager adds the publisher and the controller of the status.
func AddToManager(mgr manager.Manager, opts Options) error {
	p := NewPublisher(mgr.GetCache(), opts, mgr.GetAPIReader(), clock.RealClock{})
	if err := opts.Informers.OnChange(cache.ResourceEventHandlerFuncs{AddFunc: p.onObject, UpdateFunc: func(_, o any) { p.onObject(o) }, DeleteFunc: p.onObject}); err != nil {
		return err
	}
	if c := opts.Clusters; c != nil {
		c.Current = opts.Current(mgr)
		c.Acts = mgr.GetLogger().WithName(kube.HistoryLogger)
		p.Record = &actuate.ClusterRecord{Reader: mgr.GetAPIReader(), Writer: mgr.GetClient(), Namespace: opts.Informers.OwnNamespace}
		replicas := &actuate.Replicas{
			Reader: mgr.GetAPIReader(), Writer: mgr.GetClient(), Namespace: opts.Informers.OwnNamespace, ID: string(uuid.NewUUID()), Server: c.Server, Clock: p.Clock,
		}
		c.Others = replicas.Known
		if err := mgr.Add(c.Server); err != nil {
			return err
		}
		if err := mgr.Add(replicas); err != nil {
			return err
		}
	}
	if a := opts.Ejections; a != nil {
		if err := a.AddToManager(mgr, p.reporting.fire); err != nil {
			return err
		}
	}
	if err := mgr.Add(p); err != nil {
		return err
	}
	patches := &actuate.EnvoyPatches{
		Reader: mgr.GetCache(), Live: mgr.GetAPIReader(), Writer: mgr.GetClient(), Current: opts.Current(mgr), Leads: opts.Leads, Acts: mgr.GetLogger().WithName("history"),
	}
	if err := mgr.Add(&patcher{Publisher: p, Gateways: opts.Informers, Patches: patches}); err != nil {
		return err
	}
	recorder := mgr.GetEventRecorder("autohealer")
	policies := &policy.Keeper[*v1alpha1.OutlierPolicy]{Steps: (&keeper{Publisher: p, Patches: patches, Events: recorder}).steps(), Clock: p.Clock, Leads: opts.Leads}
	return policies.AddToManager(mgr, "outlierpolicy", statusWorkers, p.attachQueue)
}

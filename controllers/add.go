// Package controllers lists what acts. Each kind has a package of its own.
package controllers

import (
	"fmt"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/controllers/conditionset"
	"github.com/resourcestack/autohealer/controllers/guardrail"
	"github.com/resourcestack/autohealer/controllers/guardrailexception"
	"github.com/resourcestack/autohealer/controllers/healthcheckregistration"
	"github.com/resourcestack/autohealer/controllers/outlierpolicy"
	"github.com/resourcestack/autohealer/controllers/probeconfig"
	"github.com/resourcestack/autohealer/controllers/weederconfig"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/outliers"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/probing"
	"github.com/resourcestack/autohealer/internal/probing/envoys"
	// +kubebuilder:scaffold:imports
)

// Options are what the controllers share.
type Options struct {
	Guard *guard.Guard
	Facts *kube.Facts
	// OwnNamespace is where Autohealer's own pods run; "" when it runs outside the cluster.
	OwnNamespace string
	// Leads says whether this replica surely leads, just before each act. Default: it does.
	Leads func() bool
	// Protection says which dependents of ProbeConfigs must not be scaled down after all.
	Protection probeconfig.Protection
	// Dial says which addresses the probes of ProbeConfigs and the checks of shoots may dial.
	Dial kubeconfig.Policy
	// OutlierInformers knows what OutlierPolicies are about.
	OutlierInformers *outliers.Informers
	// Clusters tells Envoys; nil when nobody is served.
	Clusters *actuate.Clusters
	// Ejections asks whom Envoys have ejected; nil when none is to be asked.
	Ejections *envoys.Poller
}

// AddToManager adds every kind's controllers to a manager.
func AddToManager(mgr manager.Manager, opts Options) error {
	if err := policy.RegisterMetrics(); err != nil {
		return err
	}
	exceptions := &kube.Collection[*v1alpha1.GuardrailException]{Cache: mgr.GetCache(), Kind: &v1alpha1.GuardrailException{}}
	guardrails := &kube.Collection[*v1alpha1.Guardrail]{
		Cache: mgr.GetCache(), Kind: &v1alpha1.Guardrail{},
		After: exceptions, // nothing is judged before, so no policy is refused for want of an exception that there is
	}
	stored := &kube.Stored{Reader: mgr.GetAPIReader(), Clock: clock.RealClock{}, Lost: opts.Guard.GuardrailsUnknown, WatchFailures: opts.Facts.WatchFailures, Kinds: []kube.RuleKind{
		{Kind: v1alpha1.GroupVersion.WithKind("Guardrail"), Definition: "guardrails." + v1alpha1.GroupVersion.Group, All: guardrails},
		{Kind: v1alpha1.GroupVersion.WithKind("GuardrailException"), Definition: "guardrailexceptions." + v1alpha1.GroupVersion.Group, All: exceptions, AdditiveOnly: true},
	}}
	if err := mgr.Add(stored); err != nil {
		return err
	}
	common := policy.Options{
		Guard: opts.Guard, Facts: opts.Facts, OwnNamespace: opts.OwnNamespace, Stored: stored, Rejections: &kube.Rejections{}, Leads: opts.Leads,
	}
	if err := guardrailexception.AddToManager(mgr, opts.Guard, exceptions); err != nil {
		return err
	}
	witnesses := (&probing.Witnesses{Policy: opts.Dial}).Init()
	if err := guardrail.AddToManager(mgr, guardrail.Options{Guard: opts.Guard, Guardrails: guardrails, Rejections: common.Rejections, Witnesses: witnesses}); err != nil {
		return err
	}
	return addPolicies(map[string]func() error{
		"ConditionSet": func() error { return conditionset.AddToManager(mgr, common) },
		"HealthCheckRegistration": func() error {
			return healthcheckregistration.AddToManager(mgr, healthcheckregistration.Options{Options: common, Dial: opts.Dial})
		},
		"OutlierPolicy": func() error {
			return outlierpolicy.AddToManager(mgr, outlierpolicy.Options{Options: common, Informers: opts.OutlierInformers, Clusters: opts.Clusters, Ejections: opts.Ejections})
		},
		"ProbeConfig": func() error {
			return probeconfig.AddToManager(mgr, probeconfig.Options{Options: common, Protection: opts.Protection, Dial: opts.Dial, Witnesses: witnesses})
		},
		"WeederConfig": func() error { return weederconfig.AddToManager(mgr, common) },
		// +kubebuilder:scaffold:kinds
	})
}

// addPolicies adds the controllers of all kinds that act.
func addPolicies(controllers map[string]func() error) error {
	for _, k := range kinds.Policies() {
		add := controllers[k.Name()]
		if add == nil {
			return fmt.Errorf("there is no controller for %s", k.Name())
		}
		if err := add(); err != nil {
			return err
		}
	}
	return nil
}

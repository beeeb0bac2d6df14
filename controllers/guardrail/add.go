package guardrail

import (
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/probing"
)

// Options are what the controller for Guardrails needs.
type Options struct {
	Guard *guard.Guard
	// Guardrails are all that are stored.
	Guardrails *kube.Collection[*v1alpha1.Guardrail]
	// Rejections of stored policies.
	Rejections *kube.Rejections
	// Witnesses that Guardrails name.
	Witnesses *probing.Witnesses
}

// AddToManager adds the observer and the controller of the status. A replica isn't ready until all Guardrails are in force:
// its webhook would admit what one of them forbids.
func AddToManager(mgr manager.Manager, opts Options) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	gaugePolicy(opts.Guard.Policy())
	opts.Guard.OnChange(func(guard.Change) { gaugePolicy(opts.Guard.Policy()) })
	observer := &Observer{Guard: opts.Guard}
	opts.Guardrails.Early, opts.Guardrails.Use, opts.Guardrails.Seen = opts.Guard.Tighten, observer.use, observer.request
	opts.Rejections.OnChange(observer.request)
	opts.Witnesses.OnChange = observer.request
	opts.Guardrails.Listed = opts.Guard.GuardrailsListed
	if err := mgr.Add(opts.Guardrails); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("guardrails", func(*http.Request) error { return opts.Guardrails.Synced() }); err != nil {
		return err
	}
	guardrails := &policy.Keeper[*v1alpha1.Guardrail]{Steps: (&keeper{Observer: observer, Rejections: opts.Rejections, Witnesses: opts.Witnesses}).steps()}
	return guardrails.AddToManager(mgr, "guardrail", 1, observer.lead)
}

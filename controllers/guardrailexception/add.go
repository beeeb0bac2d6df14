package guardrailexception

import (
	"net/http"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

// Options are what the controller for GuardrailExceptions needs.
type Options struct {
	Guard *guard.Guard
	// Exceptions are all that are stored.
	Exceptions *kube.Collection[*v1alpha1.GuardrailException]
}

// AddToManager adds the observer and the controller of the status.
func AddToManager(mgr manager.Manager, opts Options) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	observer := &Observer{Cache: mgr.GetCache(), Guard: opts.Guard}
	opts.Exceptions.Use, opts.Exceptions.Seen = observer.use, observer.request
	opts.Guard.OnChange(observer.rulesChanged)
	if err := mgr.Add(opts.Exceptions); err != nil {
		return err
	}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("guardrailexceptions", func(*http.Request) error { return opts.Exceptions.Synced() }); err != nil {
		return err
	}
	exceptions := &policy.Keeper[*v1alpha1.GuardrailException]{Steps: (&keeper{Observer: observer, Client: mgr.GetClient(), Clock: clock.RealClock{}}).steps()}
	return exceptions.AddToManager(mgr, "guardrailexception", 1, observer.lead)
}

package probeconfig

import (
	"context"
	"errors"
	"sync"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// heldAsVital: what would be scaled down serves the probed API server, or runs Autohealer.
const heldAsVital probe.Reason = "Vital"

// Vital says why an object must not be scaled down as things are now, "" for nothing. Servers, as host:port, are those that
// are probed.
type Vital interface {
	Vital(ctx context.Context, namespace string, servers []string, ref probe.Ref) (why string, err error)
}

// vital asks once more of all dependents, just before an act, what the rules asked when the config was written. A target with
// such an object isn't scaled down at all, as the rule refuses the whole config.
func (r *TargetReconciler) vital(ctx context.Context, t *target, c *probe.Config, plan *probe.Plan) (held probe.Permit, err error) {
	if r.Vital == nil {
		return probe.Permit{Allowed: true}, nil
	}
	servers := r.Prober.Servers(t.key)
	whys, errs := make([]string, len(c.Dependents)), make([]error, len(c.Dependents))
	var asking sync.WaitGroup
	for i, d := range c.Dependents {
		asking.Go(func() { whys[i], errs[i] = r.Vital.Vital(ctx, t.key.Namespace, servers, d.Ref) })
	}
	asking.Wait()
	if err := errors.Join(errs...); err != nil {
		return held, err
	}
	held.Allowed = true
	for i, why := range whys {
		if why != "" {
			ref := c.Dependents[i].Ref
			plan.Findings = append(plan.Findings, probe.Finding{Ref: ref, Reason: heldAsVital, Message: why + "; nothing is scaled down here"})
			held = probe.Permit{Reason: heldAsVital, Message: ref.String() + ": " + why}
		}
	}
	return held, nil
}

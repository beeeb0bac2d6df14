package probeconfig

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/policy"
)

const (
	kindProbeConfig = "ProbeConfig"
	// ruleSecrets is the rule over whether a config's account may read its Secrets.
	ruleSecrets = "probeconfig/account-may-not-read"
)

type storedConfig = policy.Policy[*v1alpha1.ProbeConfig, parsedConfig]

// parsedConfig is a config made ready.
type parsedConfig struct {
	// config is nil when the spec can't be read; unreadable says why.
	config     *probe.Config
	unreadable error
}

// Unreadable says why the spec can't be read.
func (r parsedConfig) Unreadable() error { return r.unreadable }

// parse keeps what it read of the same generation: by its pointer targets see that nothing changed.
func (o *Observer) parse(pc *v1alpha1.ProbeConfig, before parsedConfig) (r parsedConfig) {
	if c := before.config; c != nil && c.UID == pc.UID && c.Generation == pc.Generation {
		return before
	}
	if r.config, r.unreadable = probe.NewConfig(pc, o.OwnNamespace); r.config != nil {
		r.config.Timings = o.Facts.Timings
	}
	return r
}

func (o *Observer) forget(pc *v1alpha1.ProbeConfig) {
	key := client.ObjectKeyFromObject(pc)
	o.assigning.Lock()
	defer o.assigning.Unlock()
	if _, ok := o.policies.Get(key); !ok {
		down := false
		for _, t := range o.targets.of(key) {
			down = down || t.MayHaveScaledDown()
			o.targets.forget(keyOf(&t))
			o.requestTarget(keyOf(&t)) // its probes end
		}
		o.queueOrphans(pc, down)
	}
	o.mu.Lock()
	delete(o.assigned, key)
	o.mu.Unlock()
	o.fleet().ForgetConfig(pc.UID)
	o.fleet().FollowBreaker(o.namedBreaker()) // nobody else may name the one that it did
}

// setGuardrails puts in force what all Guardrails together say of limits and witnesses.
func (o *Observer) setGuardrails(all guardrail.Policy) {
	o.fleet().SetLimits(all.Limits)
	o.Witnesses.Set(all.Witnesses)
}

// followBreaker takes over a breaker that another process opened or closed, once a status turned, and closes one that was reset.
func (o *Observer) followBreaker(pc *v1alpha1.ProbeConfig, turned bool) {
	if turned {
		o.fleet().FollowBreaker(o.namedBreaker())
	}
	if o.mayResetBreaker(pc) {
		o.resetBreaker(pc.Annotations[v1alpha1.AnnotationResetBreaker])
	}
}

// namedBreaker is the latest opening that a stored config's status names; nil for none.
func (o *Observer) namedBreaker() *limit.Opening {
	last := ""
	for _, key := range o.policies.Keys() {
		j, ok := o.policies.Get(key)
		if !ok {
			continue
		}
		if id := j.Object.Status.BreakerID; id > last && !o.wasReset(id) { // IDs are in the order of time
			last = id
		}
	}
	if last == "" {
		return nil
	}
	return &limit.Opening{ID: last, OpenedAt: probe.BreakerOpenedAt(last)}
}

// resetBreaker closes the breaker of this ID, for all configs.
func (o *Observer) resetBreaker(id string) {
	if id != "" && o.fleet().Reset(id) {
		o.requestAll()
	}
}

// mayResetBreaker: the breaker is one for all configs, and who may write a config of a namespace has no say over those of others.
// Autohealer's own namespace is of who runs it.
func (o *Observer) mayResetBreaker(pc *v1alpha1.ProbeConfig) bool {
	return pc.Namespace == o.OwnNamespace
}

// wasReset: the statuses of other configs may still name a breaker after it was reset.
func (o *Observer) wasReset(id string) bool {
	if own, ok := o.namespaceState(o.OwnNamespace); ok && own.resetBreaker == id {
		return true
	}
	return slices.ContainsFunc(o.policies.Keys(), func(key types.NamespacedName) bool {
		j, ok := o.policies.Get(key)
		return ok && o.mayResetBreaker(j.Object) && j.Object.Annotations[v1alpha1.AnnotationResetBreaker] == id
	})
}

// probes is what becomes of a target's probes.
type probes int

const (
	// keepProbes leaves them as they are: whether they may run isn't known just now. The zero value.
	keepProbes probes = iota
	runProbes
	stopProbes
)

// permission is what a config allows to do for one of its targets now. The zero value is that nothing changes.
type permission struct {
	state  lifecycle.State
	probes probes
}

// permission of a target, by the latest judgement.
func (o *Observer) permission(target *probe.Target) permission {
	j, ok := o.policies.Get(target.Config.Key())
	if !ok || j.UID != target.Config.UID {
		return permission{}
	}
	switch state := j.State(j.Object.Spec.Mode == v1alpha1.Observe); {
	case state == lifecycle.Frozen:
		return permission{}
	case target.Deselected:
		return permission{lifecycle.Deleted, stopProbes}
	case state == lifecycle.Deleted, state == lifecycle.Unreadable: // what was taken stays so until it can be read again
		return permission{state, stopProbes}
	case state == lifecycle.NotJudged, j.Generation != target.Config.Generation:
		return permission{}
	case !j.Admitted.Valid():
		return permission{state, refusedProbes(j, target.ScaledDown() && state == lifecycle.Refused)}
	default:
		return permission{state, runProbes}
	}
}

// refusedProbes are those of a config that the rules don't admit. Heals: it gives back what is healthy again, which takes probes that
// it may run. While it is refused only because a rule couldn't be judged, as when the API server doesn't answer what an account may
// do, its probes stay as they are: to end them would drop what they counted, in the middle of an outage.
func refusedProbes(j storedConfig, heals bool) probes {
	switch broken := j.Verdict.BrokenIDs(); {
	case heals && !slices.Contains(j.Verdict.RuleIDs(), ruleSecrets):
		return runProbes
	case len(broken) == 0, heals && !slices.Contains(broken, ruleSecrets):
		return keepProbes
	}
	return stopProbes
}

// countsForFleet says whether a target counts for others: its config is in force, and its kubeconfig works. Known is false while that isn't known.
func (o *Observer) countsForFleet(target *probe.Target) (acts, known bool) {
	j, ok := o.policies.Get(target.Config.Key())
	if !ok || j.Outdated || j.UID != target.Config.UID {
		return false, false
	}
	return j.Admitted.Valid() && j.Object.Spec.Mode != v1alpha1.Observe && target.KubeconfigProven(), true
}

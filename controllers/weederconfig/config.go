package weederconfig

import (
	"context"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/policy"
)

const (
	kindWeederConfig = "WeederConfig"
	// ruleRights is the rule over what a config's account may do.
	ruleRights = "weederconfig/account-may-not-delete"
	// pastDeadline lets a deadline lie behind us when it is looked at.
	pastDeadline = time.Millisecond
)

type storedConfig = policy.Policy[*v1alpha1.WeederConfig, reading]

// reading is a config as the planner takes it.
type reading struct {
	// config is nil when the spec can't be read; unreadable says why.
	config     *weeder.Config
	unreadable error
}

// Unreadable says why the spec can't be read.
func (r reading) Unreadable() error { return r.unreadable }

// read reads a config. Most news of one are of its status only.
func (o *Observer) read(wc *v1alpha1.WeederConfig, before reading) (r reading) {
	if c := before.config; c != nil && before.unreadable == nil && c.UID == wc.UID && c.Generation == wc.Generation {
		return reading{config: c.WithStatus(wc.Status)}
	}
	r.config, r.unreadable = weeder.NewConfig(wc, o.OwnNamespace)
	return r
}

// update has the planner learn what a config asks for and may do.
func (o *Observer) update(_ context.Context, _, now storedConfig) {
	switch {
	case now.Read.unreadable != nil:
		o.weeder().ForgetConfig(now.UID)
		o.follow(nil)
	case now.JudgedAs(now.Object): // else it goes on as it was until it is
		o.follow(o.weeder().ObserveConfig(now.Read.config, stateOf(now), o.moment()))
	}
}

func (o *Observer) forget(wc *v1alpha1.WeederConfig) {
	o.weeder().ForgetConfig(wc.UID)
	o.follow(nil)
}

// guardrails puts in force what all Guardrails together say of limits.
func (o *Observer) guardrails(all guardrail.Policy) { o.follow(o.weeder().SetLimits(all.Limits)) }

// stateOf is what a config may do now. The planner asks for the rest: it goes on with a config that was changed until that is judged, and
// tells what one would do that observes.
func stateOf(config storedConfig) lifecycle.State {
	forbids := forbidden(config.Verdict)
	return lifecycle.Policy{NotJudged: !config.PauseKnown, Forbidden: forbids, Refused: !config.Admitted.Valid(), Paused: config.Pause.By != ""}.State()
}

// forbidden: the only thing that the rules refuse is the account's lack of rights.
func forbidden(v guard.Verdict) bool {
	rules := v.RuleIDs()
	return len(rules) == 1 && rules[0] == ruleRights
}

// admissionFor is the admission that covers a deletion now; its zero value when there is none, or while acts are paused.
func (o *Observer) admissionFor(ctx context.Context, d *weeder.Deletion) actuate.AdmittedWeeder {
	config, ok := o.policies.Admission(ctx, d.Key, d.Config)
	if !ok || stateOf(config) != lifecycle.Active {
		return actuate.AdmittedWeeder{}
	}
	return config.Admitted
}

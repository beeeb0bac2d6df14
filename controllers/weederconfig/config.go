package weederconfig

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/weed"
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

// reading is a config as the yard takes it.
type reading struct {
	// config is nil when the spec can't be read; unreadable says why.
	config     *weed.Config
	unreadable error
}

// Unreadable says why the spec can't be read.
func (r reading) Unreadable() error { return r.unreadable }

// read reads a config. Most news of one are of its status only.
func (o *Observer) read(wc *v1alpha1.WeederConfig, before reading) (r reading) {
	if c := before.config; c != nil && before.unreadable == nil && c.UID == wc.UID && c.Generation == wc.Generation {
		return reading{config: c.WithStatus(wc.Status)}
	}
	r.config, r.unreadable = weed.NewConfig(wc, o.OwnNamespace)
	return r
}

// sameRecovery is how far apart two processes may place one recovery.
const sameRecovery = 10 * time.Second

// told says whether the config's status tells of a window already.
func told(wc *v1alpha1.WeederConfig, w weed.Window) bool {
	return slices.ContainsFunc(wc.Status.Windows, func(r v1alpha1.RecoveryWindow) bool {
		return r.Namespace == w.Namespace && r.Service == w.Service && r.Time.Sub(w.Stored(w.Opened)).Abs() < sameRecovery
	})
}

// update has the yard learn what a config asks for and may do.
func (o *Observer) update(_ context.Context, _, now storedConfig) {
	switch {
	case now.Read.unreadable != nil:
		o.yard().ForgetConfig(now.UID)
		o.follow(nil)
	case now.JudgedAs(now.Object): // else it goes on as it was until it is
		o.follow(o.yard().ObserveConfig(now.Read.config, standing(now), o.moment()))
	}
}

func (o *Observer) forget(wc *v1alpha1.WeederConfig) {
	o.yard().ForgetConfig(wc.UID)
	o.follow(nil)
}

// guardrails puts in force what all Guardrails together say of limits.
func (o *Observer) guardrails(all guardrail.Policy) { o.follow(o.yard().SetLimits(all.Limits)) }

// standing is what a config may do now.
func standing(config storedConfig) weed.Standing {
	switch {
	case !config.PauseKnown:
		return weed.Frozen
	case forbidden(config.Verdict):
		return weed.Forbidden
	case !config.Admitted.Valid():
		return weed.Refused
	case config.Pause.By != "":
		return weed.Paused
	}
	return weed.Active
}

// forbidden: the only thing that the rules refuse is the account's lack of rights.
func forbidden(v guard.Verdict) bool {
	rules := v.RuleIDs()
	return len(rules) == 1 && rules[0] == ruleRights
}

// rightsKept is for how long a judgement over an account's rights is used for acts: in a storm, each costs a preview.
const rightsKept = time.Second

// admissionFor is the admission that covers a deletion now; its zero value when there is none, or while acts are paused. What
// may change without any event, an account's rights, is asked once more.
func (o *Observer) admissionFor(ctx context.Context, d *weed.Deletion) actuate.AdmittedWeeder {
	config, ok := o.policies.Get(d.Key)
	if ok && o.fading(config) {
		config, ok = o.judgeAgain(ctx, d.Key)
	}
	if !ok || config.Outdated || config.UID != d.Config || standing(config) != weed.Active || config.Verdict.RuleSetHash != o.Guard.RuleSetHash(kindWeederConfig) {
		return actuate.AdmittedWeeder{}
	}
	return config.Admitted
}

// fading: time may have changed what was judged, without any event.
func (o *Observer) fading(config storedConfig) bool {
	return !config.Verdict.RecheckAt.IsZero() && !config.Outdated && o.Facts.Clock.Now().Sub(config.JudgedAt) >= rightsKept
}

// judgeAgain judges a config for all who wait for that at once.
func (o *Observer) judgeAgain(ctx context.Context, key types.NamespacedName) (storedConfig, bool) {
	o.asking.LockKey(key.String())
	defer func() { _ = o.asking.UnlockKey(key.String()) }() // it is locked
	if config, ok := o.policies.Get(key); !ok || !o.fading(config) {
		return config, ok
	}
	o.policies.Judge(ctx, key)
	return o.policies.Get(key)
}

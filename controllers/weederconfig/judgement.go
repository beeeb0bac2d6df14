package weederconfig

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/weed"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/judging"
)

const (
	kindWeederConfig = "WeederConfig"
	// ruleRights is the rule over what a config's account may do.
	ruleRights = "weederconfig/account-may-not-delete"
	// pastDeadline lets a deadline lie behind us when it is looked at.
	pastDeadline = time.Millisecond
)

// judgement is what the rules said of a stored config.
type judgement = judging.Judgement[*v1alpha1.WeederConfig, reading]

// reading is a config as the yard takes it.
type reading struct {
	// config is nil when the spec can't be read; unreadable says why.
	config     *weed.Config
	unreadable error
}

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

// config takes in a config that is new or changed. It is judged by a goroutine of its own: that may ask the API server what
// an account may do, and nothing else should wait for the answer.
func (o *Observer) config(wc *v1alpha1.WeederConfig) {
	if wc.DeletionTimestamp != nil {
		o.configGone(wc)
		return
	}
	key := client.ObjectKeyFromObject(wc)
	if o.judge.Observe(wc) {
		o.tellYard(key)
	} else {
		o.judge.Soon(key)
	}
}

func (o *Observer) configGone(wc *v1alpha1.WeederConfig) {
	o.judge.Forget(wc)
	o.telling.Lock()
	o.yard().ForgetConfig(wc.UID)
	o.telling.Unlock()
	o.follow(nil)
	o.enqueueConfig(client.ObjectKeyFromObject(wc)) // its series go with it
}

// judgeNow asks the rules about a stored config as it is now, and tells the yard what it may do.
func (o *Observer) judgeNow(ctx context.Context, key types.NamespacedName) {
	if o.judge.Judge(ctx, key) {
		o.tellYard(key)
		o.enqueueConfig(key)
	}
}

// tellYard tells the yard what a config may do, by the latest judgement.
func (o *Observer) tellYard(key types.NamespacedName) {
	o.telling.Lock()
	var due []types.NamespacedName
	switch j, ok := o.judge.Of(key); {
	case !ok: // gone
	case j.Read.unreadable != nil:
		o.yard().ForgetConfig(j.UID)
	default:
		due = o.yard().ObserveConfig(j.Read.config, o.standing(j), o.moment())
	}
	o.telling.Unlock()
	o.follow(due)
}

// standing is what a config may do now.
func (o *Observer) standing(j judgement) weed.Standing {
	paused, known := o.judge.PausedBy()
	switch {
	case !known:
		return weed.Frozen
	case forbidden(j.Verdict):
		return weed.Forbidden
	case !j.Admitted.Valid():
		return weed.Refused
	case paused.By != "":
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
	j, ok := o.judge.Of(d.Key)
	if ok && o.fading(j) {
		j, ok = o.judgeAgain(ctx, d.Key)
	}
	if !ok || j.Outdated || j.UID != d.Config || o.standing(j) != weed.Active || j.Verdict.RuleSetHash != o.Guard.RuleSetHash(kindWeederConfig) {
		return actuate.AdmittedWeeder{}
	}
	return j.Admitted
}

// fading: time may have changed what was judged, without any event.
func (o *Observer) fading(j judgement) bool {
	return !j.Verdict.RecheckAt.IsZero() && !j.Outdated && o.Facts.Clock.Now().Sub(j.At) >= rightsKept
}

// judgeAgain judges a config for all who wait for that at once.
func (o *Observer) judgeAgain(ctx context.Context, key types.NamespacedName) (judgement, bool) {
	o.asking.LockKey(key.String())
	defer func() { _ = o.asking.UnlockKey(key.String()) }() // it is locked
	if j, ok := o.judge.Of(key); !ok || !o.fading(j) {
		return j, ok
	}
	o.judgeNow(ctx, key)
	return o.judge.Of(key)
}

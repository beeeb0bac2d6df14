package weederconfig

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/weed"
	"github.com/resourcestack/autohealer/internal/guard"
)

const (
	kindWeederConfig = "WeederConfig"
	// ruleRights is the rule over what a config's account may do.
	ruleRights = "weederconfig/account-may-not-delete"
	// pastDeadline lets a deadline lie behind us when it is looked at.
	pastDeadline = time.Millisecond
)

// judgement is what the rules said of a stored config.
type judgement struct {
	uid        types.UID
	generation int64
	// config is nil when the spec can't be read.
	config *weed.Config
	// labels and annotations may change without a new generation, and rules may read them.
	labels, annotations map[string]string
	verdict             guard.Verdict
	admitted            actuate.AdmittedWeeder
	// unreadable says why the spec can't be read.
	unreadable error
	// outdated: the config, rules, exceptions or rights changed since; nobody acts before the next judgement.
	outdated bool
	// windows are those that the status tells of.
	windows []v1alpha1.RecoveryWindow
}

// sameRecovery is how far apart two processes may place one recovery.
const sameRecovery = 10 * time.Second

// told says whether the status tells of a window already.
func (j judgement) told(w weed.Window) bool {
	return slices.ContainsFunc(j.windows, func(r v1alpha1.RecoveryWindow) bool {
		return r.Namespace == w.Namespace && r.Service == w.Service && r.Time.Sub(w.Opened).Abs() < sameRecovery
	})
}

// isOf says whether the judgement is of the object in this state.
func (j judgement) isOf(wc *v1alpha1.WeederConfig) bool {
	return j.uid == wc.UID && j.generation == wc.Generation && maps.Equal(j.labels, wc.Labels) && maps.Equal(j.annotations, wc.Annotations)
}

// config takes in a config that is new or changed. It is judged by a goroutine of its own: that may ask the API server what
// an account may do, and nothing else should wait for the answer.
func (o *Observer) config(wc *v1alpha1.WeederConfig) {
	if wc.DeletionTimestamp != nil {
		o.configGone(wc)
		return
	}
	key := client.ObjectKeyFromObject(wc)
	o.mu.Lock()
	j, ok := o.judged[key]
	same := ok && j.isOf(wc)
	if ok {
		j.outdated, j.windows = j.outdated || !same, wc.Status.Windows
		j.config, j.unreadable = weed.NewConfig(wc, o.OwnNamespace) // its status may be newer
		o.judged[key] = j
	}
	o.mu.Unlock()
	if !same {
		o.again.Add(key)
		return
	}
	o.tellYard(j)
}

func (o *Observer) configGone(wc *v1alpha1.WeederConfig) {
	key := client.ObjectKeyFromObject(wc)
	o.mu.Lock()
	if o.judged[key].uid == wc.UID {
		delete(o.judged, key)
		defer o.Rejections.Note(policyName(key), nil)
	}
	o.mu.Unlock()
	o.yard().ForgetConfig(wc.UID)
	o.follow(nil)
	o.enqueueConfig(key) // its series go with it
}

// judgeAgain judges configs until ctx ends.
func (o *Observer) judgeAgain(ctx context.Context) {
	defer context.AfterFunc(ctx, o.again.ShutDown)()
	for {
		key, stopping := o.again.Get()
		if stopping {
			return
		}
		if _, err := o.judge(ctx, key); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Can't read a WeederConfig from the cache", "config", key.String())
		}
		o.again.Done(key)
	}
}

// judge asks the rules about a stored config as it is now, and tells the yard what it may do.
func (o *Observer) judge(ctx context.Context, key types.NamespacedName) (judgement, error) {
	o.judging.Lock() // else an older state read here could take the place of a newer one
	defer o.judging.Unlock()
	o.mu.Lock()
	changes := o.changes
	o.mu.Unlock()
	wc := &v1alpha1.WeederConfig{}
	if err := o.Cache.Get(ctx, key, wc); err != nil {
		return judgement{}, client.IgnoreNotFound(err)
	}
	if wc.DeletionTimestamp != nil {
		return judgement{}, nil
	}
	j := judgement{uid: wc.UID, generation: wc.Generation, labels: wc.Labels, annotations: wc.Annotations, windows: wc.Status.Windows}
	j.config, j.unreadable = weed.NewConfig(wc, o.OwnNamespace)
	j.admitted, j.verdict = guard.Admit(ctx, o.Guard, wc)
	o.Rejections.Note(policyName(key), j.verdict.RuleIDs())
	if at := j.verdict.RecheckAt; !at.IsZero() {
		o.again.AddAfter(key, at.Sub(o.Facts.Clock.Now())+pastDeadline)
	}
	o.mu.Lock()
	if o.changes != changes { // while it was judged, perhaps by the former rules
		j.outdated = true
		o.again.Add(key)
	}
	o.judged[key] = j
	o.mu.Unlock()
	o.tellYard(j)
	o.enqueueConfig(key)
	return j, nil
}

// tellYard tells the yard what a config may do.
func (o *Observer) tellYard(j judgement) {
	if j.unreadable != nil {
		o.yard().ForgetConfig(j.uid)
		o.follow(nil)
		return
	}
	o.follow(o.yard().ObserveConfig(j.config, o.standing(j), o.moment()))
}

// standing is what a config may do now.
func (o *Observer) standing(j judgement) weed.Standing {
	paused, known := o.pausedBy()
	switch {
	case !known:
		return weed.Frozen
	case forbidden(j.verdict):
		return weed.Forbidden
	case !j.admitted.Valid():
		return weed.Refused
	case paused != "":
		return weed.Paused
	}
	return weed.Active
}

// forbidden: the only thing that the rules refuse is the account's lack of rights.
func forbidden(v guard.Verdict) bool {
	rules := v.RuleIDs()
	return len(rules) == 1 && rules[0] == ruleRights
}

func policyName(key types.NamespacedName) string { return kindWeederConfig + "/" + key.String() }

// judgementOf gives what the rules said of the config with this name.
func (o *Observer) judgementOf(key types.NamespacedName) (judgement, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	j, ok := o.judged[key]
	return j, ok
}

// admissionFor is the admission that covers a deletion now; its zero value when there is none. What may change without any
// event, an account's rights, is asked once more.
func (o *Observer) admissionFor(ctx context.Context, d *weed.Deletion) (actuate.AdmittedWeeder, error) {
	j, ok := o.judgementOf(d.Key)
	if ok && !j.verdict.RecheckAt.IsZero() && !j.outdated {
		var err error
		if j, err = o.judge(ctx, d.Key); err != nil {
			return actuate.AdmittedWeeder{}, err
		}
	}
	if !ok || j.outdated || j.uid != d.Config || j.verdict.RuleSetHash != o.Guard.RuleSetHash(kindWeederConfig) {
		return actuate.AdmittedWeeder{}, nil
	}
	return j.admitted, nil
}

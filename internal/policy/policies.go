// Package policy is the life of a stored policy, the same for every kind:
//
//	observe, judge by the rules, update the kind's planner      every replica: Policies
//	finalizer, status, Events, and undone before it is gone     the leader: Keeper
//
// A kind brings Hooks for the first and Steps for the second.
package policy

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/keymutex"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/metric"
)

// Reading is what a kind reads of a policy.
type Reading interface {
	// Unreadable says why the spec can't be read.
	Unreadable() error
}

// Policy is a stored policy, what its kind reads of it, and what the rules said of it.
type Policy[T Object, R Reading] struct {
	// Object as it was seen last; its status may be newer than what was judged.
	Object T
	Read   R

	// UID and Generation of what was judged.
	UID        types.UID
	Generation int64
	// labels and annotations may change without a new generation, and rules may read them.
	labels, annotations map[string]string

	// JudgedAt is when the rules were asked.
	JudgedAt time.Time
	Verdict  guard.Verdict
	Admitted guard.Validated[T]
	// Outdated: the policy, rules or exceptions changed since. Nobody acts before it is judged again.
	Outdated bool
	// Invalidations is how often judgements of this name were outdated until now: whoever looked meanwhile looked in vain.
	Invalidations int

	// Pause of all new acts. PauseKnown is false while no Guardrail is read.
	Pause      Pause
	PauseKnown bool
}

// JudgedAs says whether the object was judged as it is now, whatever became of the rules since.
func (p *Policy[T, R]) JudgedAs(object T) bool {
	return p.UID == object.GetUID() && p.Generation == object.GetGeneration() &&
		maps.Equal(p.labels, object.GetLabels()) && maps.Equal(p.annotations, object.GetAnnotations())
}

// IsCurrent says whether this very object was judged and that still holds, so that status may tell of it.
func (p *Policy[T, R]) IsCurrent(object T) bool {
	return p.UID == object.GetUID() && p.Generation == object.GetGeneration() && !p.Outdated
}

// State is what the policy may do now. Acting waits for the finalizer: without it what is done could be left behind. Observes: its
// mode is Observe.
func (p *Policy[T, R]) State(observes bool) lifecycle.State {
	return lifecycle.Policy{
		Frozen: p.Pause.Frozen, Deleted: p.Object.GetDeletionTimestamp() != nil, Unreadable: p.Read.Unreadable() != nil,
		NotJudged: !p.PauseKnown || p.Outdated || p.Generation != p.Object.GetGeneration(), Observing: observes, Refused: !p.Admitted.Valid(),
		Unrecorded: !slices.Contains(p.Object.GetFinalizers(), v1alpha1.FinalizerUndo), Paused: p.Pause.By != "",
	}.State()
}

// SameVerdict says whether nothing changed but the object.
func (p *Policy[T, R]) SameVerdict(before Policy[T, R]) bool {
	return p.UID == before.UID && p.Generation == before.Generation && p.JudgedAt.Equal(before.JudgedAt) && p.Invalidations == before.Invalidations &&
		p.Outdated == before.Outdated && p.Pause == before.Pause && p.PauseKnown == before.PauseKnown
}

// Hooks are what a kind brings to the life of its policies on every replica.
type Hooks[T Object, R Reading] struct {
	// Kind as the registry names it. Where that has a finalizer for it, a policy that is being deleted is there until what it did is
	// undone. Else it is gone at once.
	Kind  string
	Guard *guard.Guard
	Clock clock.PassiveClock
	// Rejections learns which rules refuse which policies.
	Rejections *kube.Rejections
	// Read reads what the kind needs of an object, once for each revision; before is what it read of an earlier one, which may
	// be of another object of that name, and the zero value for the first.
	Read func(object T, before R) R
	// Guardrails takes in what all of them together say, before policies learn of a pause. Optional.
	Guardrails func(guardrail.Policy)
	// Changed takes in a policy that changed, or of which the rules or a pause changed. Before is what the last call for this name
	// had, the zero value at first. Changed and Forget are called one at a time.
	Changed func(ctx context.Context, before, now Policy[T, R])
	// Forget drops an object that is gone; another one may have its name.
	Forget func(T)
	// AtOnce: policies are judged before the informer's handler returns, so that all are when it has synced.
	AtOnce bool
}

// maxRejudging is how many policies of a kind are judged once more for acts at a time.
const maxRejudging = 16

// Policies are all stored policies of one kind. They are safe for concurrent use once Init was called. The rules are asked without a
// lock: they may ask the API server what an account may do, and a slow answer about one policy must not keep the others waiting.
type Policies[T Object, R Reading] struct {
	hooks Hooks[T, R]
	// Statuses are the policies whose status the leader should look at.
	Statuses kube.Requests
	// Errors are of writes for policies.
	Errors ErrorTracker
	// toJudge are policies to judge, now or at a time.
	toJudge workqueue.TypedDelayingInterface[types.NamespacedName]

	// rejudging is held, for each policy by itself, while it is judged once more for an act.
	rejudging keymutex.KeyMutex

	// following is held while what Guardrails say is taken in.
	following sync.Mutex

	// updating is held while the planner learns of a policy: else an older state could come after a newer one.
	updating sync.Mutex
	updated  map[types.NamespacedName]Policy[T, R] // needs updating

	mu               sync.Mutex
	latest           map[types.NamespacedName]T // needs mu, as all below
	judged           map[types.NamespacedName]Policy[T, R]
	changes          int // of the rules, since the start
	paused           Pause
	guardrailsUnread bool // no Guardrail is read yet
}

// Init has policies follow the rules; none is known yet.
func (p *Policies[T, R]) Init(h Hooks[T, R]) {
	p.hooks, p.toJudge, p.rejudging = h, kube.NewDelayingQueue[types.NamespacedName](h.Clock), keymutex.NewHashed(maxRejudging)
	p.latest, p.judged, p.updated = map[types.NamespacedName]T{}, map[types.NamespacedName]Policy[T, R]{}, map[types.NamespacedName]Policy[T, R]{}
	p.Errors.OnChange = func(policy types.NamespacedName) { p.Statuses.Add(policy, 0) }
	metric.AtZero(evaluations, []string{h.Kind})
	p.followGuardrails()
	h.Guard.OnChange(p.RulesChanged)
}

// Seen takes in an object that is new or changed. Until it is judged nobody acts for it.
func (p *Policies[T, R]) Seen(ctx context.Context, object T) {
	if object.GetDeletionTimestamp() != nil && !kinds.Named(p.hooks.Kind).Finalizer { // nothing is to be undone
		p.Gone(object)
		return
	}
	key := client.ObjectKeyFromObject(object)
	switch holds := p.observe(object); {
	case holds:
	case p.hooks.AtOnce:
		p.judge(ctx, key)
	default:
		p.toJudge.Add(key)
	}
	p.update(ctx, key)
}

// Gone takes in that an object isn't there any more.
func (p *Policies[T, R]) Gone(object T) {
	key := client.ObjectKeyFromObject(object)
	p.mu.Lock()
	if latest, ok := p.latest[key]; ok && latest.GetUID() == object.GetUID() {
		delete(p.latest, key)
		delete(p.judged, key)
		p.hooks.Rejections.Set(p.name(key), nil)
	}
	p.mu.Unlock()
	p.updating.Lock()
	if p.updated[key].UID == object.GetUID() {
		delete(p.updated, key)
	}
	p.hooks.Forget(object)
	p.updating.Unlock()
	p.Errors.Forget(object.GetUID())
	p.Statuses.Add(key, 0) // once it isn't there any more its series go, too
}

// Judge asks the rules about a policy as it is now, and has its planner learn what they say.
func (p *Policies[T, R]) Judge(ctx context.Context, key types.NamespacedName) {
	if p.judge(ctx, key) {
		p.update(ctx, key)
	}
}

func (p *Policies[T, R]) update(ctx context.Context, key types.NamespacedName) {
	p.updating.Lock()
	now, ok := p.Get(key)
	after := time.Duration(0)
	if ok {
		if now.SameVerdict(p.updated[key]) { // as when a status was written, mostly by us
			after = Delay
		}
		p.hooks.Changed(ctx, p.updated[key], now)
		p.updated[key] = now
	}
	p.updating.Unlock()
	p.Statuses.Add(key, after)
}

// observe takes in an object that is new or changed. It says whether it was judged as it is.
func (p *Policies[T, R]) observe(object T) (holds bool) {
	key := client.ObjectKeyFromObject(object)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest[key] = object
	was, ok := p.judged[key]
	if !ok {
		return false
	}
	holds = was.JudgedAs(object)
	was.Object, was.Read, was.Outdated = object, p.hooks.Read(object, was.Read), was.Outdated || !holds
	p.judged[key] = was
	return holds
}

// name is the policy's as Rejections has it: Kind/name or Kind/namespace/name.
func (p *Policies[T, R]) name(key types.NamespacedName) string {
	if key.Namespace == "" {
		return p.hooks.Kind + "/" + key.Name
	}
	return p.hooks.Kind + "/" + key.String()
}

// Get gives the policy with this name, once it was judged.
func (p *Policies[T, R]) Get(key types.NamespacedName) (Policy[T, R], bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.judged[key]
	found.Pause, found.PauseKnown = p.paused, !p.guardrailsUnread
	return found, ok
}

// Current gives the policy of this very object once it was judged, that still holds, and what pauses it is known: then its status may
// tell of it.
func (p *Policies[T, R]) Current(object T) (Policy[T, R], bool) {
	found, ok := p.Get(client.ObjectKeyFromObject(object))
	return found, ok && found.IsCurrent(object) && found.PauseKnown
}

// Keys are the policies that were judged.
func (p *Policies[T, R]) Keys() []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.judged))
}

// Unjudged are the policies that are stored and weren't judged yet, so that nothing is known of them but what they say.
func (p *Policies[T, R]) Unjudged() (all []T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, object := range p.latest {
		if _, ok := p.judged[key]; !ok {
			all = append(all, object)
		}
	}
	return all
}

// VerdictUnreported says whether the status of a policy doesn't tell yet what the rules say: who changed it or a rule waits for that.
func (p *Policies[T, R]) VerdictUnreported(object T) bool {
	found, judged := p.Get(client.ObjectKeyFromObject(object))
	return judged && !found.Outdated && found.Read.Unreadable() == nil && accepted(object) != found.Verdict.Allowed
}

// Run judges each policy whose time has come, until ctx ends. Several may run.
func (p *Policies[T, R]) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, p.toJudge.ShutDown)()
	for {
		key, stopping := p.toJudge.Get()
		if stopping {
			return
		}
		p.Judge(ctx, key)
		p.toJudge.Done(key)
	}
}

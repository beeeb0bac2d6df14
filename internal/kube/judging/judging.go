// Package judging keeps what the rules say of every stored policy of a kind, and has policies judged again when that may
// have changed: with the policy, with rules, exceptions and Guardrails, and with time.
package judging

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// Judgement is what the rules said of a policy. Read is what its kind reads of the object.
type Judgement[T client.Object, R any] struct {
	// Object as it was seen last; its status may be newer than what was judged.
	Object T
	Read   R

	UID        types.UID
	Generation int64
	// labels and annotations may change without a new generation, and rules may read them.
	labels, annotations map[string]string

	// At is when the rules were asked.
	At       time.Time
	Verdict  guard.Verdict
	Admitted guard.Validated[T]
	// Outdated: the policy, rules or exceptions changed since. Nobody acts before the next judgement.
	Outdated bool
	// Lapses is how often judgements of this name were outdated until now: whoever looked meanwhile looked in vain.
	Lapses int
}

// IsOf says whether the judgement is of the object in this state.
func (j *Judgement[T, R]) IsOf(object T) bool {
	return j.UID == object.GetUID() && j.Generation == object.GetGeneration() &&
		maps.Equal(j.labels, object.GetLabels()) && maps.Equal(j.annotations, object.GetAnnotations())
}

// Settled says whether the judgement is of this very object and still holds, so that status may tell of it.
func (j *Judgement[T, R]) Settled(object T) bool {
	return j.UID == object.GetUID() && j.Generation == object.GetGeneration() && !j.Outdated
}

// Options of a Judge.
type Options[T client.Object, R any] struct {
	// Kind as the rules name it.
	Kind  string
	Guard *guard.Guard
	Clock clock.PassiveClock
	// Rejections learns which rules refuse which policies.
	Rejections *kube.Rejections
	// Read reads what the kind needs of an object, once for each revision; before is what it read of an earlier one, which may
	// be of another object of that name, and the zero value for the first.
	Read func(object T, before R) R
}

// Judge judges the policies of one kind. It is safe for concurrent use, and asks the rules without a lock: they may ask the
// API server what an account may do, and a slow answer about one policy must not keep the others waiting.
type Judge[T client.Object, R any] struct {
	options Options[T, R]
	// again are policies to judge, now or at a time.
	again workqueue.TypedDelayingInterface[types.NamespacedName]

	mu      sync.Mutex
	latest  map[types.NamespacedName]T // needs mu, as all below
	judged  map[types.NamespacedName]Judgement[T, R]
	changes int // of the rules, since the start
	paused  status.Pause
	unread  bool // no Guardrail is read yet
}

// New gives a judge that knows no policy yet.
func New[T client.Object, R any](o Options[T, R]) *Judge[T, R] {
	return &Judge[T, R]{
		options: o, again: kube.NewDelayingQueue[types.NamespacedName](o.Clock),
		latest: map[types.NamespacedName]T{}, judged: map[types.NamespacedName]Judgement[T, R]{},
	}
}

// Observe takes in a policy that is new or changed. It says whether the judgement of it still holds; else it must be judged,
// and until then nobody acts for it.
func (j *Judge[T, R]) Observe(object T) (holds bool) {
	key := client.ObjectKeyFromObject(object)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.latest[key] = object
	was, ok := j.judged[key]
	if !ok {
		return false
	}
	holds = was.IsOf(object)
	was.Object, was.Read, was.Outdated = object, j.options.Read(object, was.Read), was.Outdated || !holds
	j.judged[key] = was
	return holds
}

// Forget drops a policy that is gone.
func (j *Judge[T, R]) Forget(object T) {
	key := client.ObjectKeyFromObject(object)
	j.mu.Lock()
	defer j.mu.Unlock()
	if latest, ok := j.latest[key]; ok && latest.GetUID() == object.GetUID() {
		delete(j.latest, key)
		delete(j.judged, key)
		j.options.Rejections.Note(j.name(key), nil)
	}
}

// Judge asks the rules about a policy as it is now; ok is false when it is gone.
func (j *Judge[T, R]) Judge(ctx context.Context, key types.NamespacedName) (ok bool) {
	j.mu.Lock()
	object, ok := j.latest[key]
	was, changes := j.judged[key], j.changes
	j.mu.Unlock()
	if !ok {
		return false
	}
	judged := Judgement[T, R]{
		UID: object.GetUID(), Generation: object.GetGeneration(),
		labels: object.GetLabels(), annotations: object.GetAnnotations(),
		At: j.options.Clock.Now(), Lapses: was.Lapses,
	}
	if was.Outdated {
		judged.Lapses++
	}
	judgements.WithLabelValues(j.options.Kind).Inc()
	judged.Admitted, judged.Verdict = guard.Admit(ctx, j.options.Guard, object)
	return j.keep(key, judged, changes)
}

// keep takes in a judgement. What changed meanwhile, the policy or the rules, it may not have been of.
func (j *Judge[T, R]) keep(key types.NamespacedName, judged Judgement[T, R], changes int) (ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	latest, ok := j.latest[key]
	if !ok || latest.GetUID() != judged.UID {
		return false
	}
	if j.changes != changes || !judged.IsOf(latest) {
		judged.Outdated = true
		j.again.Add(key)
		if was, ok := j.judged[key]; ok && was.IsOf(latest) {
			return true // by another one, of a newer state
		}
	}
	judged.Object, judged.Read = latest, j.options.Read(latest, j.judged[key].Read)
	j.judged[key] = judged
	j.options.Rejections.Note(j.name(key), judged.Verdict.RuleIDs())
	if at := judged.Verdict.RecheckAt; !at.IsZero() {
		j.again.AddAfter(key, at.Sub(j.options.Clock.Now())+kube.PastDeadline)
	}
	return true
}

// name is the policy's as Rejections has it: Kind/name or Kind/namespace/name.
func (j *Judge[T, R]) name(key types.NamespacedName) string {
	if key.Namespace == "" {
		return j.options.Kind + "/" + key.Name
	}
	return j.options.Kind + "/" + key.String()
}

// Of gives what the rules said of the policy with this name.
func (j *Judge[T, R]) Of(key types.NamespacedName) (Judgement[T, R], bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	judged, ok := j.judged[key]
	return judged, ok
}

// Keys are the policies that were judged.
func (j *Judge[T, R]) Keys() []types.NamespacedName {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Collect(maps.Keys(j.judged))
}

// Unjudged are the policies that are stored and weren't judged yet, so that nothing is known of them but what they say.
func (j *Judge[T, R]) Unjudged() (all []T) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, object := range j.latest {
		if _, ok := j.judged[key]; !ok {
			all = append(all, object)
		}
	}
	return all
}

// Soon has a policy judged by Run.
func (j *Judge[T, R]) Soon(key types.NamespacedName) { j.again.Add(key) }

// Run gives each policy whose time has come to judge, which ends with a call of Judge, until ctx ends. Several may run.
func (j *Judge[T, R]) Run(ctx context.Context, judge func(context.Context, types.NamespacedName)) {
	defer context.AfterFunc(ctx, j.again.ShutDown)()
	for {
		key, stopping := j.again.Get()
		if stopping {
			return
		}
		judge(ctx, key)
		j.again.Done(key)
	}
}

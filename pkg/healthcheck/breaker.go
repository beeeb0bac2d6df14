package healthcheck

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

// BreakerResetAnnotation on a target closes the breaker whose id is its value: what it held back is believed from then on. There is one
// breaker for all targets of a registration: whoever may annotate one of them closes it for all.
const BreakerResetAnnotation = "autohealer.resourcestack.com/reset-breaker"

const (
	// recount lies between two counts of all targets: in a wave each one that turns False asks for it.
	recount = 10 * time.Second
	// doubtPeriod is how often a target is looked at that isn't believed, so that a reset is followed while it holds.
	doubtPeriod = time.Minute

	toBelieve = "; to have it believed, look at what they have in common, then annotate this object with " + BreakerResetAnnotation + "="
)

// opening is the id at the end of the message of what isn't believed. So it outlives the program.
var opening = regexp.MustCompile(regexp.QuoteMeta(toBelieve) + `([0-9a-z]+)$`)

// breaker holds back what turns False when that are too many of a registration's targets at once. It is safe for concurrent use.
type breaker struct {
	// all gives the registration's targets, from the cache; an error counts as none, and the breaker opens sooner.
	all    func(ctx context.Context) ([]*unstructured.Unstructured, error)
	checks []check
	clock  clock.PassiveClock

	mu      sync.Mutex
	flips   health.Flips // needs mu, as all below
	targets int
	counted time.Time
}

// mayFail says whether a condition of the target may turn False now.
func (b *breaker) mayFail(ctx context.Context, target types.NamespacedName, conditionType string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(ctx)
	_, before := b.flips.Breaker()
	may := b.flips.MayFail(target.String(), conditionType, b.targets, b.clock.Now())
	if is, open := b.flips.Breaker(); open && !before {
		log.FromContext(ctx).Info("Too many targets turned False together: what would turn False is Unknown until one of them has the annotation",
			"turnedFalse", is.Flipped, "targets", is.Targets, "annotation", BreakerResetAnnotation+"="+is.ID)
	}
	return may
}

// count needs b.mu.
func (b *breaker) count(ctx context.Context) {
	now := b.clock.Now()
	if !b.counted.IsZero() && now.Sub(b.counted) < recount {
		return
	}
	all, err := b.all(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "Targets couldn't be counted")
	}
	if b.counted.IsZero() {
		b.restore(all)
	}
	b.targets, b.counted = len(all), now
}

// restore takes over the breaker that an earlier program left open, as the targets' conditions tell. It needs b.mu.
func (b *breaker) restore(all []*unstructured.Unstructured) {
	var ids, resets []string
	for _, target := range all {
		resets = append(resets, target.GetAnnotations()[BreakerResetAnnotation])
		for _, c := range b.checks {
			if is := health.Find(target, c.conditionType); is != nil && is.Reason == health.ReasonInDoubt {
				ids = append(ids, idIn(is.Message))
			}
		}
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" || slices.Contains(resets, id) })
	if len(ids) > 0 {
		b.flips.Restore(health.Breaker{ID: slices.Max(ids)}) // the last: ids begin with the time
	}
}

func idIn(message string) string {
	if found := opening.FindStringSubmatch(message); found != nil {
		return found[1]
	}
	return ""
}

// howToBelieve says what to do about what is held back.
func (b *breaker) howToBelieve() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	is, open := b.flips.Breaker()
	if !open {
		return "" // it was reset just now, and the target is looked at again
	}
	return toBelieve + is.ID
}

// follow closes the breaker when the target has its reset.
func (b *breaker) follow(ctx context.Context, target *unstructured.Unstructured) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id := target.GetAnnotations()[BreakerResetAnnotation]; b.flips.Reset(id, b.clock.Now()) {
		log.FromContext(ctx).Info("What turned False is believed: the breaker was reset", "annotation", BreakerResetAnnotation+"="+id)
	}
}

// learn which conditions' checks don't say False.
func (b *breaker) learn(target types.NamespacedName, verdicts map[string]health.Verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conditionType, verdict := range verdicts {
		if !verdict.Fails() {
			b.flips.Recovered(target.String(), conditionType)
		}
	}
}

// unwritten takes back that conditions turned False: the write failed.
func (b *breaker) unwritten(target types.NamespacedName, conditionTypes []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conditionType := range conditionTypes {
		b.flips.Unwritten(target.String(), conditionType)
	}
}

// forget a target that is gone.
func (b *breaker) forget(target types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flips.Forget(target.String())
}

// lookAgain is when a target is to be looked at again: at the plan's deadline, or soon while it isn't believed.
func (b *breaker) lookAgain(p health.Plan) time.Time {
	at := p.LookAgain
	for _, verdict := range p.Verdicts {
		if soon := b.clock.Now().Add(doubtPeriod); verdict.Reason == health.ReasonInDoubt && (at.IsZero() || soon.Before(at)) {
			at = soon
		}
	}
	return at
}

// targets gives all that the registration is about, from the cache.
func (r *reconciler) targets(ctx context.Context) (all []*unstructured.Unstructured, err error) {
	objects, err := r.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list each %s: %w", r.kind.Kind, err)
	}
	for _, o := range objects {
		if target, err := asJSON(o, r.kind); err == nil && target.GetDeletionTimestamp() == nil && r.takes(target) {
			all = append(all, target)
		}
	}
	return all, nil
}

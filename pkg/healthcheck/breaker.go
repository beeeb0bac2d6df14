package healthcheck

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// BreakerResetAnnotation on a target closes the breaker whose id is its value: what it held back is trusted from then on. There is one
// breaker for all targets of a registration: whoever may annotate one of them closes it for all.
const BreakerResetAnnotation = "autohealer.resourcestack.com/reset-breaker"

const (
	// recountPeriod lies between two counts of all targets: in a wave each one that turns False asks for it.
	recountPeriod = 10 * time.Second
	// inDoubtPeriod is how often a target is evaluated that isn't trusted, so that a reset is followed while it holds.
	inDoubtPeriod = time.Minute

	resetHintPrefix = "; to let the condition turn False, look at what the targets have in common, then annotate this object with " + BreakerResetAnnotation + "="
)

// openingIn finds the id at the end of the message of what isn't trusted. So it outlives the program.
var openingIn = regexp.MustCompile(regexp.QuoteMeta(resetHintPrefix) + `([0-9a-z]+)$`)

// breaker holds back what turns False when that are too many of a registration's targets at once. It is safe for concurrent use.
type breaker struct {
	// listTargets gives the registration's targets, from the cache; an error counts as none, and the breaker opens sooner.
	listTargets func(ctx context.Context) ([]*unstructured.Unstructured, error)
	// checked says whether one of them is checked now. What isn't keeps a doubt that may be over for long.
	checked func(ctx context.Context, target types.NamespacedName) bool
	checks  []check
	clock   clock.PassiveClock
	state   health.Breaker
	// logged is the id of the last opening that the log tells of: many come upon one.
	logged atomic.Value

	restoring sync.Mutex
	restored  bool // needs restoring
}

// allowFalse says whether a condition of the target may turn False now that is in doubt or isn't.
func (b *breaker) allowFalse(ctx context.Context, target types.NamespacedName, conditionType string, doubted bool) bool {
	now := b.clock.Now()
	targets := b.state.TargetCount(0, recountPeriod, func() int { return b.count(ctx) }, now) // what a program registers stays
	may := b.state.AllowFalse(target.String(), conditionType, doubted, targets, now)
	if is, open := b.state.Opening(); open && b.logged.Swap(is.ID) != is.ID {
		log.FromContext(ctx).Info("Too many targets turned False together: what would turn False is Unknown until all of that is True again, or one of them has the annotation",
			"turnedFalse", is.Turned, "targets", is.Targets, "annotation", BreakerResetAnnotation+"="+is.ID)
	}
	return may
}

func (b *breaker) count(ctx context.Context) int {
	all, err := b.listTargets(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "Targets couldn't be counted")
	}
	return len(all)
}

// restoreOnce looks, before the first target is judged, what an earlier program left: what is written then may not report it any more.
func (b *breaker) restoreOnce(ctx context.Context) {
	b.restoring.Lock()
	defer b.restoring.Unlock()
	if b.restored {
		return
	}
	all, err := b.listTargets(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "Targets couldn't be read; the breaker that an earlier program left open isn't known")
		return
	}
	b.restore(ctx, all)
	b.restored = true
}

// restore takes over the breaker that an earlier program left open, as the targets' conditions say. If that was reset meanwhile, or
// just before, what it held back is trusted.
func (b *breaker) restore(ctx context.Context, all []*unstructured.Unstructured) {
	last, resets := "", []string{}
	var doubtful []*unstructured.Unstructured
	for _, target := range all {
		resets = append(resets, target.GetAnnotations()[BreakerResetAnnotation])
		if id := b.opening(target); id != "" && b.checked(ctx, client.ObjectKeyFromObject(target)) {
			last, doubtful = max(last, id), append(doubtful, target) // ids begin with the time
		}
	}
	if last == "" {
		return
	}
	b.logged.Store(last)
	b.state.Restore(&limit.Opening{ID: last})
	for _, target := range doubtful {
		for _, conditionType := range b.doubted(target) {
			b.state.RecordVerdict(client.ObjectKeyFromObject(target).String(), conditionType, health.Verdict{Reason: health.ReasonInDoubt})
		}
	}
	closed := slices.Contains(resets, last) && b.state.Reset(last, b.clock.Now())
	log.FromContext(ctx).Info("Too many targets had turned False together before this program began", "annotation", BreakerResetAnnotation+"="+last, "reset", closed)
}

// opening is the id of the last opening that a target's conditions report; "" when they report none.
func (b *breaker) opening(target *unstructured.Unstructured) (last string) {
	for _, conditionType := range b.doubted(target) {
		if found := openingIn.FindStringSubmatch(health.Find(target, conditionType).Message); found != nil {
			last = max(last, found[1])
		}
	}
	return last
}

func (b *breaker) open() bool {
	_, open := b.state.Opening()
	return open
}

// resetHint says what to do about what is held back.
func (b *breaker) resetHint() string {
	is, open := b.state.Opening()
	if !open {
		return "" // it was reset just now, and the target is evaluated again
	}
	return resetHintPrefix + is.ID
}

// checkReset closes the breaker when the target has its reset.
func (b *breaker) checkReset(ctx context.Context, target *unstructured.Unstructured) {
	b.restoreOnce(ctx)
	if id := target.GetAnnotations()[BreakerResetAnnotation]; b.state.Reset(id, b.clock.Now()) {
		log.FromContext(ctx).Info("The breaker was reset: the targets that it held at Unknown may turn False", "annotation", BreakerResetAnnotation+"="+id)
	}
}

// doubted are the condition types that are in doubt.
func (b *breaker) doubted(target *unstructured.Unstructured) (all []string) {
	for _, c := range b.checks {
		if is := health.Find(target, c.conditionType); is != nil && is.Past().Doubted && !health.Owns(target, c.conditionType) {
			all = append(all, c.conditionType)
		}
	}
	return all
}

// forget a target that is gone, or isn't checked now.
func (b *breaker) forget(ctx context.Context, target types.NamespacedName) {
	b.state.Forget(target.String())
	b.closeIfClear(ctx)
}

func (b *breaker) closeIfClear(ctx context.Context) {
	b.restoring.Lock() // an opening that is being restored has nothing in doubt yet
	closed := b.state.CloseIfClear()
	b.restoring.Unlock()
	if closed {
		log.FromContext(ctx).Info("The breaker closed: it holds no target at Unknown any more")
	}
}

// recordVerdicts takes in a plan that was carried out, and says when the target is to be evaluated again: at the plan's deadline, or soon while it isn't
// trusted.
func (b *breaker) recordVerdicts(target types.NamespacedName, p health.Plan) (requeueAt time.Time) {
	requeueAt = p.RequeueAt
	for conditionType, verdict := range p.Verdicts {
		b.state.RecordVerdict(target.String(), conditionType, verdict)
		if verdict.InDoubt() {
			requeueAt = health.Earlier(requeueAt, b.clock.Now().Add(inDoubtPeriod))
		}
	}
	return requeueAt
}

// targets gives all that the registration is about, from the cache.
func (r *reconciler) targets(ctx context.Context) (all []*unstructured.Unstructured, err error) {
	objects, err := r.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list each %s: %w", r.kind.Kind, err)
	}
	for _, o := range objects {
		if target, err := asJSON(o, r.kind); err == nil && target.GetDeletionTimestamp() == nil && r.selects(target) {
			all = append(all, target)
		}
	}
	return all, nil
}

// checked says whether a target is checked now: not while it is suspended, nor where a predicate keeps it from being looked at since
// the program began. In doubt it is.
func (r *reconciler) checked(ctx context.Context, key types.NamespacedName) bool {
	target := r.newTarget()
	if err := r.reader.Get(ctx, key, target); err != nil {
		return client.IgnoreNotFound(err) != nil
	}
	refused := slices.ContainsFunc(r.predicates, func(p predicate.Predicate) bool {
		return !p.Create(event.CreateEvent{Object: target, IsInInitialList: true})
	})
	return !refused && (r.suspended == nil || !r.suspended(target))
}

// gauge is 1 while it is open.
func (b *breaker) gauge(labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "autohealer_healthcheck_breaker_open",
		Help:        "1 while conditions that turn False are held at Unknown, because those of too many targets of a registration did together.",
		ConstLabels: labels,
	}, func() float64 {
		if b.open() {
			return 1
		}
		return 0
	})
}

package healthcheckregistration

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

// book has what was found of each registration's targets, and their breakers. It is safe for concurrent use; the zero value is
// empty.
type book struct {
	mu sync.Mutex
	of map[types.UID]*page // needs mu
}

type page struct {
	targets map[checking.Target]entry
	flips   health.Flips
}

// entry is what was found of one target.
type entry struct {
	verdicts map[string]health.Verdict
	// problem says why a condition isn't written; "" when all are.
	problem string
}

// page needs b.mu.
func (b *book) page(uid types.UID) *page {
	p := b.of[uid]
	if p == nil {
		p = &page{targets: map[checking.Target]entry{}}
		if b.of == nil {
			b.of = map[types.UID]*page{}
		}
		b.of[uid] = p
	}
	return p
}

// note takes in what was found of a target; changed says that it is something else than before.
func (b *book) note(uid types.UID, target checking.Target, found entry) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.page(uid)
	was, known := p.targets[target]
	p.targets[target] = found
	if !known || was.problem != found.problem || len(was.verdicts) != len(found.verdicts) {
		return true
	}
	for t, v := range found.verdicts {
		if w, ok := was.verdicts[t]; !ok || w.Status != v.Status || w.Message != v.Message {
			return true
		}
	}
	return false
}

// drop forgets a target of all registrations but those that still select it, and gives those that it was dropped from.
func (b *book) drop(target checking.Target, but map[types.UID]bool) (from []types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, p := range b.of {
		if _, ok := p.targets[target]; ok && !but[uid] {
			delete(p.targets, target)
			p.flips.Forget(nameOf(target).String())
			from = append(from, uid)
		}
	}
	return from
}

func (b *book) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, uid)
}

// mayFail says whether a condition of a target may turn False now, for a registration with so many targets.
func (b *book) mayFail(uid types.UID, target checking.Target, targets int, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.page(uid).flips.MayFail(nameOf(target).String(), targets, now)
}

// notFailed takes back that a target turned False: the write didn't come about.
func (b *book) notFailed(uid types.UID, target checking.Target) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.page(uid).flips.Forget(nameOf(target).String())
}

// followBreaker takes over a breaker that another process opened, and closes one that was reset.
func (b *book) followBreaker(hcr *v1alpha1.HealthCheckRegistration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.page(hcr.UID)
	reset := hcr.Annotations[v1alpha1.AnnotationResetBreaker]
	if s := hcr.Status.Breaker; s != nil && s.ID != reset {
		p.flips.Restore(health.Breaker{ID: s.ID, OpenedAt: s.OpenedAt.Time})
	}
	p.flips.Reset(reset)
}

func (b *book) breaker(uid types.UID) (health.Breaker, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.page(uid).flips.Breaker()
}

// summary is what a status tells of all targets.
type summary struct {
	targets, healthy, unhealthy, progressing, unknown int32
	worst                                             []v1alpha1.UnhealthyTarget
	// unwritten are targets with a problem, and problem that of the first by name.
	unwritten int
	problem   string
}

// ranks orders statuses from the worst.
var ranks = map[health.Status]int{health.False: 0, health.Unknown: 1, health.Progressing: 2, health.True: 3}

func (b *book) summary(uid types.UID) (s summary) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := ""
	for target, e := range b.page(uid).targets {
		s.targets++
		worst := health.True
		for conditionType, v := range e.verdicts {
			if ranks[v.Status] < ranks[worst] {
				worst = v.Status
			}
			if v.Status != health.True {
				s.worst = append(s.worst, v1alpha1.UnhealthyTarget{
					Namespace: target.Key.Namespace, Name: target.Key.Name, ConditionType: conditionType, Status: string(v.Status), Message: shortened(v.Message),
				})
			}
		}
		*map[health.Status]*int32{health.True: &s.healthy, health.False: &s.unhealthy, health.Progressing: &s.progressing, health.Unknown: &s.unknown}[worst]++
		if e.problem != "" {
			s.unwritten++
			if name := target.Key.String(); first == "" || name < first {
				first, s.problem = name, e.problem
			}
		}
	}
	slices.SortFunc(s.worst, func(a, b v1alpha1.UnhealthyTarget) int {
		return cmp.Or(cmp.Compare(ranks[health.Status(a.Status)], ranks[health.Status(b.Status)]), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name), strings.Compare(a.ConditionType, b.ConditionType))
	})
	s.worst = s.worst[:min(len(s.worst), worstKept)]
	return s
}

const (
	worstKept   = 20
	messageKept = 512
)

// shortened is a message as status keeps it.
func shortened(message string) string {
	if len(message) <= messageKept {
		return message
	}
	return strings.ToValidUTF8(message[:messageKept-len("…")], "") + "…"
}

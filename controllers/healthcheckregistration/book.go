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
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// book has what was found of each registration's targets, and their breakers. It is safe for concurrent use; the zero value is
// empty.
type book struct {
	mu sync.Mutex
	of map[types.UID]*page // needs mu
}

type page struct {
	// generation of the registration that targets were looked at for.
	generation int64
	targets    map[checking.Target]entry
	// complete: there was a moment when each of its targets had been looked at.
	complete bool
	flips    health.Flips
}

// entry is what was found of one target. With thousands of targets each byte counts: it has what a status tells, in a slice.
type entry struct {
	verdicts []verdict
	// problem says why a condition isn't written; "" when all are.
	problem string
}

// verdict is what the checks of one condition type said.
type verdict struct {
	conditionType string
	status        health.Status
	// message of what isn't True.
	message string
}

func verdictOf(conditionType string, v health.Verdict) verdict {
	if v.Status == health.True {
		return verdict{conditionType: conditionType, status: v.Status}
	}
	return verdict{conditionType, v.Status, v.Message}
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
	return !known || was.problem != found.problem || !slices.Equal(was.verdicts, found.verdicts)
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

// mayFail says whether a condition of a target may turn False now that is in doubt or isn't, for a registration with so many targets.
func (b *book) mayFail(uid types.UID, target checking.Target, conditionType string, doubted bool, targets int, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.page(uid).flips.MayFail(nameOf(target).String(), conditionType, doubted, targets, now)
}

// notFailed takes back that a condition turned False: the write didn't come about.
func (b *book) notFailed(uid types.UID, target checking.Target, conditionType string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.page(uid).flips.Unwritten(nameOf(target).String(), conditionType)
}

// complete says whether each of a registration's targets was looked at: now, or once before, when it doesn't ask which there are.
// Those that come later are counted once they are.
func (b *book) complete(uid types.UID, selected func() []checking.Target) bool {
	b.mu.Lock()
	once, of := b.page(uid).complete, b.page(uid).generation
	b.mu.Unlock()
	if once {
		return true
	}
	targets := selected()
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.page(uid)
	if p.generation != of { // whose targets are others
		return false
	}
	p.complete = !slices.ContainsFunc(targets, func(t checking.Target) bool {
		_, known := p.targets[t]
		return !known
	})
	return p.complete
}

// follow takes in a registration as it is stored: what was found by its checks of before is forgotten, a breaker that another
// process opened is taken over, and one that was reset is closed.
func (b *book) follow(hcr *v1alpha1.HealthCheckRegistration, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.page(hcr.UID)
	if p.generation != hcr.Generation {
		p.generation, p.complete = hcr.Generation, false
		clear(p.targets)
	}
	reset := hcr.Annotations[v1alpha1.AnnotationResetBreaker]
	p.flips.Reset(reset, now) // first, since the status may tell of a later one
	if s := hcr.Status.Breaker; s != nil {
		p.flips.Restore(limit.Opening{ID: s.ID, OpenedAt: s.OpenedAt.Time})
		p.flips.Reset(reset, now) // while nobody ran: what it held back is believed from now on
	}
}

func (b *book) breaker(uid types.UID) (limit.Opening, bool) {
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
		for _, v := range e.verdicts {
			if ranks[v.status] < ranks[worst] {
				worst = v.status
			}
			if v.status != health.True {
				s.worst = append(s.worst, v1alpha1.UnhealthyTarget{
					Namespace: target.Key.Namespace, Name: target.Key.Name, ConditionType: v.conditionType, Status: string(v.status), Message: shortened(v.message),
				})
			}
		}
		switch worst {
		case health.True:
			s.healthy++
		case health.False:
			s.unhealthy++
		case health.Progressing:
			s.progressing++
		case health.Unknown:
			s.unknown++
		}
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

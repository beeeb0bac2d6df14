package healthcheckregistration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// resultStore has what is remembered of each registration by its UID. It is safe for concurrent use; the zero value is empty.
type resultStore struct {
	mu    sync.Mutex
	byUID map[types.UID]*registrationResults // needs mu, as below
	// previousBreakers are the breakers of registrations that are gone, by name, as long as something counts of them.
	previousBreakers map[string]*health.Breaker
}

// registrationResults is what is remembered of one registration, and its breaker.
type registrationResults struct {
	// name of the registration, which stays.
	name    string
	breaker health.Breaker

	mu sync.Mutex
	// generation of it that targets were evaluated for; needs mu, as all below.
	generation int64
	targets    map[checking.Target]targetResult
	// complete: there was a moment when each of its targets had been evaluated.
	complete bool
	// statusWrittenAt is when its status was.
	statusWrittenAt time.Time
	// notified is what it meant to its targets when they were last asked for because of it; nil when they weren't. It needs the
	// Observer's notifying.
	notified *fingerprint
}

// targetResult is what was found of one target. With thousands of targets each byte counts: it has what a status reports, in a slice.
type targetResult struct {
	verdicts []conditionResult
	// problem says why a condition isn't written; "" when all are.
	problem string
	// contested is a condition type that somebody else keeps writing; "" when there is none.
	contested string
}

// conditionResult is what the checks of one condition type said.
type conditionResult struct {
	conditionType string
	status        health.Status
	// message of what isn't True.
	message string
}

func conditionResultOf(conditionType string, v health.Verdict) conditionResult {
	if v.Status == health.True {
		return conditionResult{conditionType: conditionType, status: v.Status}
	}
	return conditionResult{conditionType, v.Status, v.Message}
}

// results is that of a registration; nil when it is forgotten, or not followed yet.
func (b *resultStore) results(uid types.UID) *registrationResults {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byUID[uid]
}

// update takes in a registration as it is stored. Nothing else begins results: evaluations outlast their registrations, and nobody would
// forget what they began.
func (b *resultStore) update(hcr *v1alpha1.HealthCheckRegistration, now time.Time) {
	b.mu.Lock()
	p := b.byUID[hcr.UID]
	if p == nil {
		p = &registrationResults{name: hcr.Name, targets: map[checking.Target]targetResult{}}
		if previous := b.previousBreaker(hcr.Name); previous != nil {
			p.breaker.Inherit(previous)
		}
		if b.byUID == nil {
			b.byUID = map[types.UID]*registrationResults{}
		}
		b.byUID[hcr.UID] = p
	}
	b.mu.Unlock()
	p.update(hcr, now)
}

func (b *resultStore) forget(uid types.UID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.byUID[uid]; p != nil {
		if b.previousBreakers == nil {
			b.previousBreakers = map[string]*health.Breaker{}
		}
		b.previousBreakers[p.name] = &health.Breaker{}
		b.previousBreakers[p.name].Inherit(&p.breaker)
	}
	delete(b.byUID, uid)
	maps.DeleteFunc(b.previousBreakers, func(_ string, breaker *health.Breaker) bool { return !breaker.HasRecent(now) })
}

// previousBreaker gives the breaker of the registration that had a name before, which may not be forgotten yet; nil for none. It needs b.mu.
func (b *resultStore) previousBreaker(name string) *health.Breaker {
	for _, p := range b.byUID {
		if p.name == name {
			return &p.breaker
		}
	}
	return b.previousBreakers[name]
}

// drop forgets a target of all registrations but those that still select it, and gives the names of those that it was dropped from.
func (b *resultStore) drop(target checking.Target, but map[types.UID]bool) (from []string) {
	for _, p := range b.allBut(but) {
		if p.drop(target) {
			from = append(from, p.name)
		}
	}
	return from
}

// allBut are all but those of some registrations. Whoever waits for one of them must not hold up who looks for another.
func (b *resultStore) allBut(but map[types.UID]bool) (all []*registrationResults) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, p := range b.byUID {
		if !but[uid] {
			all = append(all, p)
		}
	}
	return all
}

func (p *registrationResults) drop(target checking.Target) (known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known = p.targets[target]
	delete(p.targets, target)
	return p.breaker.Forget(nameOf(target).String()) || known // something may be in doubt of one that wasn't looked at since the registration changed
}

// record takes in what was found of a target; changed says that it is something else than before.
func (p *registrationResults) record(target checking.Target, found targetResult) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, known := p.targets[target]
	p.targets[target] = found
	return !known || was.problem != found.problem || was.contested != found.contested || !slices.Equal(was.verdicts, found.verdicts)
}

// allEvaluated says whether each of a registration's targets was evaluated: now, or once before, when it doesn't ask which there are.
// Those that come later are counted once they are.
func (p *registrationResults) allEvaluated(selected func() []checking.Target) bool {
	p.mu.Lock()
	once, of := p.complete, p.generation
	p.mu.Unlock()
	if once {
		return true
	}
	targets := selected()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.generation != of { // whose targets are others
		return false
	}
	p.complete = !slices.ContainsFunc(targets, func(t checking.Target) bool {
		_, known := p.targets[t]
		return !known
	})
	return p.complete
}

// update takes in the registration as it is stored: what was found by its checks of before is forgotten, a breaker that another
// process opened is taken over, and one that was reset is closed.
func (p *registrationResults) update(hcr *v1alpha1.HealthCheckRegistration, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.generation != hcr.Generation {
		p.generation, p.complete = hcr.Generation, false
		clear(p.targets)
		decides := sets.New[string]()
		for i := range hcr.Spec.Checks {
			decides.Insert(hcr.Spec.Checks[i].ConditionType)
		}
		p.breaker.SetConditionTypes(decides)
	}
	reset := hcr.Annotations[v1alpha1.AnnotationResetBreaker]
	p.breaker.Reset(reset, now) // first, since the status may report a later one
	var stored *limit.Opening
	if s := hcr.Status.Breaker; s != nil {
		stored = &limit.Opening{ID: s.ID, OpenedAt: s.OpenedAt.Time}
	}
	p.breaker.Restore(stored)
	p.breaker.Reset(reset, now) // while nobody ran: what it held back is trusted from now on
}

// summary is what a status reports of all targets.
type summary struct {
	targets int32
	// by the worst of their conditions.
	by    map[health.Status]int32
	worst []v1alpha1.UnhealthyTarget
	// unwritten are targets with a problem, and problem that of the first by name.
	unwritten int
	problem   string
	// contested are targets with a contested condition, and contest names that of the first by name.
	contested int
	contest   string
}

func (p *registrationResults) summary() summary {
	s := summary{by: map[health.Status]int32{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	first, firstContested := "", ""
	for target, e := range p.targets {
		s.targets++
		worst := health.True
		for _, v := range e.verdicts {
			if health.CompareStatus(v.status, worst) < 0 {
				worst = v.status
			}
			if v.status != health.True {
				s.worst = append(s.worst, v1alpha1.UnhealthyTarget{
					Namespace: target.Key.Namespace, Name: target.Key.Name, ConditionType: v.conditionType, Status: string(v.status), Message: health.Shortened(v.message, maxMessage),
				})
			}
		}
		s.by[worst]++
		if e.problem != "" {
			s.unwritten++
			if name := target.Key.String(); first == "" || name < first {
				first, s.problem = name, e.problem
			}
		}
		if e.contested != "" {
			s.contested++
			if name := target.Key.String(); firstContested == "" || name < firstContested {
				firstContested, s.contest = name, fmt.Sprintf("%s of %s %s", e.contested, target.Kind.Kind, strings.TrimPrefix(name, "/"))
			}
		}
	}
	slices.SortFunc(s.worst, func(a, b v1alpha1.UnhealthyTarget) int {
		return cmp.Or(health.CompareStatus(health.Status(a.Status), health.Status(b.Status)), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name), strings.Compare(a.ConditionType, b.ConditionType))
	})
	s.worst = s.worst[:min(len(s.worst), maxWorst)]
	return s
}

const (
	maxWorst   = 20
	maxMessage = 512
)

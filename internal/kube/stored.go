package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// keepRules is for how long a list that agreed is believed: an act, or a storm of them, costs one list of each kind in
	// that time, and none while nothing is done.
	keepRules = 10 * time.Second
	// relistRules lies between two lists that didn't agree, unless the watch brings news.
	relistRules = time.Second
	// listTakes bounds one list: what waits for it holds up an undo, too.
	listTakes = 5 * time.Second
	// newsTakes is how long a change may take by the watch. A difference that lasts longer is trouble.
	newsTakes = 5 * time.Second
)

// Stored asks the API server, not the cache, whether what rules over all acts is still what is in force: an informer whose
// watch died silently would let act what a Guardrail forbids by now. It is safe for concurrent use.
type Stored struct {
	Reader client.Reader
	Clock  clock.PassiveClock
	// Kinds that rule.
	Kinds []Ruling

	mu   sync.Mutex
	seen []sight // needs mu; one a kind
}

// Ruling is a kind that rules over all acts.
type Ruling struct {
	Kind schema.GroupVersionKind
	// InForce are the generations in force, by UID; nil while they aren't known.
	InForce func() map[types.UID]int64
	// Lifts: the kind only ever allows more, so that one which isn't in force yet does no harm.
	Lifts bool
}

// sight is what the API server told last.
type sight struct {
	generations map[types.UID]int64
	at          time.Time
	// inForce then.
	inForce map[types.UID]int64
	// differs is since when it isn't what is in force; zero when it is.
	differs time.Time
	// failed is what became of the list that began at failedAt, for all who waited for it; nil when it succeeded.
	failed   error
	failedAt time.Time
}

// Check gives an error unless what is in force is what is stored.
func (s *Stored) Check(ctx context.Context) error {
	s.mu.Lock() // held while listing, so that one list serves all who wait
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = make([]sight, len(s.Kinds))
	}
	for i := range s.Kinds {
		if err := s.check(ctx, s.Kinds[i], &s.seen[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stored) check(ctx context.Context, r Ruling, seen *sight) error {
	inForce := r.InForce()
	if inForce == nil {
		return fmt.Errorf("every %s must be known before anything is done", r.Kind.Kind)
	}
	if r.Lifts && len(inForce) == 0 {
		return nil
	}
	now := s.Clock.Now()
	age := now.Sub(seen.at)
	news := age >= relistRules || !maps.Equal(inForce, seen.inForce)
	if age >= keepRules || news && !r.agree(inForce, seen.generations) {
		if err := s.relist(ctx, r, seen, now); err != nil {
			return err
		}
		inForce = seen.inForce
	}
	if r.agree(inForce, seen.generations) {
		seen.differs = time.Time{}
		return nil
	}
	if seen.differs.IsZero() {
		seen.differs = now
	}
	err := fmt.Errorf("the API server has another %s than is in force here", r.Kind.Kind)
	if now.Sub(seen.differs) < newsTakes {
		return errors.Join(ErrSuperseded, err) // on its way by the watch
	}
	return fmt.Errorf("%w, since %s: the watch of it tells nothing", err, seen.differs.UTC().Format(time.RFC3339))
}

// relist asks the API server, unless it has just failed to answer somebody else.
func (s *Stored) relist(ctx context.Context, r Ruling, seen *sight, now time.Time) error {
	if seen.failed != nil && now.Sub(seen.failedAt) < relistRules {
		return seen.failed
	}
	generations, err := s.list(ctx, r.Kind)
	if err != nil {
		seen.failed, seen.failedAt = fmt.Errorf("list every %s before acting: %w", r.Kind.Kind, err), s.Clock.Now()
		return seen.failed
	}
	seen.failed, seen.generations, seen.at = nil, generations, now
	seen.inForce = r.InForce() // news may have come meanwhile
	return nil
}

func (r Ruling) agree(inForce, stored map[types.UID]int64) bool {
	if stored == nil {
		return false
	}
	if !r.Lifts {
		return maps.Equal(inForce, stored)
	}
	for uid, generation := range inForce {
		if is, ok := stored[uid]; !ok || is != generation {
			return false
		}
	}
	return true
}

func (s *Stored) list(ctx context.Context, kind schema.GroupVersionKind) (map[types.UID]int64, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	ctx, cancel := context.WithTimeout(ctx, listTakes)
	defer cancel()
	if err := s.Reader.List(ctx, &list); err != nil {
		return nil, err
	}
	generations := make(map[types.UID]int64, len(list.Items))
	for i := range list.Items {
		generations[list.Items[i].UID] = list.Items[i].Generation
	}
	return generations, nil
}

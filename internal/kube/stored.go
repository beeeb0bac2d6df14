package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// keepRules is for how long a list that agreed is believed, and for how long after an act there are lists for the next one.
	keepRules = 10 * time.Second
	// renewRules is how old a list is when the next is asked for: whoever acts shouldn't have to wait for it.
	renewRules = keepRules - 2*relistRules
	// relistRules lies between two lists that didn't agree, unless the watch brings news.
	relistRules = time.Second
	// listTakes bounds one list: what waits for it holds up an undo, too.
	listTakes = 5 * time.Second
	// newsTakes is how long a change may take by the watch, and how long the API server may fail to answer. What lasts longer
	// is trouble.
	newsTakes = 5 * time.Second
)

// Stored asks the API server, not the cache, whether what rules over all acts is still what is in force: an informer whose
// watch died silently would let act what a Guardrail forbids by now. It is safe for concurrent use.
type Stored struct {
	Reader client.Reader
	Clock  clock.Clock
	// Kinds that rule.
	Kinds []Ruling
	// Interruptions counts watches that failed. After each the API server is asked again: it may have failed since it may not watch any more, or
	// since the CRD is gone. Default: none does.
	Interruptions func() int64
	// Lost is told why it isn't known any more what rules, also while nothing is done; "" when it is again. Start calls it, when
	// that changed.
	Lost func(why string)

	mu    sync.Mutex
	seen  []sight   // needs mu; one a kind
	acted time.Time // needs mu: when somebody last checked before an act
}

// Ruling is a kind that rules over all acts.
type Ruling struct {
	Kind schema.GroupVersionKind
	// Definition is the name of its CRD.
	Definition string
	// All objects of the kind that are known, such as a Collection.
	All interface {
		// InForce are the generations in force, by UID; nil while they aren't known.
		InForce() map[types.UID]int64
		// Changes counts what the watch told of, in force or not yet. After each the API server is asked again: when its CRD
		// is deleted, an object goes as if somebody had taken it back.
		Changes() int
	}
	// Lifts: the kind only ever allows more, so that one which isn't in force yet does no harm.
	Lifts bool
}

// sight is what the API server told last.
type sight struct {
	generations map[types.UID]int64
	at          time.Time
	// inForce, changes and interruptions then.
	inForce       map[types.UID]int64
	changes       int
	interruptions int64
	// differs is since when it isn't what is in force; zero when it is.
	differs time.Time
	// failed is what became of the list that began at failedAt, for all who waited for it; nil when it succeeded.
	failed   error
	failedAt time.Time
}

// NeedLeaderElection is false: a standby that takes over should know already.
func (*Stored) NeedLeaderElection() bool { return false }

// Start checks again and again until ctx ends: while there are acts, so that none waits for a list; and when the watches tell of something or
// fail, so that a manager which has nothing to do finds out as well. Else it asks nothing: the first act will.
func (s *Stored) Start(ctx context.Context) error {
	var wrong time.Time
	var lost string
	for {
		var err error
		was := lost
		if s.due() {
			s.renew(ctx)
			err = s.verify(ctx)
		}
		switch {
		case err == nil || !s.known():
			wrong, lost = time.Time{}, ""
		case wrong.IsZero():
			wrong = s.Clock.Now()
		case s.Clock.Since(wrong) >= newsTakes && !errors.Is(err, ErrSuperseded):
			lost = err.Error()
		}
		if lost != was {
			log.FromContext(ctx).Info("Whether Guardrails are known changed; while they aren't, nothing new is done", "known", lost == "", "trouble", lost)
			s.Lost(lost)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Clock.After(relistRules):
		}
	}
}

// due says whether somebody acts, or what is known isn't surely what is stored.
func (s *Stored) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil || s.Clock.Since(s.acted) < keepRules {
		return true
	}
	for i, r := range s.Kinds {
		inForce := r.All.InForce()
		if r.Lifts && inForce != nil && len(inForce) == 0 {
			continue // it isn't asked for
		}
		if seen := &s.seen[i]; seen.failed != nil || s.news(r, seen) || !r.agree(inForce, seen.generations) {
			return true
		}
	}
	return false
}

// renew lists anew what will soon be too old to be believed, while whoever acts goes on by what there is. What fails is left
// for Check to find.
func (s *Stored) renew(ctx context.Context) {
	for i, r := range s.Kinds {
		now := s.Clock.Now()
		was, fading := s.fading(i, now)
		fresh := was
		if !fading || s.relist(ctx, r, &fresh, now) != nil {
			continue
		}
		s.mu.Lock()
		if seen := &s.seen[i]; seen.at.Equal(was.at) { // nobody else listed meanwhile
			fresh.differs = seen.differs
			*seen = fresh
		}
		s.mu.Unlock()
	}
}

func (s *Stored) fading(kind int, now time.Time) (seen sight, fading bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		return sight{}, false
	}
	seen = s.seen[kind]
	return seen, !seen.at.IsZero() && now.Sub(seen.at) >= renewRules
}

// known says whether what is in force was known once; before, it is awaited elsewhere.
func (s *Stored) known() bool {
	return !slices.ContainsFunc(s.Kinds, func(r Ruling) bool { return r.All.InForce() == nil })
}

// Check gives an error unless what is in force is what is stored.
func (s *Stored) Check(ctx context.Context) error {
	s.mu.Lock()
	s.acted = s.Clock.Now()
	s.mu.Unlock()
	return s.verify(ctx)
}

func (s *Stored) verify(ctx context.Context) error {
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
	inForce := r.All.InForce()
	if inForce == nil {
		return fmt.Errorf("every %s must be known before anything is done", r.Kind.Kind)
	}
	if r.Lifts && len(inForce) == 0 {
		return nil
	}
	now := s.Clock.Now()
	if s.mustList(r, seen, inForce, now) {
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

// mustList says whether what the API server told last may not be believed.
func (s *Stored) mustList(r Ruling, seen *sight, inForce map[types.UID]int64, now time.Time) bool {
	age := now.Sub(seen.at)
	again := age >= relistRules || !maps.Equal(inForce, seen.inForce)
	return age >= keepRules || s.news(r, seen) || again && !r.agree(inForce, seen.generations)
}

// news says whether the watch told of something since the last list, or failed.
func (s *Stored) news(r Ruling, seen *sight) bool {
	return r.All.Changes() != seen.changes || s.interruptions() != seen.interruptions
}

func (s *Stored) interruptions() int64 {
	if s.Interruptions == nil {
		return 0
	}
	return s.Interruptions()
}

// relist asks the API server, unless it has just failed to answer somebody else.
func (s *Stored) relist(ctx context.Context, r Ruling, seen *sight, now time.Time) error {
	if seen.failed != nil && now.Sub(seen.failedAt) < relistRules {
		return seen.failed
	}
	changes, interruptions := r.All.Changes(), s.interruptions()
	generations, err := s.list(ctx, r)
	if err != nil {
		seen.failed, seen.failedAt = fmt.Errorf("list every %s before acting: %w", r.Kind.Kind, err), s.Clock.Now()
		return seen.failed
	}
	seen.failed, seen.generations, seen.at = nil, generations, now
	seen.changes, seen.interruptions = changes, interruptions
	seen.inForce = r.All.InForce() // news may have come meanwhile
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

func (s *Stored) list(ctx context.Context, r Ruling) (map[types.UID]int64, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(r.Kind.GroupVersion().WithKind(r.Kind.Kind + "List"))
	ctx, cancel := context.WithTimeout(ctx, listTakes)
	defer cancel()
	if err := s.stays(ctx, r.Definition); err != nil {
		return nil, err
	}
	if err := s.Reader.List(ctx, &list); err != nil {
		return nil, err
	}
	generations := make(map[types.UID]int64, len(list.Items))
	for i := range list.Items {
		generations[list.Items[i].UID] = list.Items[i].Generation
	}
	return generations, nil
}

// stays gives an error while a CRD is being deleted: its objects go first, as if somebody had taken back what they forbid.
func (s *Stored) stays(ctx context.Context, definition string) error {
	var crd metav1.PartialObjectMetadata
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := s.Reader.Get(ctx, client.ObjectKey{Name: definition}, &crd); err != nil {
		return err
	}
	if crd.DeletionTimestamp != nil {
		return fmt.Errorf("the CRD %s is being deleted", definition)
	}
	return nil
}

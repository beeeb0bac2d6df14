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
	// listValidFor is for how long a list that agreed is trusted, and for how long after an act there are lists for the next one.
	listValidFor = 10 * time.Second
	// renewListAfter is how old a list is when the next is requested: an act shouldn't have to wait for it.
	renewListAfter = listValidFor - 2*relistInterval
	// relistInterval lies between two lists that didn't agree, unless the watch delivers an event.
	relistInterval = time.Second
	// listTimeout bounds one list: what waits for it holds up an undo, too.
	listTimeout = 5 * time.Second
	// maxWatchLag is how long a change may take by the watch, and how long the API server may fail to answer. What lasts longer
	// is trouble.
	maxWatchLag = 5 * time.Second
)

// Stored asks the API server, not the cache, whether what rules over all acts is still what is in force: an informer whose
// watch died silently would let act what a Guardrail forbids by now. It is safe for concurrent use.
type Stored struct {
	Reader client.Reader
	Clock  clock.Clock
	// Kinds that rule.
	Kinds []RuleKind
	// WatchFailures counts watches that failed, such as that of a CRD that is gone. After each the API server is asked again.
	WatchFailures func() int64
	// Lost is called by Start, also while nothing is done, with why the rules in force aren't known; with "" once they are again.
	Lost func(why string)

	mu     sync.Mutex
	states []storedState // needs mu; one a kind
	acted  time.Time     // needs mu: when somebody last checked before an act
}

// RuleKind is a kind whose objects rule over all acts.
type RuleKind struct {
	Kind schema.GroupVersionKind
	// Definition is the name of its CRD.
	Definition string
	// All objects of the kind that are known, such as a Collection.
	All interface {
		// InForce are the generations in force, by UID; nil while they aren't known.
		InForce() map[types.UID]int64
		// Changes counts what the watch delivered, in force or not yet. After each the API server is asked again: when its CRD
		// is deleted, an object goes as if somebody had taken it back.
		Changes() int
	}
	// AdditiveOnly: the kind only ever allows more, so that an object that isn't in force yet does no harm.
	AdditiveOnly bool
}

// storedState is the API server's last answer.
type storedState struct {
	generations map[types.UID]int64
	at          time.Time
	// inForce, changes and failures of watches then.
	inForce       map[types.UID]int64
	changes       int
	watchFailures int64
	// differs is since when it isn't what is in force; zero when it is.
	differs time.Time
	// failed is what became of the list that began at failedAt, for all who waited for it; nil when it succeeded.
	failed   error
	failedAt time.Time
}

// NeedLeaderElection is false: a standby that takes over should know already.
func (*Stored) NeedLeaderElection() bool { return false }

// Start checks again and again until ctx ends: while there are acts, so that none waits for a list; and when the watches deliver events or
// fail, so that an idle manager notices as well. Otherwise it requests nothing: the first act will.
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
		case s.Clock.Since(wrong) >= maxWatchLag && !errors.Is(err, ErrSuperseded):
			lost = err.Error()
		}
		if lost != was {
			message := "Guardrails can be read again"
			if lost != "" {
				message = "Can't read what Guardrails forbid, so nothing new is done"
			}
			log.FromContext(ctx).Info(message, "reason", lost)
			s.Lost(lost)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Clock.After(relistInterval):
		}
	}
}

// due says whether somebody acts, or what is known isn't surely what is stored.
func (s *Stored) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states == nil || s.Clock.Since(s.acted) < listValidFor {
		return true
	}
	for i, r := range s.Kinds {
		inForce := r.All.InForce()
		if r.AdditiveOnly && inForce != nil && len(inForce) == 0 {
			continue // it isn't asked for
		}
		if seen := &s.states[i]; seen.failed != nil || s.watchChanged(r, seen) || !r.agree(inForce, seen.generations) {
			return true
		}
	}
	return false
}

// renew lists again what will soon be too old to be trusted, while acts proceed by the last list. Failures are left for
// Check to find.
func (s *Stored) renew(ctx context.Context) {
	for i, r := range s.Kinds {
		now := s.Clock.Now()
		was, fading := s.expiring(i, now)
		fresh := was
		if !fading || s.relist(ctx, r, &fresh, now) != nil {
			continue
		}
		s.mu.Lock()
		if seen := &s.states[i]; seen.at.Equal(was.at) { // nobody else listed meanwhile
			fresh.differs = seen.differs
			*seen = fresh
		}
		s.mu.Unlock()
	}
}

func (s *Stored) expiring(kind int, now time.Time) (seen storedState, expiring bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states == nil {
		return storedState{}, false
	}
	seen = s.states[kind]
	return seen, !seen.at.IsZero() && now.Sub(seen.at) >= renewListAfter
}

// known says whether what is in force was known once; before, it is awaited elsewhere.
func (s *Stored) known() bool {
	return !slices.ContainsFunc(s.Kinds, func(r RuleKind) bool { return r.All.InForce() == nil })
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
	if s.states == nil {
		s.states = make([]storedState, len(s.Kinds))
	}
	for i := range s.Kinds {
		if err := s.check(ctx, s.Kinds[i], &s.states[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stored) check(ctx context.Context, r RuleKind, seen *storedState) error {
	inForce := r.All.InForce()
	if inForce == nil {
		return fmt.Errorf("every %s must be known before anything is done", r.Kind.Kind)
	}
	if r.AdditiveOnly && len(inForce) == 0 {
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
	err := fmt.Errorf("the API server has another %s than this manager has in force", r.Kind.Kind)
	if now.Sub(seen.differs) < maxWatchLag {
		return errors.Join(ErrSuperseded, err) // on its way by the watch
	}
	return fmt.Errorf("%w, since %s: its watch reports no change", err, seen.differs.UTC().Format(time.RFC3339))
}

// mustList says whether the API server's last answer may not be trusted.
func (s *Stored) mustList(r RuleKind, seen *storedState, inForce map[types.UID]int64, now time.Time) bool {
	age := now.Sub(seen.at)
	again := age >= relistInterval || !maps.Equal(inForce, seen.inForce)
	return age >= listValidFor || s.watchChanged(r, seen) || again && !r.agree(inForce, seen.generations)
}

// watchChanged says whether the watch delivered an event since the last list, or failed.
func (s *Stored) watchChanged(r RuleKind, seen *storedState) bool {
	return r.All.Changes() != seen.changes || s.WatchFailures() != seen.watchFailures
}

// relist asks the API server, unless it has just failed to answer somebody else.
func (s *Stored) relist(ctx context.Context, r RuleKind, seen *storedState, now time.Time) error {
	if seen.failed != nil && now.Sub(seen.failedAt) < relistInterval {
		return seen.failed
	}
	changes, failures := r.All.Changes(), s.WatchFailures()
	generations, err := s.list(ctx, r)
	if err != nil {
		seen.failed, seen.failedAt = fmt.Errorf("list every %s before acting: %w", r.Kind.Kind, err), s.Clock.Now()
		return seen.failed
	}
	seen.failed, seen.generations, seen.at = nil, generations, now
	seen.changes, seen.watchFailures = changes, failures
	seen.inForce = r.All.InForce() // news may have come meanwhile
	return nil
}

func (r RuleKind) agree(inForce, stored map[types.UID]int64) bool {
	if stored == nil {
		return false
	}
	if !r.AdditiveOnly {
		return maps.Equal(inForce, stored)
	}
	for uid, generation := range inForce {
		if is, ok := stored[uid]; !ok || is != generation {
			return false
		}
	}
	return true
}

func (s *Stored) list(ctx context.Context, r RuleKind) (map[types.UID]int64, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(r.Kind.GroupVersion().WithKind(r.Kind.Kind + "List"))
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if err := s.checkCRD(ctx, r.Definition); err != nil {
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

// checkCRD gives an error while a CRD is being deleted: its objects go first, as if somebody had taken back what they forbid.
func (s *Stored) checkCRD(ctx context.Context, definition string) error {
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

package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// archive is an API server with many policies, which takes its time: what is asked for in the bubble's. A list is of the moment of its first page, and a
// read of that when it was asked.
type archive struct {
	client.Reader
	perPage, perGet time.Duration
	// breaks is the page that fails, counted from 1; none when zero.
	breaks int

	mu          sync.Mutex
	generations []int64 // needs mu, as all below
	listed      []int64
	pages, gets int
}

func archiveOf(policies int) *archive {
	return &archive{generations: slices.Repeat([]int64{2}, policies), perPage: 10 * time.Millisecond, perGet: 2 * time.Millisecond}
}

func takes(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (a *archive) Get(ctx context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	i, err := strconv.Atoi(key.Name)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.gets++
	generation := a.generations[i]
	a.mu.Unlock()
	if err := takes(ctx, a.perGet); err != nil {
		return err
	}
	if generation == 0 {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	object.SetUID(types.UID(key.Name))
	object.SetGeneration(generation)
	return nil
}

func (a *archive) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	from := 0
	a.mu.Lock()
	if a.pages++; o.Continue == "" {
		a.listed = slices.Clone(a.generations)
	} else {
		from, _ = strconv.Atoi(o.Continue)
	}
	listed := a.listed
	a.mu.Unlock()
	if err := takes(ctx, a.perPage); err != nil {
		return err
	}
	if a.breaks > 0 && from/int(o.Limit) == a.breaks-1 {
		return errors.New("the API server is busy")
	}
	all := list.(*metav1.PartialObjectMetadataList)
	to := min(from+int(o.Limit), len(listed))
	for i := from; i < to; i++ {
		if listed[i] > 0 {
			name := strconv.Itoa(i)
			all.Items = append(all.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: listed[i]}})
		}
	}
	if to < len(listed) {
		all.Continue = strconv.Itoa(to)
	}
	return nil
}

func (a *archive) set(policy int, generation int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.generations[policy] = generation
}

// asked gives what was asked for since it was called last.
func (a *archive) asked() (pages, gets int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pages, gets, a.pages, a.gets = a.pages, a.gets, 0, 0
	return pages, gets
}

// admissions of the second generation, of the policies from one to before another.
func admissions(from, to int) (all []Admission) {
	for i := from; i < to; i++ {
		name := strconv.Itoa(i)
		all = append(all, Admission{Key: types.NamespacedName{Name: name}, UID: types.UID(name), Generation: 2})
	}
	return all
}

func (a Admission) check(ctx context.Context, g *Generations) error {
	return g.Check(ctx, anyKind, a.Key, a.UID, a.Generation)
}

func TestOneListAnswersForAllWhoAreAskedAbout(t *testing.T) {
	for _, c := range []struct {
		policies, broken int
		perPage          time.Duration
		// what it costs
		pages, gets int
		within      time.Duration
	}{
		{policies: 4, gets: 4, within: 2 * time.Millisecond},
		{policies: 650, pages: 2, within: 20 * time.Millisecond},
		{policies: 5000, pages: 10, within: 100 * time.Millisecond},
		{policies: 5000, perPage: 190 * time.Millisecond, pages: 10, within: 1900 * time.Millisecond}, // longer than answers are kept
		{policies: 20100, pages: maxChunks, gets: 100, within: 430 * time.Millisecond},
		{policies: 1400, broken: 2, pages: 2, gets: 900, within: 250 * time.Millisecond},
		{policies: 5000, perPage: 700 * time.Millisecond, pages: 8, gets: 1500, within: listTimeout + 400*time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d, %s, %d", c.policies, c.perPage, c.broken), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := archiveOf(c.policies)
				server.breaks = c.broken
				if c.perPage > 0 {
					server.perPage = c.perPage
				}
				g := &Generations{Reader: server, Clock: clock.RealClock{}}
				began := time.Now()
				for uid, err := range g.CheckAll(t.Context(), anyKind, admissions(0, c.policies)) {
					t.Fatalf("%s: %v", uid, err)
				}
				if took := time.Since(began); took > c.within {
					t.Errorf("it took %s, want %s", took, c.within)
				}
				if pages, gets := server.asked(); pages != c.pages || gets != c.gets {
					t.Errorf("%d pages and %d reads, want %d and %d", pages, gets, c.pages, c.gets)
				}
			})
		})
	}
}

func TestWhatIsNoLongerAdmittedIsFoundAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := archiveOf(2000)
		server.set(7, 3)
		server.set(1900, 0)
		g := &Generations{Reader: server, Clock: clock.RealClock{}}
		wrong := g.CheckAll(t.Context(), anyKind, admissions(0, 2000))
		if len(wrong) != 2 || !errors.Is(wrong["7"], ErrSuperseded) || !errors.Is(wrong["1900"], ErrSuperseded) {
			t.Errorf("got %v", wrong)
		}
		if pages, gets := server.asked(); pages != 4 || gets != 2 {
			t.Errorf("%d pages and %d reads", pages, gets)
		}
		server.perPage, server.perGet = time.Hour, time.Hour
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if wrong := g.CheckAll(ctx, anyKind, admissions(0, 2000)); len(wrong) != 2000 {
			t.Errorf("nobody answers, and %d of 2000 are unconfirmed", len(wrong))
		}
		time.Sleep(listTimeout) // until the list is given up
	})
}

// Acts for policies that a list has late cost as little as those for others.
func TestAStormOfActsOverThousandsOfPoliciesCostsOneListASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := archiveOf(5000)
		g := &Generations{Reader: server, Clock: clock.RealClock{}}
		for second := range 5 {
			began := time.Now()
			var acting sync.WaitGroup
			for worker := range 20 {
				acting.Go(func() {
					for _, a := range admissions(4000+worker*50, 4000+(worker+1)*50) {
						if err := a.check(t.Context(), g); err != nil {
							t.Error(err)
						}
					}
				})
			}
			acting.Wait()
			if took := time.Since(began); took > 110*time.Millisecond {
				t.Errorf("second %d: it took %s", second, took)
			}
			if pages, gets := server.asked(); pages > 10 || gets > 20 {
				t.Errorf("second %d cost %d pages and %d reads", second, pages, gets)
			}
			time.Sleep(time.Until(began.Add(time.Second)))
		}
		// Of thousands that there are, few are asked for: a list of all would cost more.
		time.Sleep(time.Minute)
		server.asked()
		for range 10 {
			for _, a := range admissions(4000, 4030) {
				if err := a.check(t.Context(), g); err != nil {
					t.Error(err)
				}
			}
		}
		if pages, gets := server.asked(); pages != 0 || gets != 30 {
			t.Errorf("30 policies of 5000 cost %d pages and %d reads", pages, gets)
		}
	})
}

func TestAListThatFailedIsNotMadeAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := archiveOf(5000)
		server.perPage = time.Second
		g := &Generations{Reader: server, Clock: clock.RealClock{}}
		confirmed := map[types.UID]bool{}
		left, tries := admissions(0, 5000), 0
		for ; len(left) > 0 && tries < 10; tries++ { // as who tells Envoys asks for what isn't told yet
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			wrong := g.CheckAll(ctx, anyKind, left)
			cancel()
			for _, a := range left {
				confirmed[a.UID] = wrong[a.UID] == nil
			}
			left = slices.DeleteFunc(left, func(a Admission) bool { return confirmed[a.UID] })
			time.Sleep(time.Second)
		}
		if len(left) > 0 {
			t.Errorf("%d of 5000 aren't confirmed after %d tries, since no list comes to its end", len(left), tries)
		}
		if pages, _ := server.asked(); pages > 6 { // one list, until it is given up
			t.Errorf("%d pages were asked for in vain", pages)
		}
	})
}

// What is believed was read after the question, or isn't older than answers are kept: a long list answers nobody who asks while it is read.
func TestAnAnswerIsNotOlderThanTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := archiveOf(5000)
		server.perPage = 190 * time.Millisecond
		g := &Generations{Reader: server, Clock: clock.RealClock{}}
		var asking sync.WaitGroup
		asking.Go(func() {
			if wrong := g.CheckAll(t.Context(), anyKind, admissions(0, 4000)); len(wrong) > 0 {
				t.Errorf("asked before the edit: %v", wrong)
			}
		})
		time.Sleep(100 * time.Millisecond)
		server.set(4321, 3)
		asking.Go(func() {
			time.Sleep(1700 * time.Millisecond)
			if err := admissions(4321, 4322)[0].check(t.Context(), g); !errors.Is(err, ErrSuperseded) {
				t.Errorf("edited long before, and its page is just read: %v", err)
			}
		})
		edited := admissions(4321, 4322)[0]
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		asking.Go(func() {
			began := time.Now()
			if err := edited.check(impatient, g); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
				t.Errorf("whoever has no time gets %v after %s", err, time.Since(began))
			}
		})
		if err := edited.check(t.Context(), g); !errors.Is(err, ErrSuperseded) {
			t.Errorf("edited before it was asked for: %v", err)
		}
		asking.Wait()
		older := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: edited.UID, Generation: 2}}
		g.store(time.Now().Add(-900*time.Millisecond), &older)
		if err := edited.check(t.Context(), g); !errors.Is(err, ErrSuperseded) {
			t.Errorf("a page of an older list that comes late is believed: %v", err)
		}
	})
}

// asks has so many ask for a policy at once, and gives what each is told.
func asks(ctx context.Context, g *Generations, many int, a Admission) []error {
	told := make([]error, many)
	var asking sync.WaitGroup
	for i := range told {
		asking.Go(func() { told[i] = g.Check(ctx, anyKind, a.Key, a.UID, a.Generation) })
	}
	asking.Wait()
	return told
}

func TestThoseWhoAskForOnePolicyAtOnceShareARead(t *testing.T) {
	for name, admitted := range map[string]int64{"it is as admitted": 2, "it has changed": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := archiveOf(1)
				g := &Generations{Reader: server, Clock: clock.RealClock{}}
				of := admissions(0, 1)[0]
				of.Generation = admitted
				for _, err := range asks(t.Context(), g, 16, of) {
					if errors.Is(err, ErrSuperseded) != (admitted == 1) {
						t.Error(err)
					}
				}
				if _, gets := server.asked(); gets != 1 {
					t.Errorf("%d reads", gets)
				}
			})
		})
	}
}

func TestWhatWasReadBeforeSomebodyAskedIsNoReasonToRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := archiveOf(1)
		server.generations[0], server.perGet = 1, time.Second/2
		g := &Generations{Reader: server, Clock: clock.RealClock{}}
		of := admissions(0, 1)[0]
		older := of
		older.Generation = 1
		go asks(t.Context(), g, 1, older)
		time.Sleep(time.Second / 4) // in the bubble: while it is read
		for _, err := range asks(t.Context(), g, 2, older) {
			if err != nil {
				t.Errorf("what is read confirms: %v", err)
			}
		}
		if _, gets := server.asked(); gets != 1 {
			t.Errorf("%d reads that confirm", gets)
		}
		time.Sleep(time.Second)
		go asks(t.Context(), g, 1, older)
		time.Sleep(time.Second / 4)
		server.set(0, 2)
		for _, err := range asks(t.Context(), g, 2, of) {
			if err != nil {
				t.Errorf("the generation admitted just now is refused by what was read before: %v", err)
			}
		}
		if _, gets := server.asked(); gets != 2 {
			t.Errorf("%d reads, want that before and one that begins then", gets)
		}
	})
}

func TestWhoGivesUpTakesNobodyElsesAnswerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := archiveOf(1)
		g := &Generations{Reader: server, Clock: clock.RealClock{}}
		of := admissions(0, 1)[0]
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		gaveUp := make(chan error)
		go func() { gaveUp <- asks(impatient, g, 1, of)[0] }()
		synctest.Wait()
		for _, err := range asks(t.Context(), g, 4, of) {
			if err != nil {
				t.Error(err)
			}
		}
		if err := <-gaveUp; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who had a millisecond was told %v", err)
		}
		if _, gets := server.asked(); gets != 1 {
			t.Errorf("%d reads", gets)
		}
	})
}

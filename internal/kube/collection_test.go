package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	framework "k8s.io/client-go/tools/cache/testing"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// informers hands out one real informer.
type informers struct {
	cache.Cache
	informer toolscache.SharedIndexInformer
	missing  int // how often the kind isn't installed yet
	err      error
}

func (i *informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	if i.missing > 0 {
		i.missing--
		return nil, &meta.NoKindMatchError{GroupKind: anyKind.GroupKind()}
	}
	return i.informer, i.err
}

// shelfOfRails is an API server with Guardrails, and what a Collection makes of them.
type shelfOfRails struct {
	*framework.FakeControllerSource
	*Collection[*v1alpha1.Guardrail]
	used  chan string // what Use was given, as "a@1 b@2"
	ended chan error
}

func followRails(t *testing.T, change func(*Collection[*v1alpha1.Guardrail], *informers)) *shelfOfRails {
	t.Helper()
	s := &shelfOfRails{FakeControllerSource: framework.NewFakeControllerSource(), used: make(chan string, 100), ended: make(chan error, 1)}
	source := &informers{informer: toolscache.NewSharedIndexInformer(s.FakeControllerSource, &v1alpha1.Guardrail{}, 0, nil)}
	s.Collection = &Collection[*v1alpha1.Guardrail]{Cache: source, Kind: &v1alpha1.Guardrail{}, Use: func(_ context.Context, all []*v1alpha1.Guardrail) (again time.Time) {
		var says []string
		for _, g := range all {
			says = append(says, fmt.Sprintf("%s@%d", g.Name, g.Generation))
		}
		s.used <- strings.Join(says, " ")
		return again
	}}
	s.Add(rail("b", 1))
	s.Add(rail("a", 1))
	if change != nil {
		change(s.Collection, source)
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		for range s.ended { // until it ended
			continue
		}
		s.Shutdown()
	})
	go source.informer.RunWithContext(ctx)
	go func() {
		s.ended <- s.Start(ctx)
		close(s.ended)
	}()
	return s
}

func rail(name string, generation int64) *v1alpha1.Guardrail {
	return &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), Generation: generation}}
}

func (s *shelfOfRails) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-s.used:
		if got != want {
			t.Fatalf("%q are in force, want %q", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("nothing was put in force, want %q", want)
	}
}

func TestAllObjectsAreUsedAtFirstAndAfterEachChangeOfASpecOrALabel(t *testing.T) {
	s := followRails(t, nil)
	s.expect(t, "a@1 b@1")
	s.Modify(rail("a", 1)) // its status
	s.Modify(rail("a", 2))
	s.expect(t, "a@2 b@1")
	labelled := rail("b", 1)
	labelled.Labels = map[string]string{"approved": "yes"}
	s.Modify(labelled)
	s.expect(t, "a@2 b@1")
	s.Delete(rail("b", 1))
	s.expect(t, "a@2")
	s.Add(rail("c", 1))
	s.expect(t, "a@2 c@1")
	if err := s.Synced(); err != nil {
		t.Error(err)
	}
	NewWithT(t).Eventually(s.InForce, "10s").Should(Equal(map[types.UID]int64{"a-uid": 2, "c-uid": 1}), "what is in force is told once it is used")
}

func TestNothingIsKnownBeforeTheCollectionThatComesFirst(t *testing.T) {
	first := &Collection[*v1alpha1.Guardrail]{}
	s := followRails(t, func(c *Collection[*v1alpha1.Guardrail], _ *informers) { c.After = first })
	select {
	case got := <-s.used:
		t.Fatalf("%q are in force too early", got)
	case <-time.After(100 * time.Millisecond):
	}
	if s.InForce() != nil || s.Synced() == nil {
		t.Error("it says that all are known")
	}
	first.Known()
	close(first.known)
	s.expect(t, "a@1 b@1")
}

func TestWithoutItsKindACollectionWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for five seconds")
	}
	t.Parallel()
	var listed atomic.Int32
	s := followRails(t, func(c *Collection[*v1alpha1.Guardrail], source *informers) {
		source.missing, c.Listed = 1, func() { listed.Add(1) }
	})
	NewWithT(t).Eventually(listed.Load, "2s").Should(BeEquivalentTo(1), "it is known that there is none, before the kind is there")
	s.expect(t, "a@1 b@1")
	if n := listed.Load(); n != 2 {
		t.Errorf("told %d times, want once more when all are read", n)
	}
}

func TestItIsToldWhenAllAreKnownThoughTheirTurnIsNotYet(t *testing.T) {
	known, listed := 0, make(chan int, 1)
	followRails(t, func(c *Collection[*v1alpha1.Guardrail], _ *informers) {
		c.After, c.Early, c.Listed = &Collection[*v1alpha1.Guardrail]{}, func(all []*v1alpha1.Guardrail) { known = len(all) }, func() { listed <- known }
	})
	select {
	case n := <-listed:
		if n != 2 {
			t.Errorf("told after %d objects, want both", n)
		}
	case <-time.After(10 * time.Second):
		t.Error("nobody is told")
	}
}

func TestACollectionThatCannotBeFollowedEndsTheProcess(t *testing.T) {
	s := followRails(t, func(_ *Collection[*v1alpha1.Guardrail], source *informers) {
		source.err = errors.New("connection refused")
	})
	if err := <-s.ended; err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("it ended with %v", err)
	}
	if s.Synced() == nil {
		t.Error("it says that all are known")
	}
}

func TestACollectionIsUsedAgainAtItsTime(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	s := followRails(t, func(c *Collection[*v1alpha1.Guardrail], _ *informers) {
		use, first := c.Use, true
		c.Clock = clock
		c.Use = func(ctx context.Context, all []*v1alpha1.Guardrail) (again time.Time) {
			use(ctx, all)
			if first {
				again = clock.Now().Add(time.Minute)
			}
			first = false
			return again
		}
	})
	s.expect(t, "a@1 b@1")
	NewWithT(t).Eventually(clock.HasWaiters, "10s").Should(BeTrue(), "it waits for nothing")
	clock.Step(59 * time.Second)
	select {
	case got := <-s.used:
		t.Fatalf("%q were put in force too early", got)
	default:
	}
	clock.Step(time.Second + PastDeadline)
	s.expect(t, "a@1 b@1")
	s.Modify(rail("a", 2))
	s.expect(t, "a@2 b@1")
	NewWithT(t).Eventually(clock.HasWaiters, "10s").Should(BeFalse(), "it waits though nothing will change")
}

func TestWhoeverCannotWaitLearnsOfAChangeWhileTheOthersAreBusy(t *testing.T) {
	early, busy := make(chan int, 100), make(chan struct{})
	s := followRails(t, func(c *Collection[*v1alpha1.Guardrail], _ *informers) {
		use := c.Use
		c.Early = func(all []*v1alpha1.Guardrail) { early <- len(all) }
		c.Use = func(ctx context.Context, all []*v1alpha1.Guardrail) time.Time {
			again := use(ctx, all)
			<-busy
			return again
		}
	})
	done := sync.OnceFunc(func() { close(busy) })
	t.Cleanup(done)
	s.expect(t, "a@1 b@1")
	s.Add(rail("c", 1))
	for want := range []int{0, 1, 2} {
		select {
		case got := <-early:
			if got != want+1 {
				t.Errorf("learned of %d, want %d", got, want+1)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("learned nothing of the object number %d", want+1)
		}
	}
	done()
	s.expect(t, "a@1 b@1 c@1")
}

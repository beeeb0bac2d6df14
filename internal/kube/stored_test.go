package kube

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lister is an API server with objects of two kinds; it counts how often it was asked for each.
type lister struct {
	client.Reader
	objects map[string]map[types.UID]int64 // by kind
	lists   map[string]int
	err     error
	// going: the CRD of Guardrails is being deleted.
	going bool
	// asked is told of each list, which is then answered when it is let; nil lets it at once.
	asked, answer chan struct{}
}

func (l *lister) Get(_ context.Context, key client.ObjectKey, crd client.Object, _ ...client.GetOption) error {
	if l.going && key.Name == "guardrails.example.com" {
		crd.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
	}
	return nil
}

func (l *lister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	kind := strings.TrimSuffix(list.GetObjectKind().GroupVersionKind().Kind, "List")
	if l.lists == nil {
		l.lists = map[string]int{}
	}
	l.lists[kind]++
	if l.asked != nil {
		l.asked <- struct{}{}
		<-l.answer
	}
	for uid, generation := range l.objects[kind] {
		item := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid, Generation: generation}}
		list.(*metav1.PartialObjectMetadataList).Items = append(list.(*metav1.PartialObjectMetadataList).Items, item)
	}
	return l.err
}

type generations = map[types.UID]int64

// known is what the watch told of a kind.
type known struct {
	inForce generations
	changes int
}

func (k *known) InForce() map[types.UID]int64 { return k.inForce }
func (k *known) Changes() int                 { return k.changes }

// rulings watch two kinds: one that rules, and one that lifts.
func rulings(server *lister, clock *testingclock.FakeClock, rails, exceptions *known) *Stored {
	return &Stored{Reader: server, Clock: clock, WatchFailures: func() int64 { return 0 }, Kinds: []RuleKind{
		{Kind: anyKind.GroupVersion().WithKind("Guardrail"), Definition: "guardrails.example.com", All: rails},
		{Kind: anyKind.GroupVersion().WithKind("GuardrailException"), All: exceptions, AdditiveOnly: true},
	}}
}

func TestNothingIsDoneUnlessWhatIsStoredIsInForce(t *testing.T) {
	for name, c := range map[string]struct {
		rails, storedRails           generations
		exceptions, storedExceptions generations
		err                          error
		going                        bool
		says                         string
	}{
		"none at all":                       {rails: generations{}, exceptions: generations{}},
		"all alike":                         {rails: generations{"a": 2}, storedRails: generations{"a": 2}, exceptions: generations{"x": 1}, storedExceptions: generations{"x": 1}},
		"not known yet":                     {exceptions: generations{}, says: "every Guardrail must be known"},
		"a Guardrail is new":                {rails: generations{}, storedRails: generations{"a": 1}, exceptions: generations{}, says: "another Guardrail"},
		"a Guardrail is gone":               {rails: generations{"a": 1}, exceptions: generations{}, says: "another Guardrail"},
		"a Guardrail changed":               {rails: generations{"a": 1}, storedRails: generations{"a": 2}, exceptions: generations{}, says: "another Guardrail"},
		"an exception is new":               {rails: generations{}, exceptions: generations{"y": 1}, storedExceptions: generations{"x": 1, "y": 1}},
		"an exception is gone":              {rails: generations{}, exceptions: generations{"x": 1}, says: "another GuardrailException"},
		"an exception changed":              {rails: generations{}, exceptions: generations{"x": 1}, storedExceptions: generations{"x": 2}, says: "another GuardrailException"},
		"the API server can't be asked":     {rails: generations{}, exceptions: generations{}, err: errors.New("connection refused"), says: "list every Guardrail before acting: connection refused"},
		"Guardrails go with their CRD":      {rails: generations{}, exceptions: generations{}, going: true, says: "the CRD guardrails.example.com is being deleted"},
		"exceptions aren't known to be few": {rails: generations{}, says: "every GuardrailException must be known"},
	} {
		t.Run(name, func(t *testing.T) {
			server := &lister{objects: map[string]map[types.UID]int64{"Guardrail": c.storedRails, "GuardrailException": c.storedExceptions}, err: c.err, going: c.going}
			err := rulings(server, testingclock.NewFakeClock(time.Now()), &known{inForce: c.rails}, &known{inForce: c.exceptions}).Check(t.Context())
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestAStormOfActsCostsOneListInTenSeconds(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	server := &lister{objects: map[string]map[types.UID]int64{"Guardrail": {"a": 1}}}
	rails, exceptions := &known{inForce: generations{"a": 1}}, &known{inForce: generations{}}
	s := rulings(server, clock, rails, exceptions)
	for range 20 {
		for range 100 {
			if err := s.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		clock.SetTime(clock.Now().Add(time.Second))
	}
	if server.lists["Guardrail"] != 2 || server.lists["GuardrailException"] != 0 {
		t.Errorf("20 s of acts cost %v, want two lists of Guardrails, and none of exceptions that aren't there", server.lists)
	}
}

func TestWhoeverActsDoesNotWaitForTheNextList(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	server := &lister{objects: map[string]map[types.UID]int64{"Guardrail": {"a": 1}}}
	s := rulings(server, clock, &known{inForce: generations{"a": 1}}, &known{inForce: generations{}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Start(ctx) }()
	idle := func() {
		for !clock.HasWaiters() {
			runtime.Gosched()
		}
	}
	idle()
	for range 7 {
		clock.Step(time.Second)
		idle()
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	server.asked, server.answer = make(chan struct{}), make(chan struct{})
	clock.Step(time.Second)
	<-server.asked
	if err := s.Check(t.Context()); err != nil { // would never return
		t.Error(err)
	}
	close(server.answer)
	idle()
	clock.Step(2 * time.Second) // the first list is too old now
	idle()
	if err := s.Check(t.Context()); err != nil { // would never return
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAGuardrailThatTheWatchDidNotTellOfStopsActsWithinTenSeconds(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	server := &lister{objects: map[string]map[types.UID]int64{"Guardrail": {"a": 1}}}
	rails, exceptions := &known{inForce: generations{"a": 1}}, &known{inForce: generations{}}
	s := rulings(server, clock, rails, exceptions)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.objects["Guardrail"]["a"] = 2
	clock.SetTime(clock.Now().Add(10 * time.Second))
	if err := s.Check(t.Context()); !errors.Is(err, ErrSuperseded) {
		t.Errorf("got %v; a change that has just been seen is on its way", err)
	}
	for range 100 {
		_ = s.Check(t.Context())
	}
	if server.lists["Guardrail"] != 2 {
		t.Errorf("%d lists; asking again and again doesn't help", server.lists["Guardrail"])
	}
	clock.SetTime(clock.Now().Add(6 * time.Second))
	if err := s.Check(t.Context()); err == nil || errors.Is(err, ErrSuperseded) || !strings.Contains(err.Error(), "its watch reports no change") {
		t.Errorf("got %v; a difference that lasts is trouble", err)
	}
	rails.inForce = generations{"a": 2}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("the news came, and still: %v", err)
	}
}

func TestNewsByTheWatchNeedNotWaitForTheNextList(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	server := &lister{objects: map[string]map[types.UID]int64{"Guardrail": {}}}
	rails, exceptions := &known{inForce: generations{}}, &known{inForce: generations{}}
	s := rulings(server, clock, rails, exceptions)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.objects["Guardrail"]["a"], rails.inForce = 1, generations{"a": 1}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("the watch was first: %v", err)
	}
}

func TestAfterAChangeByTheWatchItIsSeenWhetherTheCRDStays(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	server := &lister{}
	rails, exceptions := &known{inForce: generations{}}, &known{inForce: generations{}}
	s := rulings(server, clock, rails, exceptions)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.going = true
	rails.changes += 2 // a pause came, and went with its CRD
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("got %v", err)
	}
}

func TestAnAPIServerThatFailsIsAskedOnceForAllWhoWait(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	server := &lister{err: errors.New("connection refused")}
	rails, exceptions := &known{inForce: generations{}}, &known{inForce: generations{}}
	s := rulings(server, clock, rails, exceptions)
	for range 16 {
		if err := s.Check(t.Context()); err == nil {
			t.Fatal("it acts though the API server can't be asked")
		}
	}
	if server.lists["Guardrail"] != 1 {
		t.Errorf("%d lists, want 1", server.lists["Guardrail"])
	}
	clock.SetTime(clock.Now().Add(time.Second))
	server.err = nil
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("a second later the API server answers, and still: %v", err)
	}
}

func TestWhoHasNothingToDoFindsOutTooThatNobodyKnowsWhatRules(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	server := &lister{}
	rails, exceptions := &known{inForce: generations{}}, &known{inForce: generations{}}
	s := rulings(server, clock, rails, exceptions)
	var interruptions atomic.Int64
	s.WatchFailures = interruptions.Load
	told := make(chan string, 2)
	s.Lost = func(why string) { told <- why }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Start(ctx) }()
	idle := func() {
		for !clock.HasWaiters() {
			runtime.Gosched()
		}
	}
	pass := func(seconds int) {
		for range seconds {
			clock.Step(time.Second)
			idle()
		}
	}
	idle()
	pass(60)
	if server.lists["Guardrail"] != 1 {
		t.Errorf("%d lists, of which only the first had a reason", server.lists["Guardrail"])
	}
	server.err = errors.New("guardrails is forbidden")
	interruptions.Add(1)
	pass(5) // it is found at the next look, and may pass within five seconds
	if len(told) > 0 {
		t.Errorf("told too soon: %q", <-told)
	}
	pass(1)
	if len(told) != 1 || <-told != "list every Guardrail before acting: guardrails is forbidden" {
		t.Error("that the API server doesn't answer isn't told once")
	}
	pass(5)
	server.err = nil
	pass(1)
	if len(told) != 1 || <-told != "" {
		t.Error("that it answers again isn't told once")
	}
	lists := server.lists["Guardrail"]
	pass(60)
	if server.lists["Guardrail"] != lists {
		t.Error("it is asked on though nothing is wrong any more")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

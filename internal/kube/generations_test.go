package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var anyKind = schema.GroupVersionKind{Group: "autohealer.resourcestack.com", Version: "v1alpha1", Kind: "ConditionSet"}

// stored is an API server with one object; reads counts what it was asked.
type stored struct {
	client.Reader
	meta  metav1.ObjectMeta
	err   error
	reads int
}

func (s *stored) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s.reads++
	s.meta.DeepCopyInto(&object.(*metav1.PartialObjectMetadata).ObjectMeta)
	return s.err
}

func TestOnlyTheAdmittedGenerationThatIsStillThereMayBeActedFor(t *testing.T) {
	now := metav1.Now()
	for name, c := range map[string]struct {
		meta metav1.ObjectMeta
		err  error
		says string
	}{
		"as admitted":        {meta: metav1.ObjectMeta{UID: "u", Generation: 2}},
		"changed since":      {meta: metav1.ObjectMeta{UID: "u", Generation: 3}, says: "is at generation 3, and 2 was admitted"},
		"being deleted":      {meta: metav1.ObjectMeta{UID: "u", Generation: 2, DeletionTimestamp: &now}, says: "was deleted or replaced"},
		"replaced":           {meta: metav1.ObjectMeta{UID: "v", Generation: 2}, says: "was deleted or replaced"},
		"gone":               {err: apierrors.NewNotFound(schema.GroupResource{}, "kernel"), says: "not found"},
		"can't be asked for": {err: errors.New("connection refused"), says: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Generations{Reader: &stored{meta: c.meta, err: c.err}, Clock: testingclock.NewFakePassiveClock(time.Now())}
			err := g.Check(t.Context(), anyKind, types.NamespacedName{Name: "kernel"}, "u", 2)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestAStormOfActsForOnePolicyCostsOneReadASecond(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Now())
	server := &stored{meta: metav1.ObjectMeta{UID: "u", Generation: 2}}
	g := &Generations{Reader: server, Clock: clock}
	for range 1000 {
		if err := g.Check(t.Context(), anyKind, types.NamespacedName{Name: "kernel"}, "u", 2); err != nil {
			t.Fatal(err)
		}
	}
	if server.reads != 1 {
		t.Errorf("%d reads for 1000 acts", server.reads)
	}
	server.meta.Generation = 3
	clock.SetTime(clock.Now().Add(time.Second))
	if err := g.Check(t.Context(), anyKind, types.NamespacedName{Name: "kernel"}, "u", 2); err == nil {
		t.Error("a second later the new generation isn't noticed")
	}
}

// shelf is an API server with many objects of generation 2, of which some were deleted; it counts what it was asked.
type shelf struct {
	client.Reader
	objects     map[string]int64
	gets, lists int
	fails       bool
}

func (s *shelf) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s.gets++
	generation, ok := s.objects[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	object.SetUID(types.UID(key.Name))
	object.SetGeneration(generation)
	return nil
}

func (s *shelf) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.lists++
	if s.fails {
		return errors.New("connection refused")
	}
	for name, generation := range s.objects {
		item := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: generation}}
		list.(*metav1.PartialObjectMetadataList).Items = append(list.(*metav1.PartialObjectMetadataList).Items, item)
	}
	return nil
}

func TestAStormOfActsForManyPoliciesCostsOneListASecond(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Now())
	server := &shelf{objects: map[string]int64{}}
	for i := range 50 {
		server.objects[fmt.Sprintf("set-%d", i)] = 2
	}
	g := &Generations{Reader: server, Clock: clock}
	check := func(i int) error {
		name := fmt.Sprintf("set-%d", i)
		return g.Check(t.Context(), anyKind, types.NamespacedName{Name: name}, types.UID(name), 2)
	}
	all := func() {
		t.Helper()
		for i := range 1000 {
			if err := check(i % 50); err != nil {
				t.Fatal(err)
			}
		}
	}
	all()
	if server.gets != 4 || server.lists != 1 {
		t.Errorf("the first second cost %d reads and %d lists, want 4 and 1", server.gets, server.lists)
	}
	clock.SetTime(clock.Now().Add(time.Second))
	all()
	if server.gets != 4 || server.lists != 2 {
		t.Errorf("two seconds cost %d reads and %d lists, want 4 and 2", server.gets, server.lists)
	}
	clock.SetTime(clock.Now().Add(time.Second))
	server.objects["set-7"] = 3
	delete(server.objects, "set-8")
	for i, says := range map[int]string{7: "is at generation 3", 8: "is not found"} {
		if err := check(i); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("set-%d: got %v, want %q", i, err, says)
		}
	}
	clock.SetTime(clock.Now().Add(time.Second))
	server.fails = true
	if err := check(1); err != nil {
		t.Errorf("a list that fails isn't made up for by a read: %v", err)
	}
	server.lists = 0
	for i := range 6 {
		if err := check(10 + i); err != nil {
			t.Error(err)
		}
	}
	if server.lists != 1 {
		t.Errorf("%d lists were asked for that fail, each while all wait", server.lists)
	}
	clock.SetTime(clock.Now().Add(time.Minute))
	server.lists = 0
	if err := check(1); err != nil || server.lists != 0 {
		t.Errorf("a single act long after cost %d lists (%v)", server.lists, err)
	}
}

func TestAnAnswerOlderThanTheAdmissionRefusesNothing(t *testing.T) {
	server := &stored{meta: metav1.ObjectMeta{UID: "u", Generation: 2}}
	g := &Generations{Reader: server, Clock: testingclock.NewFakePassiveClock(time.Now())}
	if err := g.Check(t.Context(), anyKind, types.NamespacedName{Name: "kernel"}, "u", 2); err != nil {
		t.Fatal(err)
	}
	server.meta.Generation = 3
	if err := g.Check(t.Context(), anyKind, types.NamespacedName{Name: "kernel"}, "u", 3); err != nil {
		t.Errorf("the generation admitted just now is refused by what was read before: %v", err)
	}
}

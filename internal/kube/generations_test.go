package kube

import (
	"context"
	"errors"
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

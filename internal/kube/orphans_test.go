package kube

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestARecordIsOrphanedOnceItsPolicyWasTwiceNotFoundAMinuteApart(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{}, "kernel")
	there := metav1.ObjectMeta{Name: "kernel", UID: "u"}
	for name, c := range map[string]struct {
		first, second stored
		after         time.Duration
		orphan        bool
	}{
		"not found twice":              {stored{err: notFound}, stored{err: notFound}, time.Minute, true},
		"another of its name":          {stored{meta: metav1.ObjectMeta{UID: "v"}}, stored{meta: metav1.ObjectMeta{UID: "v"}}, time.Minute, true},
		"not a minute apart":           {stored{err: notFound}, stored{err: notFound}, 59 * time.Second, false},
		"it is there after all":        {stored{err: notFound}, stored{meta: there}, time.Minute, false},
		"the API server doesn't know":  {stored{err: notFound}, stored{err: errors.New("connection refused")}, time.Minute, false},
		"it isn't known, but is there": {stored{meta: there}, stored{err: notFound}, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			var confirmed []types.UID
			o := &Orphans{Live: &c.first, Kind: anyKind, Confirm: func(uid types.UID) { confirmed = append(confirmed, uid) }}
			unknown := map[types.UID]types.NamespacedName{"u": {Name: "kernel"}}
			if again := o.Check(t.Context(), unknown, now); !again.Equal(now.Add(time.Minute)) {
				t.Errorf("looks again at %s", again)
			}
			o.Live = &c.second
			o.Check(t.Context(), unknown, now.Add(c.after))
			if (len(confirmed) == 1) != c.orphan {
				t.Errorf("confirmed %v, want %t", confirmed, c.orphan)
			}
			if again := o.Check(t.Context(), nil, now); !again.IsZero() {
				t.Errorf("nothing is unknown, and it looks again at %s", again)
			}
		})
	}
}

package cli

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestTheManagersVersionIsTheLeaders as it wrote it on its Lease, and not that of one that led before.
func TestTheManagersVersionIsTheLeaders(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		labels        map[string]string
		age           time.Duration
		want, unknown string
	}{
		"one that leads":            {map[string]string{"app.kubernetes.io/version": "v0.1.2"}, time.Second, "v0.1.2", ""},
		"one that led":              {map[string]string{"app.kubernetes.io/version": "v0.1.2"}, time.Minute, "", "no manager is seen to lead"},
		"one that doesn't say it":   {nil, time.Second, "", "the manager that leads doesn't say it"},
		"one that no label can say": {map[string]string{"app.kubernetes.io/version": ""}, time.Second, "", "the manager that leads doesn't say it"},
	} {
		t.Run(name, func(t *testing.T) {
			held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Labels: c.labels}, Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("a"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-c.age))),
			}}
			if version, unknown := ofLeader(held, now); version != c.want || unknown != c.unknown {
				t.Errorf("got %q, %q; want %q, %q", version, unknown, c.want, c.unknown)
			}
		})
	}
}

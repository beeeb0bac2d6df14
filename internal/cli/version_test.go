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
		lasts         int32
		want, unknown string
	}{
		"one that leads":            {map[string]string{"app.kubernetes.io/version": "v0.1.2"}, time.Second, 15, "v0.1.2", ""},
		"one with build metadata":   {map[string]string{"app.kubernetes.io/version": "v0.1.2_3.g4a77ff8"}, time.Second, 15, "v0.1.2+3.g4a77ff8", ""},
		"one that led":              {map[string]string{"app.kubernetes.io/version": "v0.1.2"}, time.Minute, 15, "", "no manager leads now"},
		"one that doesn't say it":   {nil, time.Second, 15, "", "the manager that leads doesn't report its version"},
		"one that no label can say": {map[string]string{"app.kubernetes.io/version": ""}, time.Second, 15, "", "the manager that leads doesn't report its version"},
		"another program's": {map[string]string{"app.kubernetes.io/version": "v7"}, time.Second, 3600, "",
			"the Lease autohealer-manager in namespace ops lasts 3600 seconds, and a manager writes 15: no manager of this version wrote it, and none can lead while it lasts"},
		"one from the future": {map[string]string{"app.kubernetes.io/version": "v0.1.2"}, -time.Hour, 15, "",
			"the Lease autohealer-manager in namespace ops was renewed in the future, at 2026-11-21T13:00:00Z, so it isn't known whether a manager leads"},
	} {
		t.Run(name, func(t *testing.T) {
			held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "autohealer-manager", Labels: c.labels}, Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("a"), LeaseDurationSeconds: ptr.To(c.lasts), RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-c.age))),
			}}
			if version, unknown := ofLeader(held, now); version != c.want || unknown != c.unknown {
				t.Errorf("got %q, %q; want %q, %q", version, unknown, c.want, c.unknown)
			}
		})
	}
}

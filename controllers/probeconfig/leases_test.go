package probeconfig

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// lease tells of a run in which both probes succeed.
func (w *world) lease(namespace string, leases []probe.NodeLease, unlisted probe.Outcome) {
	w.t.Helper()
	w.clock.Step(10 * time.Second)
	now := w.clock.Now()
	w.found(namespace, probe.Run{
		Started: now, Ended: now, Internal: probe.Outcome{Class: probe.OK}, External: &probe.Outcome{Class: probe.OK},
		Leases: leases, ServerTime: now, Unlisted: unlisted,
	})
}

func TestLeasesThatCannotBeListedAreToldAndHoldNothing(t *testing.T) {
	w := newWorld(t, 2, func(pc *v1alpha1.ProbeConfig) { pc.Spec.NodeLeases = &v1alpha1.NodeLeases{} })
	forbidden := probe.Outcome{Class: probe.Forbidden, Detail: "HTTP status 403"}
	w.fail("shoot-0") // its first run has no leases either
	w.want("shoot-0", "0r 0r", "the way from outside is cut")
	w.lease("shoot-0", nil, forbidden)
	if got := w.condition("LeasesUnreadable"); got != "" {
		t.Errorf("after two runs: %q", got)
	}
	w.lease("shoot-0", nil, forbidden)
	if got := w.condition("LeasesUnreadable"); got != "True Forbidden" {
		t.Errorf("after three runs: %q", got)
	}
	message := meta.FindStatusCondition(w.stored().Status.Conditions, "LeasesUnreadable").Message
	if want := "The nodes' leases of 1 targets can't be listed, in shoot-0: Forbidden: HTTP status 403. There the external probe decides alone. " +
		"Let the user of the kubeconfig in Secret external list nodes, and leases in the namespace kube-node-lease."; message != want {
		t.Errorf("it says %q", message)
	}
	for range 5 {
		w.lease("shoot-0", nil, forbidden)
	}
	w.want("shoot-0", "3 3", "what was taken is given back all the same")
	w.lease("shoot-0", []probe.NodeLease{}, probe.Outcome{})
	if got := w.condition("LeasesUnreadable"); got != "" {
		t.Errorf("once they can: %q", got)
	}
}

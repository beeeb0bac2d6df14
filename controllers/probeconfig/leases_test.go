package probeconfig

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// lease tells of a run in which both probes succeed.
func (w *env) lease(namespace string, leases []probe.NodeLease, unlisted probe.Outcome) {
	w.t.Helper()
	w.clock.Step(10 * time.Second)
	now := w.clock.Now()
	w.found(namespace, probe.Run{
		Started: now, Ended: now, Internal: probe.Outcome{Class: probe.OK}, External: &probe.Outcome{Class: probe.OK},
		Leases: leases, ServerTime: now, ListError: unlisted,
	})
}

func TestLeasesThatCannotBeListedAreToldAndHoldNothing(t *testing.T) {
	w := newEnv(t, 2, func(pc *v1alpha1.ProbeConfig) { pc.Spec.NodeLeases = &v1alpha1.NodeLeases{} })
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
	if want := "The nodes' leases of 1 target can't be listed, in shoot-0: Forbidden: HTTP status 403. There the external probe decides alone. " +
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

func TestAProtectionByLeasesThatIsOverIsTold(t *testing.T) {
	w := newEnv(t, 2, func(pc *v1alpha1.ProbeConfig) {
		pc.Spec.NodeLeases = &v1alpha1.NodeLeases{MaxProtectionDuration: "4m"}
	})
	message := func(kind string) string {
		if c := meta.FindStatusCondition(w.stored().Status.Conditions, kind); c != nil {
			return c.Message
		}
		return ""
	}
	renewed := w.clock.Now()
	run := func(n int) {
		for range n {
			w.lease("shoot-0", []probe.NodeLease{{Node: "a", Renewed: renewed}, {Node: "b", Renewed: renewed}, {Node: "c", Renewed: w.clock.Now().Add(10 * time.Second)}}, probe.Outcome{})
		}
	}
	run(8)
	w.want("shoot-0", "0r 0r", "two of three nodes don't renew their leases")
	for range 9 {
		w.lease("shoot-0", nil, probe.Outcome{Class: probe.TooManyRequests, Detail: "HTTP status 429"})
	}
	w.want("shoot-0", "0r 0r", "nobody knows that they do")
	if got := w.condition("LeasesUnreadable"); got != "True TooManyRequests" || !strings.Contains(message("LeasesUnreadable"), "There what is scaled down stays so until "+renewed.Add(4*time.Minute).Format(time.RFC3339)+", and then the external probe decides alone.") {
		t.Errorf("%s: %s", got, message("LeasesUnreadable"))
	}
	run(1)
	if got := w.condition("LeaseProtectionExpired"); got != "" {
		t.Errorf("too early: %s", got)
	}
	run(14)
	w.want("shoot-0", "3 3", "four minutes are over")
	want := "Node leases no longer protect 1 target: in shoot-0 2 of 3 nodes haven't renewed theirs for more than 4m0s. These nodes no longer cause a scale-down, and what was scaled down is scaled up again. " +
		"If the nodes are dead, replace or delete them; if they are cut off, repair their network path, or make nodeLeases.maxProtectionDuration longer."
	if got := w.condition("LeaseProtectionExpired"); got != "True MaxProtectionDurationExceeded" || message("LeaseProtectionExpired") != want {
		t.Errorf("%s: %s", got, message("LeaseProtectionExpired"))
	}
	if !strings.Contains(w.told.String(), "MaxProtectionDurationExceeded "+want) {
		t.Errorf("Events: %s", w.told)
	}
	w.manage(*w.rights)
	if got := w.condition("LeaseProtectionExpired"); got != "True MaxProtectionDurationExceeded" || strings.Contains(w.told.String(), "LeasesRenewed") {
		t.Errorf("a process that begins: %q, Events: %s", got, w.told)
	}
	w.probe("shoot-1", probe.OK, probe.OK)
	run(10)
	w.want("shoot-0", "3 3", "the same leases begin nothing")
	renewed = w.clock.Now().Add(10 * time.Second)
	run(1)
	if got := w.condition("LeaseProtectionExpired"); got != "" || !strings.Contains(w.told.String(), "LeasesRenewed") {
		t.Errorf("once they are renewed: %q, Events: %s", got, w.told)
	}
}

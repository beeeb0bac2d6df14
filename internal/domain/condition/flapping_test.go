package condition_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// flicker has a node's condition come and go once a second for so long, and gives how often the node was tainted.
func (m *manager) flicker(name string, lasting time.Duration) (taints int) {
	m.t.Helper()
	for end, sick := m.now.Add(lasting), true; m.now.Before(end); sick = !sick {
		status := map[bool]string{true: "True", false: "False"}[sick]
		m.see(name, reportsAt("KubeletUnhealthy", status, m.now, m.now))
		had := len(m.api.nodes[name].Spec.Taints)
		if m.settle(name); len(m.api.nodes[name].Spec.Taints) > had {
			taints++
		}
		m.now = m.now.Add(time.Second)
	}
	return taints
}

// TestATaintThatFlickersIsDamped: of the third taint within an hour the node must have been clear for a minute, then two, four, …
func TestATaintThatFlickersIsDamped(t *testing.T) {
	for _, spec := range []string{noSchedule, strings.Replace(noSchedule, "NoSchedule", "PreferNoSchedule", 1)} {
		m := manage(t, calm("5", "5"), workers(10, kubeletWell), newSet(t, "a", spec))
		if n := m.flicker("w00", 10*time.Minute); n != 3 {
			t.Errorf("tainted %d times in ten minutes of flickering, want 3: the third stays", n)
		}
		sum, _ := m.fleet.Summary("a-uid", moment(m.now))
		if hold := sum.Holds["Flapping"]; hold.Nodes != 1 || hold.Message != "the node was tainted 3 times within an hour, last at 2026-11-03T12:00:04Z; the taint goes once the conditions have been clear for 1m0s" {
			t.Errorf("told: %+v", sum.Holds)
		}
		m.now = m.now.Add(59 * time.Second) // it was clear when it was seen last, a second ago
		m.see("w00", reportsAt("KubeletUnhealthy", "False", m.now.Add(-time.Minute), m.now))
		if m.settle("w00"); len(m.api.nodes["w00"].Spec.Taints) != 0 {
			t.Error("it stays though it was clear for a minute")
		}
		m.flicker("w00", 2*time.Second)
		plan, _ := m.decide("w00")
		if len(plan.Steps) > 0 || len(plan.Holds) != 1 || !strings.HasSuffix(plan.Holds[0].Message, "4 times within an hour, last at 2026-11-03T12:10:59Z; the taint goes once the conditions have been clear for 2m0s") {
			t.Errorf("the fourth: %+v", plan)
		}
		well := m.now.Add(-time.Second)
		m.now = m.now.Add(time.Hour)
		m.see("w00", reportsAt("KubeletUnhealthy", "False", well, m.now))
		m.settle("w00")
		if n := m.flicker("w00", 4*time.Second); n != 2 || len(m.api.nodes["w00"].Spec.Taints) != 0 {
			t.Errorf("after a calm hour it was tainted %d times, and has taints %v", n, m.api.nodes["w00"].Spec.Taints)
		}
	}
}

// TestNoThirdEvictionWithinAnHourWhateverBecomesOfTheSet: its record goes from the node each time.
func TestNoThirdEvictionWithinAnHourWhateverBecomesOfTheSet(t *testing.T) {
	set, generation := newSet(t, "a", noExecute), 0
	set.UID = "a0"
	for name, again := range map[string]func(m *manager){
		"it observes for a while": func(m *manager) {
			m.fleet.ObserveSet(set, lifecycle.Observing, nil, "", moment(m.now))
			m.settle("w00")
			m.fleet.ObserveSet(set, lifecycle.Active, nil, "", moment(m.now))
		},
		"it is made anew": func(m *manager) {
			generation++
			before, anew := *set, *set
			before.UID, anew.UID = types.UID(fmt.Sprint("a", generation-1)), types.UID(fmt.Sprint("a", generation))
			m.fleet.ObserveSet(&before, lifecycle.Deleted, nil, "", moment(m.now))
			m.settle("w00")
			m.fleet.ForgetSet(before.UID, moment(m.now))
			m.fleet.ObserveSet(&anew, lifecycle.Active, nil, "", moment(m.now))
		},
		"its node is deleted and comes back": func(m *manager) {
			m.delete("w00")
			n := newNode("w00", kernelSick)
			n.UID = ""
			m.api.put(n)
			m.fleet.ObserveNode(m.api.nodes["w00"], moment(m.now))
		},
		"its record is removed by hand": func(m *manager) {
			m.see("w00", recorded(""), func(n *corev1.Node) { n.Spec.Taints = nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := manage(t, calm("5", "5"), workers(10, kernelSick), set)
			var effects []string
			for range 3 {
				m.settle("w00")
				for _, taint := range m.api.nodes["w00"].Spec.Taints {
					effects = append(effects, string(taint.Effect))
				}
				m.now = m.now.Add(6 * time.Minute) // the pace
				again(m)
			}
			if want := []string{"NoExecute", "NoExecute", "NoSchedule"}; !slices.Equal(effects, want) {
				t.Errorf("it gave the node %v, want %v", effects, want)
			}
		})
	}
}

// TestABreakerCountsWhatIsDeletedWhileItMatches: else who deletes sick nodes as fast as a reporter that lies makes them hides the wave.
func TestABreakerCountsWhatIsDeletedWhileItMatches(t *testing.T) {
	m := manage(t, breakerLimits(), workers(12), newSet(t, "a", noSchedule))
	open := func() bool {
		sum, _ := m.fleet.Summary("a-uid", moment(m.now))
		return sum.Breaker != nil
	}
	for _, name := range []string{"w00", "w01"} {
		m.see(name, kubeletSick)
		m.see(name, deleting)
		m.delete(name)
		m.now = m.now.Add(time.Minute)
	}
	if open() {
		t.Fatal("open at two of twelve")
	}
	m.see("w02", kubeletSick)
	if !open() {
		t.Error("three of twelve matched within three minutes, two of which are deleted, and the breaker is closed")
	}

	m = manage(t, breakerLimits(), workers(12), newSet(t, "a", noSchedule))
	for _, name := range []string{"w00", "w01", "w02", "w03"} {
		m.see(name, kubeletSick)
		m.delete(name)
		m.now = m.now.Add(3 * time.Minute)
	}
	if open() {
		t.Error("open though never three matched within evictPace")
	}
}

// TestASetThatIsMadeAnewKeepsItsBreaker: falling numbers close none, and to delete and apply a set is no look at its reporter.
func TestASetThatIsMadeAnewKeepsItsBreaker(t *testing.T) {
	anew := newSet(t, "a", noSchedule)
	anew.UID = "anew"
	for after, want := range map[time.Duration]bool{time.Minute: true, 59 * time.Minute: true, time.Hour: false} {
		m := manage(t, breakerLimits(), workers(12, kubeletSick), newSet(t, "a", noSchedule))
		for _, name := range m.fleet.Nodes()[1:] {
			m.see(name, kubeletWell)
		}
		m.fleet.ForgetSet("a-uid", moment(m.now))
		m.now = m.now.Add(after)
		m.see("w00", reportsAt("KubeletUnhealthy", "True", noon, m.now))
		m.fleet.ObserveSet(anew, lifecycle.Active, nil, "", moment(m.now))
		sum, _ := m.fleet.Summary("anew", moment(m.now))
		if open := sum.Breaker != nil; open != want || m.settle("w00") == want {
			t.Errorf("made anew after %s its breaker is open: %t, want %t", after, open, want)
		}
		m.fleet.ObserveSet(anew, lifecycle.Active, nil, "20261103t120000z", moment(m.now))
		if want && !m.settle("w00") {
			t.Error("it isn't reset by the id that its status tells")
		}
	}
}

// TestPeopleWhoTryASetMakeNoConditionsFlap: who deletes it and applies it again, or lets it observe for a while.
func TestPeopleWhoTryASetMakeNoConditionsFlap(t *testing.T) {
	set := newSet(t, "a", noSchedule)
	m := manage(t, calm("5", "5"), workers(10, kubeletSick), set)
	for range 4 {
		m.settle("w00")
		m.fleet.ObserveSet(set, lifecycle.Observing, nil, "", moment(m.now))
		m.settle("w00")
		m.fleet.ObserveSet(set, lifecycle.Active, nil, "", moment(m.now))
		m.now = m.now.Add(time.Second)
	}
	m.settle("w00")
	if plan, _ := m.decide("w00"); len(plan.Holds) > 0 || len(m.api.nodes["w00"].Spec.Taints) != 1 {
		t.Errorf("taints %v, held %+v", m.api.nodes["w00"].Spec.Taints, plan.Holds)
	}
}

// TestWhatIsNoTaintAnewDoesNotCount: a set of the name that takes over a claim, a node that is applied again with its record, and claims from
// ahead, by more than clocks may differ.
func TestWhatIsNoTaintAnewDoesNotCount(t *testing.T) {
	anew := newSet(t, "a", noSchedule)
	anew.UID = "anew"
	for name, c := range map[string]struct {
		between func(m *manager)
		since   time.Duration // of the first claim, from now
		want    int
	}{
		"nothing": {func(*manager) {}, 0, 0},
		"a set of the name takes over": {func(m *manager) {
			m.fleet.ForgetSet("a-uid", moment(m.now))
			m.fleet.ObserveSet(anew, lifecycle.Active, nil, "", moment(m.now))
			m.settle("w00")
		}, 0, 0},
		"the node is applied again": {func(m *manager) {
			n := m.api.nodes["w00"].DeepCopy()
			m.delete("w00")
			n.UID = "again"
			m.api.put(n)
			m.fleet.ObserveNode(m.api.nodes["w00"], moment(m.now))
		}, 0, 0},
		"another replica's clock is ahead by little": {func(m *manager) { m.flicker("w00", 2*time.Second) }, 9 * time.Second, 3},
		"and by much": {func(m *manager) { m.flicker("w00", 2*time.Second) }, 11 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := manage(t, calm("5", "5"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
			m.see("w00", owning("a", "example.com/k", "NoSchedule", noon.Add(c.since)))
			c.between(m)
			m.now = m.now.Add(time.Minute)
			m.flicker("w00", time.Second) // sick still
			m.see("w00", reportsAt("KubeletUnhealthy", "False", m.now, m.now))
			m.settle("w00")
			m.flicker("w00", time.Second) // tainted once more
			owned, err := condition.ParseOwnership(m.api.nodes["w00"].Annotations[recordAnnotation])
			if err != nil || len(owned.Taints) != 1 || owned.Taints[0].TaintCount != c.want {
				t.Errorf("claims %+v, want one with times %d; error %v", owned.Taints, c.want, err)
			}
		})
	}
}

// TestADampedTaintGoesThoughNobodySaysAnyMoreThatAllIsWell: without heartbeats a node is known to be clear for staleAfter and no longer.
func TestADampedTaintGoesThoughNobodySaysAnyMoreThatAllIsWell(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletWell), newSet(t, "a", "staleAfter: 4m\n"+noSchedule))
	record := condition.Ownership{Taints: []condition.OwnedTaint{{Key: "example.com/k", Effect: "NoSchedule", Set: "a-uid", Name: "a", Generation: 1, Since: metav1.NewTime(noon), TaintCount: 9}}}
	m.see("w00", tainted("example.com/k", "NoSchedule"), recorded(record.String()), reportsAt("KubeletUnhealthy", "True", noon, noon))
	m.now = noon.Add(time.Second)
	m.see("w00", reportsAt("KubeletUnhealthy", "False", m.now, m.now))
	plan, _ := m.decide("w00")
	if !plan.RequeueAt.Equal(m.now.Add(2*time.Minute)) || !strings.Contains(plan.Holds[0].Message, "have been clear for 2m0s") {
		t.Errorf("looks again at %s, held %+v", plan.RequeueAt, plan.Holds)
	}
	sights := m.fleet.SetStatuses("w00", moment(m.now))
	if len(sights) != 1 || !sights[0].Match.ClearAt.Equal(plan.RequeueAt) || sights[0].RecoverAfter != 2*time.Minute {
		t.Errorf("explained: %+v", sights)
	}
	m.now = plan.RequeueAt
	if m.settle("w00"); len(m.api.nodes["w00"].Spec.Taints) > 0 {
		t.Error("it stays")
	}
}

// TestAResetIsNotInherited: somebody looked at that wave, and not at the next.
func TestAResetIsNotInherited(t *testing.T) {
	m := manage(t, breakerLimits(), workers(12, kubeletSick), newSet(t, "a", noSchedule))
	m.fleet.ObserveSet(newSet(t, "a", noSchedule), lifecycle.Active, nil, "20261103t120000z", moment(noon))
	m.fleet.ForgetSet("a-uid", moment(noon))
	anew := newSet(t, "a", noSchedule)
	anew.UID = "anew"
	m.now = noon.Add(time.Minute)
	m.fleet.ObserveSet(anew, lifecycle.Active, nil, "", moment(m.now))
	if sum, _ := m.fleet.Summary("anew", moment(m.now)); sum.Breaker == nil || sum.Breaker.Reset || m.settle("w00") {
		t.Errorf("breaker %+v, want another opening", sum.Breaker)
	}
}

// TestAFollowerThatLeadsInheritsABreakerThatNobodyWroteDown: the former leader may have died before it did.
func TestAFollowerThatLeadsInheritsABreakerThatNobodyWroteDown(t *testing.T) {
	opening := &limit.Opening{ID: "20261103t120000z", OpenedAt: noon}
	for stored, want := range map[*limit.Opening]bool{nil: true, opening: false} {
		m := manage(t, breakerLimits(), workers(12, kubeletWell), newSet(t, "a", noSchedule))
		m.fleet.Follow()
		m.fleet.ObserveSet(newSet(t, "a", noSchedule), lifecycle.Active, opening, "", moment(noon))
		m.fleet.ForgetSet("a-uid", moment(noon))
		anew := newSet(t, "a", noSchedule)
		anew.UID = "anew"
		for _, b := range []*limit.Opening{nil, stored, nil} { // the last: somebody reset it, and the wave is over
			m.fleet.ObserveSet(anew, lifecycle.Active, b, "", moment(noon))
		}
		m.fleet.Lead(moment(noon))
		if sum, _ := m.fleet.Summary("anew", moment(noon)); (sum.Breaker != nil) != want {
			t.Errorf("written down %t: breaker %+v", stored != nil, sum.Breaker)
		}
	}
}

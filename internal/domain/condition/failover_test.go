package condition_test

import (
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// standby is a fleet of ten well nodes that follows a leader.
func standby(t *testing.T) (*condition.Fleet, *condition.Set) {
	t.Helper()
	fleet, set := condition.NewFleet(limit.Builtin()), newSet(t, "a", noSchedule)
	fleet.Follow()
	for _, n := range workers(10) {
		fleet.ObserveNode(n, timing.Moment{Now: noon})
	}
	fleet.ObserveSet(set, lifecycle.Active, nil, "", timing.Moment{Now: noon})
	fleet.MarkSynced(timing.Moment{Now: noon})
	return fleet, set
}

func TestABreakerThatTheLeaderOpenedIsOpenForTheNextLeaderToo(t *testing.T) {
	fleet, set := standby(t)
	fleet.ObserveSet(set, lifecycle.Active, &limit.Opening{ID: "of-the-leader", OpenedAt: noon}, "", timing.Moment{Now: noon})
	fleet.Lead(timing.Moment{Now: noon.Add(time.Hour)}) // the wave is long over, and this replica never saw it
	sum, _ := fleet.Summary(set.UID, timing.Moment{Now: noon.Add(time.Hour)})
	if sum.Breaker == nil || sum.Breaker.ID != "of-the-leader" || sum.Breaker.Reset {
		t.Errorf("the new leader has breaker %+v", sum.Breaker)
	}
}

func TestABreakerThatWasResetDoesNotComeBackWithTheNextLeader(t *testing.T) {
	fleet, set := standby(t)
	sick := workers(10, kubeletSick)
	for _, n := range sick { // this replica sees the wave, too
		n.ResourceVersion = "1000"
		fleet.ObserveNode(n, timing.Moment{Now: noon.Add(time.Second)})
	}
	fleet.ObserveSet(set, lifecycle.Active, &limit.Opening{ID: "of-the-leader", OpenedAt: noon}, "", timing.Moment{Now: noon})
	for _, n := range workers(10) {
		n.ResourceVersion = "2000"
		fleet.ObserveNode(n, timing.Moment{Now: noon.Add(time.Minute)})
	}
	fleet.ObserveSet(set, lifecycle.Active, nil, "of-the-leader", timing.Moment{Now: noon.Add(time.Minute)}) // the leader took the reset
	fleet.Lead(timing.Moment{Now: noon.Add(time.Hour)})
	if sum, _ := fleet.Summary(set.UID, timing.Moment{Now: noon.Add(time.Hour)}); sum.Breaker != nil {
		t.Errorf("the new leader has breaker %+v", sum.Breaker)
	}
}

func TestANewLeaderJudgesByWhatItSees(t *testing.T) {
	fleet, set := standby(t)
	for _, n := range workers(10, kubeletSick) {
		n.ResourceVersion = "1000"
		fleet.ObserveNode(n, timing.Moment{Now: noon})
	}
	if sum, _ := fleet.Summary(set.UID, timing.Moment{Now: noon}); sum.Breaker != nil {
		t.Errorf("a follower opened breaker %+v", sum.Breaker)
	}
	fleet.Lead(timing.Moment{Now: noon})
	if sum, _ := fleet.Summary(set.UID, timing.Moment{Now: noon}); sum.Breaker == nil {
		t.Error("the new leader leaves the breaker closed while all nodes match")
	}
}

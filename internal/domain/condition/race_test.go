package condition_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// Informers, workers and admission requests share a fleet: run with -race.
func TestManyWorkersNeverTakeMoreThanTheCap(t *testing.T) {
	m := manage(t, calm("10%", "5%"), workers(100), newSet(t, "a", noSchedule), newSet(t, "b", noExecute))
	var api sync.Mutex // the API server takes one write at a time
	most := 0
	work := func(seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		for range 300 {
			name := fmt.Sprintf("w%02d", random.IntN(100))
			switch random.IntN(6) {
			case 0:
				api.Lock()
				m.see(name, []nodeOption{kubeletSick, kubeletWell, kernelSick, kernelWell}[random.IntN(4)])
				api.Unlock()
			case 1:
				if m.fleet.Forecast(newConditionSet(t, "a", noExecute), limit.Builtin(), moment(noon)).Nodes == 0 {
					t.Error("nothing is foretold")
				}
				m.fleet.Summary("a-uid", moment(noon))
				m.fleet.DrainDirty()
				m.fleet.ObserveLease(name, ago(time.Duration(random.IntN(9))*time.Second), moment(noon))
			default:
				plan, next := m.decide(name)
				if next != condition.Write {
					continue
				}
				api.Lock()
				n, err := m.api.patch(plan)
				most = max(most, len(taintedIn(m.api)))
				api.Unlock()
				if err != nil {
					m.fleet.Failed(name)
					continue
				}
				m.fleet.Written(name, n.ResourceVersion)
				m.fleet.ObserveNode(n, moment(noon))
			}
		}
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() { work(uint64(i)) })
	}
	group.Wait()
	if most != 10 {
		t.Errorf("%d nodes tainted at most, want the cap of 10 to be reached and held", most)
	}
}

func taintedIn(c *cluster) (names []string) {
	for name, n := range c.nodes {
		if len(n.Spec.Taints) > 0 {
			names = append(names, name)
		}
	}
	return names
}

package weeder_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// Informers, workers and admission requests share a state: run with -race.
func TestManyWorkersNeverTakeMoreThanThereIs(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI+"maxDeletionsPerWatch: 50")
	for i := range 200 {
		y.ObservePod(weeder.ReadPod(newPod(fmt.Sprintf("api-%d", i), backOff)), at(-second))
	}
	due := recoverEtcd(y, 0)
	wc := newWeederConfig(t, "ns", "new", etcdForAPI)
	running := newPod("api-0", running)
	var deletions atomic.Int32
	var group sync.WaitGroup
	for worker := range 8 {
		random := rand.New(rand.NewPCG(uint64(worker), 1))
		group.Go(func() {
			for range 400 {
				k := due[random.IntN(len(due))]
				switch random.IntN(8) {
				case 0:
					y.Summary("wc-uid", at(second))
					y.DrainDirty()
					y.DrainOpened()
				case 1:
					if y.Forecast(wc, limit.Builtin(), at(second)).Services != 1 {
						t.Error("nothing is foretold")
					}
				case 2:
					y.ObservePod(weeder.ReadPod(running), at(second))
					y.Expire(at(time.Second))
				default:
					plan, next := decideOn(y, k, at(second), "")
					if next != weeder.Delete {
						continue
					}
					if random.IntN(3) == 0 {
						y.Failed(plan.Pod.UID)
						continue
					}
					deletions.Add(1)
					y.Confirm(plan.Pod.UID, at(second))
				}
			}
		})
	}
	group.Wait()
	expect(t, "deletions", deletions.Load(), 50)
}

package envoy

import (
	"sync"
	"sync/atomic"
)

// Churn is what Envoy counts of its clusters.
type Churn struct{ Added, Modified, Removed int64 }

// Churn counts what has become of its clusters so far.
func (e *Envoy) Churn() Churn {
	return Churn{e.Stat("cluster_manager.cluster_added"), e.Stat("cluster_manager.cluster_modified"), e.Stat("cluster_manager.cluster_removed")}
}

// Load sends requests until it is stopped, and counts those that did not get a 200.
func (e *Envoy) Load(listener string) (stop func() (sent, failed int64)) {
	var sent, failed atomic.Int64
	done := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				r, err := trafficClient.Get("http://" + e.Addr(listener) + "/")
				sent.Add(1)
				if err != nil || r.StatusCode != 200 {
					failed.Add(1)
				}
				if err == nil {
					_ = r.Body.Close()
				}
			}
		})
	}
	return func() (int64, int64) {
		close(done)
		all.Wait()
		return sent.Load(), failed.Load()
	}
}

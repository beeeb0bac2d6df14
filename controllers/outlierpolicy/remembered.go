package outlierpolicy

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
)

// reportedEjections are the ejections that were reported for each policy. A manager that starts takes those in the status, so that
// nothing is reported twice.
type reportedEjections struct {
	mu  sync.Mutex
	all map[types.NamespacedName]map[ejection.Host]reportedEjection // needs mu
}

// reportedEjection is since when this process has observed an ejection, and the since that was reported.
type reportedEjection struct{ observedAt, since time.Time }

// get returns what was reported for a policy.
func (r *reportedEjections) get(key types.NamespacedName, status *v1alpha1.OutlierPolicyStatus) map[ejection.Host]reportedEjection {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, ok := r.all[key]; ok {
		return before
	}
	before := map[ejection.Host]reportedEjection{}
	for _, x := range status.Ejections {
		if cluster, ok := outlier.ParseKey(x.Cluster); ok {
			before[ejection.Host{Cluster: cluster, Address: x.Address}] = reportedEjection{since: x.Since.Time}
		}
	}
	return before
}

// keepSince keeps the since that was reported before for ejections that continue, and returns what is to be reported now.
func keepSince(e *ejectionState, before map[ejection.Host]reportedEjection) map[ejection.Host]reportedEjection {
	now := make(map[ejection.Host]reportedEjection, len(e.ejections))
	for h, x := range e.ejections {
		t := reportedEjection{observedAt: x.Since.Time, since: x.Since.Truncate(time.Second)}
		if was, ok := before[h]; ok && (was.observedAt.IsZero() || was.observedAt.Equal(t.observedAt)) && was.since.Before(t.since) {
			t.since = was.since
		}
		now[h] = t
		x.Since = metav1.NewTime(t.since)
		e.ejections[h] = x
	}
	return now
}

func (r *reportedEjections) set(key types.NamespacedName, now map[ejection.Host]reportedEjection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[types.NamespacedName]map[ejection.Host]reportedEjection{}
	}
	r.all[key] = now
}

func (r *reportedEjections) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, key)
}

// notAsked is since when some Envoy that gets clusters of a namespace isn't polled for ejections. A short interruption, as while an Envoy
// reconnects, doesn't begin a new period.
type notAsked struct {
	mu  sync.Mutex
	all map[string]period // needs mu
}

// period is a time span; its end is zero as long as it continues.
type period struct{ start, end time.Time }

// since updates a namespace's period, and returns for how long it has lasted; 0 when there is none.
func (n *notAsked) since(namespace string, unasked bool, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, known := n.all[namespace]
	over := !p.end.IsZero() && now.Sub(p.end) >= ejection.StaleAfter
	if !unasked {
		if over {
			delete(n.all, namespace)
		} else if known && p.end.IsZero() {
			n.all[namespace] = period{p.start, now}
		}
		return 0
	}
	if !known || over {
		p.start = now
	}
	if n.all == nil {
		n.all = map[string]period{}
	}
	n.all[namespace] = period{start: p.start}
	return now.Sub(p.start)
}

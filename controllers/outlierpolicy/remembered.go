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
type remembered struct {
	mu  sync.Mutex
	all map[types.NamespacedName]map[ejection.Host]told // needs mu
}

// reportedEjection is since when this process has observed an ejection, and the since that was reported.
type told struct{ seen, since time.Time }

// get returns what was reported for a policy.
func (r *remembered) of(key types.NamespacedName, status *v1alpha1.OutlierPolicyStatus) map[ejection.Host]told {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, ok := r.all[key]; ok {
		return before
	}
	before := map[ejection.Host]told{}
	for _, x := range status.Ejections {
		if cluster, ok := outlier.ParseKey(x.Cluster); ok {
			before[ejection.Host{Cluster: cluster, Address: x.Address}] = told{since: x.Since.Time}
		}
	}
	return before
}

// keepSince keeps the since that was reported before for ejections that continue, and returns what is to be reported now.
func carry(e *ejected, before map[ejection.Host]told) map[ejection.Host]told {
	now := make(map[ejection.Host]told, len(e.hosts))
	for h, x := range e.hosts {
		t := told{seen: x.Since.Time, since: x.Since.Truncate(time.Second)}
		if was, ok := before[h]; ok && (was.seen.IsZero() || was.seen.Equal(t.seen)) && was.since.Before(t.since) {
			t.since = was.since
		}
		now[h] = t
		x.Since = metav1.NewTime(t.since)
		e.hosts[h] = x
	}
	return now
}

func (r *remembered) keep(key types.NamespacedName, now map[ejection.Host]told) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[types.NamespacedName]map[ejection.Host]told{}
	}
	r.all[key] = now
}

func (r *remembered) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, key)
}

// notAsked is since when some Envoy that gets clusters of a namespace isn't polled for ejections. A short interruption, as while an Envoy
// reconnects, doesn't begin a new period.
type notAsked struct {
	mu  sync.Mutex
	all map[string]span // needs mu
}

// period is a time span; its end is zero as long as it continues.
type span struct{ began, ended time.Time }

// since updates a namespace's period, and returns for how long it has lasted; 0 when there is none.
func (n *notAsked) since(namespace string, is bool, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	so, was := n.all[namespace]
	over := !so.ended.IsZero() && now.Sub(so.ended) >= ejection.StaleAfter
	if !is {
		if over {
			delete(n.all, namespace)
		} else if was && so.ended.IsZero() {
			n.all[namespace] = span{so.began, now}
		}
		return 0
	}
	if !was || over {
		so.began = now
	}
	if n.all == nil {
		n.all = map[string]span{}
	}
	n.all[namespace] = span{began: so.began}
	return now.Sub(so.began)
}

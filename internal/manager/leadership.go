package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/resourcestack/autohealer/internal/domain/lease"
	"github.com/resourcestack/autohealer/internal/installation"
	"github.com/resourcestack/autohealer/internal/kube"
)

// foreignRecheck is how soon a manager checks again whether the cluster is still another installation's.
const foreignRecheck = 5 * time.Second

// leadership is the lock of the leader election, and knows whether this process surely holds it. The election itself
// doesn't: a process that stood still while another one took over learns of it only when it has failed to renew for
// RenewDeadline, and would act beside the new leader until then.
type leadership struct {
	resourcelock.Interface
	// Trusted is for how long a renewal is believed, counted from its request by a clock that goes on while the process
	// stands still. Less than the lease's duration by what a write may take.
	Trusted time.Duration
	Clock   clock.PassiveClock
	// Ours gives an error unless the cluster is this installation's. Another one's manager can't be elected out of acting: it holds a
	// Lease of its own.
	Ours func(context.Context) error
	// Undoubted says that nothing speaks against what Ours said last. It asks nobody, so it is believed only while nobody acts.
	Undoubted func() bool

	renewed atomic.Pointer[time.Time]
	// reliedOn: somebody has asked whether the lead is held since the last renewal.
	reliedOn atomic.Bool
}

// newLeadership makes the lock on a Lease. Its requests end after half of trusted, so that one that hangs can be tried
// again.
func newLeadership(config *rest.Config, o options, name string, trusted time.Duration, marker *installation.Marker) (*leadership, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the hostname: %w", err)
	}
	config = rest.CopyConfig(config)
	config.Timeout = trusted / 2
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client of the leader election: %w", err)
	}
	identity := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	lock, err := resourcelock.NewWithLabels(resourcelock.LeasesResourceLock, o.leaderElectNamespace, name, client.CoreV1(), client.CoordinationV1(), identity, lease.Labels(o.built))
	if err != nil {
		return nil, fmt.Errorf("make the lock of the leader election: %w", err)
	}
	return &leadership{Interface: lock, Trusted: trusted, Clock: clock.RealClock{}, Ours: marker.Ours, Undoubted: marker.Undoubted}, nil
}

// Create makes the Lease.
func (l *leadership) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(ctx, record, func() error { return l.Interface.Create(ctx, record) })
}

// Update renews the Lease, takes it over or, with no holder in the record, gives it up.
func (l *leadership) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(ctx, record, func() error { return l.Interface.Update(ctx, record) })
}

func (l *leadership) renew(ctx context.Context, record resourcelock.LeaderElectionRecord, write func() error) error {
	if record.HolderIdentity != l.Identity() {
		l.renewed.Store(nil)
		return write()
	}
	requestedAt := l.Clock.Now()
	if err := l.ours(ctx); err != nil {
		if isForeign(err) {
			l.renewed.Store(nil)
			l.waitUntilOurs(ctx)
		}
		return err
	}
	if err := write(); err != nil {
		return err // whatever was held before still is
	}
	l.renewed.Store(&requestedAt)
	return nil
}

// ours reads live whose the cluster is, unless this process leads, nobody has acted since the last renewal and no watch speaks against it:
// while nothing is done it costs nothing, and who acts has at most one renewal's time before a watch that died is found out.
func (l *leadership) ours(ctx context.Context) error {
	if !l.reliedOn.Swap(false) && l.fresh() && l.Undoubted() {
		return nil
	}
	return l.Ours(ctx)
}

// waitUntilOurs returns when the cluster is no longer another installation's: else the election would try and fail, and say so, every two
// seconds for as long as there are two.
func (l *leadership) waitUntilOurs(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, foreignRecheck, false, func(ctx context.Context) (bool, error) { // it fails when ctx ends
		return !isForeign(l.Ours(ctx)), nil
	})
}

func isForeign(err error) bool {
	_, others := errors.AsType[*installation.Other](err)
	return others
}

// Held says whether this process surely leads now.
func (l *leadership) Held() bool {
	l.reliedOn.Store(true)
	return l.fresh()
}

func (l *leadership) fresh() bool {
	renewed := l.renewed.Load()
	return renewed != nil && l.Clock.Since(*renewed) < l.Trusted
}

// loggedReadiness is a manager whose log says why it isn't ready: readyz itself withholds the reasons from whoever asks.
type loggedReadiness struct{ ctrl.Manager }

// AddReadyzCheck adds a check whose outcome is logged.
func (m loggedReadiness) AddReadyzCheck(name string, check healthz.Checker) error {
	return m.Manager.AddReadyzCheck(name, logged(m.GetLogger().WithValues("check", name), check))
}

// logged logs what a check says when it says something else than before; probes come every few seconds.
func logged(log logr.Logger, check healthz.Checker) healthz.Checker {
	var mu sync.Mutex
	last := ""
	return func(r *http.Request) error {
		err := check(r)
		text := ""
		if err != nil {
			text = err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case text == last:
		case err != nil:
			log.Info("Not ready", "reason", text)
		default:
			log.Info("Ready")
		}
		last = text
		return err
	}
}

// addProbes says what alive and ready mean. That the rules compile is a condition for starting at all. Readiness is of
// every replica, leader or not: every one serves the webhook.
func addProbes(mgr ctrl.Manager, facts *kube.Facts, serving certificate) error {
	err := mgr.AddHealthzCheck("ping", healthz.Ping)
	for name, check := range map[string]healthz.Checker{
		"caches": func(*http.Request) error {
			if !facts.Synced() { // a cache that some set needs later, such as that of Leases, must not take the webhook away
				return errors.New("the caches are not filled yet")
			}
			return nil
		},
		"certificate": serving.Ready,
		"webhook":     mgr.GetWebhookServer().StartedChecker(),
	} {
		err = errors.Join(err, mgr.AddReadyzCheck(name, check))
	}
	if err != nil {
		return fmt.Errorf("add probes: %w", err)
	}
	return nil
}

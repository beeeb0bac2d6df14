package installation

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/kube"
)

// lookEvery is how soon a change of the mark is noticed where nobody asks.
const lookEvery = 5 * time.Second

// Await returns when the cluster is this installation's: for a manager that acts without being elected.
func (m *Marker) Await(ctx context.Context) error {
	said := ""
	return wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
		err := m.Ours(ctx)
		if err != nil && err.Error() != said {
			said = err.Error()
			log.FromContext(ctx).Info("Waiting until this installation may act", "reason", said)
		}
		return err == nil, nil
	})
}

// Watcher looks at the mark as long as the manager runs, when it may have changed.
type Watcher struct {
	*Marker
	Cache cache.Cache
	// Elected says that the leader election asks the marker, too. Else the manager ends when the cluster turns another's.
	Elected bool
}

// NeedLeaderElection says that standbys look as well: they tell whether they are ready.
func (Watcher) NeedLeaderElection() bool { return false }

// Start looks until ctx ends.
func (w Watcher) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.watch(ctx) })
	group.Go(func() error { return w.follow(ctx) })
	return group.Wait()
}

// watch has what Ours reads tell of changes.
func (w Watcher) watch(ctx context.Context) error {
	changed := func(*admissionregistrationv1.ValidatingWebhookConfiguration) { w.Doubt() }
	namespace := func(n *corev1.Namespace) {
		if n.Name == w.Namespace {
			w.Doubt()
		}
	}
	watching := func(ctx context.Context) error {
		w.watched.Store(true)
		<-ctx.Done()
		return nil
	}
	return kube.NewWatches(w.Cache).Run(ctx, watching,
		kube.On(&admissionregistrationv1.ValidatingWebhookConfiguration{}, changed, changed),
		kube.On(&corev1.Namespace{}, namespace, namespace))
}

// follow asks whenever the answer may be another one, and again and again where that can't be told by watches alone: whether another
// installation is gone, and, where no election asks for who acts, whether a watch has died.
func (w Watcher) follow(ctx context.Context) error {
	var lost error
	_ = wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) { // it fails when ctx ends, which is no failure
		if w.Elected && w.Undoubted() {
			return false, nil
		}
		err := w.Ours(ctx)
		if _, others := errors.AsType[*Other](err); others && !w.Elected {
			lost = err
		}
		return lost != nil, nil
	})
	return lost
}

// Package installation keeps two installations in one cluster from acting side by side: the first one marks the webhook's
// configuration, of which there is one in a cluster, and the second finds the mark and stands aside.
package installation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/metric"
)

var conflict = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "autohealer_installation_conflict",
	Help: "1 while this replica does nothing since the cluster is marked as another installation's.",
})

// RegisterMetrics adds the metric to the manager's registry; a second manager in one process shares it.
func RegisterMetrics() error {
	return metric.Register(conflict)
}

// Other says that the cluster is another installation's.
type Other struct {
	// Namespace is that installation's.
	Namespace string
	own, in   string
}

func (o *Other) Error() string {
	return fmt.Sprintf("this cluster is marked as that of the installation in namespace %[1]s, so the one in namespace %[2]s does nothing. If the one in namespace %[1]s is gone for good: kubectl annotate validatingwebhookconfiguration %[3]s %[4]s-",
		o.Namespace, o.own, o.in, v1alpha1.AnnotationInstallation)
}

// Marker tells whether the cluster is this installation's. An installation is its namespace, by name and UID: it outlives upgrades
// and all replicas, and ends with an uninstall.
type Marker struct {
	// Client reads from the API server and from no cache.
	Client client.Client
	// Configuration names the ValidatingWebhookConfiguration with the mark, and Namespace is our own.
	Configuration, Namespace string

	last atomic.Pointer[finding]
	mine atomic.Bool
	// doubts counts what may have changed the answer, and watched says that all of that is heard of.
	doubts  atomic.Int64
	watched atomic.Bool
}

// finding is what came of one look.
type finding struct {
	err error
	// doubts there were before.
	doubts int64
}

// Ours gives nil when the cluster is this installation's, and marks it when it is nobody's: a mark whose namespace is gone, or is
// another one by now, is of nobody. It gives *Other when it is another installation's; any other error says that it can't be known.
//
// Without the configuration there is no mark and nothing to mark: people delete it to get by without a webhook, and undo must go on.
func (m *Marker) Ours(ctx context.Context) error {
	doubts := m.doubts.Load()
	err := m.check(ctx)
	m.last.Store(&finding{err, doubts})
	conflict.Set(0)
	_, others := errors.AsType[*Other](err)
	if others {
		conflict.Set(1)
	}
	if err == nil || others {
		m.mine.Store(err == nil)
	}
	return err
}

// Mine says without asking whether the cluster was this installation's when that could be known last; false before.
func (m *Marker) Mine() bool { return m.mine.Load() }

// Doubt says that the answer may be another one by now: a watch reported something, or failed.
func (m *Marker) Doubt() { m.doubts.Add(1) }

// Undoubted says without asking whether the cluster was this installation's at the last look and no watch reported anything since. A watch
// that died without a word tells of nothing, so that is not enough for who acts.
func (m *Marker) Undoubted() bool {
	last := m.last.Load()
	return m.watched.Load() && last != nil && last.err == nil && last.doubts == m.doubts.Load()
}

func (m *Marker) check(ctx context.Context) error {
	var own corev1.Namespace
	if err := m.Client.Get(ctx, client.ObjectKey{Name: m.Namespace}, &own); err != nil {
		return fmt.Errorf("read Autohealer's namespace: %w", err)
	}
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	err := m.Client.Get(ctx, client.ObjectKey{Name: m.Configuration}, &configuration)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find out which installation the cluster belongs to: %w", err)
	}
	mark, ours := configuration.Annotations[v1alpha1.AnnotationInstallation], own.Name+"/"+string(own.UID)
	if mark == ours {
		return nil
	}
	if mark != "" {
		if err := m.gone(ctx, mark); err != nil {
			return err
		}
	}
	return m.mark(ctx, &configuration, ours)
}

// gone gives an error unless the installation with this mark surely is.
func (m *Marker) gone(ctx context.Context, mark string) error {
	name, uid, ok := strings.Cut(mark, "/")
	if !ok || name == "" || uid == "" {
		return fmt.Errorf("find out which installation the cluster belongs to: annotation %s of ValidatingWebhookConfiguration %s is %q, not NAMESPACE/UID", v1alpha1.AnnotationInstallation, m.Configuration, mark)
	}
	var namespace corev1.Namespace
	err := m.Client.Get(ctx, client.ObjectKey{Name: name}, &namespace)
	switch {
	case apierrors.IsNotFound(err), err == nil && string(namespace.UID) != uid:
		return nil
	case err != nil:
		return fmt.Errorf("see whether the installation in namespace %s is still there: %w", name, err)
	}
	return &Other{name, m.Namespace, m.Configuration}
}

// mark fails with a conflict when somebody has changed the configuration since: two that start at once don't both get it.
func (m *Marker) mark(ctx context.Context, configuration *admissionregistrationv1.ValidatingWebhookConfiguration, ours string) error {
	before := configuration.DeepCopy()
	if configuration.Annotations == nil {
		configuration.Annotations = map[string]string{}
	}
	configuration.Annotations[v1alpha1.AnnotationInstallation] = ours
	if err := m.Client.Patch(ctx, configuration, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("mark the cluster as this installation's: %w", err)
	}
	log.FromContext(ctx).Info("Marked the cluster as this installation's", "installation", ours)
	return nil
}

// Ready is a readiness check: the cluster isn't another installation's. What can't be known leaves the webhook in service.
func (m *Marker) Ready(*http.Request) error {
	if last := m.last.Load(); last != nil {
		if other, others := errors.AsType[*Other](last.err); others {
			return other
		}
	}
	return nil
}

// checkInterval is how soon a change of the mark is noticed where nobody asks.
const checkInterval = 5 * time.Second

// Await returns when the cluster is this installation's: for a manager that acts without being elected.
func (m *Marker) Await(ctx context.Context) error {
	logged := ""
	return wait.PollUntilContextCancel(ctx, checkInterval, true, func(ctx context.Context) (bool, error) {
		err := m.Ours(ctx)
		if err != nil && err.Error() != logged {
			logged = err.Error()
			log.FromContext(ctx).Info("Waiting until this installation may act", "reason", logged)
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

// follow asks whenever the answer may be another one, and again and again where that can't be known by watches alone: whether another
// installation is gone, and, where no election asks for who acts, whether a watch has died.
func (w Watcher) follow(ctx context.Context) error {
	var lost error
	_ = wait.PollUntilContextCancel(ctx, checkInterval, true, func(ctx context.Context) (bool, error) { // it fails when ctx ends, which is no failure
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

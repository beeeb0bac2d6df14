package shoots

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrNotSynced: the objects aren't all read yet. It says nothing about any of them.
var ErrNotSynced = errors.New("not all objects of the kind are read yet")

// Source is the query that a Mirror keeps the objects of.
type Source struct {
	// Client of the cluster, without a time limit on its requests.
	Client client.WithWatch
	// List makes an empty list of the objects, and Options say which of them.
	List    func() client.ObjectList
	Options []client.ListOption
	// Trim drops the fields of an object that aren't read. Nil: its managed fields.
	Trim func(client.Object)
	// Timeout bounds each read, and how long a watch may take to begin.
	Timeout time.Duration
	// Changed is called after an object was, with nil where it may be any, or all.
	Changed func(client.Object)
	Clock   clock.PassiveClock
}

// Mirror keeps the objects of one query to one cluster, as a watch reports them. It is safe for concurrent use.
type Mirror struct {
	source Source
	stop   context.CancelFunc
	store  toolscache.Store
	health *WatchHealth
	synced atomic.Bool
}

// retries of a cluster that can't be reached.
var retries = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 4, Cap: 10 * time.Second, Jitter: 0.5}

// Open starts a Mirror, which runs until Close.
func Open(s Source) *Mirror {
	ctx, stop := context.WithCancel(context.Background())
	if s.Trim == nil {
		s.Trim = func(o client.Object) { o.SetManagedFields(nil) }
	}
	m := &Mirror{source: s, stop: stop, store: toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)}
	m.health = NewWatchHealth(s.Timeout, s.Clock, func() { s.Changed(nil) })
	m.health.waitForStore = true
	backoff := retries
	reflector := toolscache.NewReflectorWithOptions(
		m.health.Observe(&toolscache.ListWatch{ListWithContextFunc: m.list, WatchFuncWithContext: m.watch}),
		nil, &mirrorStore{Store: m.store, mirror: m}, toolscache.ReflectorOptions{Name: "shoot", Backoff: &backoff},
	)
	go reflector.RunWithContext(ctx)
	return m
}

// Close stops it.
func (m *Mirror) Close() { m.stop() }

// Objects are the current objects, read-only. The error says why they aren't current: ErrNotSynced until they were read once.
func (m *Mirror) Objects() ([]client.Object, error) {
	if err := m.usable(); err != nil {
		return nil, err
	}
	all := m.store.List()
	objects := make([]client.Object, len(all))
	for i, o := range all {
		objects[i] = o.(client.Object)
	}
	return objects, nil
}

func (m *Mirror) usable() error {
	if err := m.health.Err(); err != nil {
		return err
	}
	if !m.synced.Load() {
		return ErrNotSynced
	}
	return nil
}

// Object is the one of that name, nil when there is none. The error is that of Objects.
func (m *Mirror) Object(key types.NamespacedName) (client.Object, error) {
	if err := m.usable(); err != nil {
		return nil, err
	}
	name := toolscache.NewObjectName(key.Namespace, key.Name).String()
	o, ok, err := m.store.GetByKey(name)
	if err != nil || !ok {
		return nil, err
	}
	return o.(client.Object), nil
}

func (m *Mirror) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list := m.source.List()
	return list, m.source.Client.List(ctx, list, m.options(o)...)
}

func (m *Mirror) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return m.source.Client.Watch(ctx, m.source.List(), m.options(o)...)
}

func (m *Mirror) options(o metav1.ListOptions) []client.ListOption {
	raw := &client.ListOptions{Raw: &o, Limit: o.Limit, Continue: o.Continue}
	return append([]client.ListOption{raw}, m.source.Options...)
}

var errUnchanged = errors.New("it is as it was")

// mirrorStore is the store that the reflector writes to.
type mirrorStore struct {
	toolscache.Store
	mirror *Mirror
}

// Add stores a new object.
func (s *mirrorStore) Add(o any) error { return s.store(o, s.Store.Add) }

// Update stores an object, if a field that Trim keeps has changed.
func (s *mirrorStore) Update(o any) error {
	return s.store(o, func(o any) error {
		before, known, err := s.Get(o)
		if known && equality.Semantic.DeepEqual(before, o) {
			return errUnchanged
		}
		return errors.Join(err, s.Store.Update(o))
	})
}

// Delete removes an object.
func (s *mirrorStore) Delete(o any) error { return s.store(o, s.Store.Delete) }

// Replace stores all objects.
func (s *mirrorStore) Replace(all []any, version string) error {
	for _, o := range all {
		s.mirror.source.Trim(o.(client.Object))
	}
	if err := s.Store.Replace(all, version); err != nil {
		return err
	}
	s.mirror.synced.Store(true)
	s.mirror.health.stored()
	s.mirror.source.Changed(nil)
	return nil
}

func (s *mirrorStore) store(o any, by func(any) error) error {
	object := o.(client.Object)
	s.mirror.source.Trim(object)
	switch err := by(object); {
	case errors.Is(err, errUnchanged):
		return nil
	case err != nil:
		return err
	}
	s.mirror.source.Changed(object)
	return nil
}

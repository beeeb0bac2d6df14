package checking

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/shoots"
)

// answerTimeout is how long a list, or what a watch begins with, may take: an API server gives up a request itself after a minute.
const answerTimeout = 70 * time.Second

// ErrNotSynced: the objects of a kind aren't all read yet. It says nothing about any of them.
var ErrNotSynced = shoots.ErrNotSynced

// Target is an object that gets conditions.
type Target struct {
	// Kind in whatever version: registrations may name several, and its conditions are the same.
	Kind schema.GroupKind
	Key  types.NamespacedName
}

// Watches has informers of the kinds that registrations are about, each from when it is first asked for. It is safe for
// concurrent use.
type Watches struct {
	// Changed is called for each target that is new, changed or gone, and for each whose checks look at an object that is.
	Changed func(Target)
	Clock   clock.PassiveClock

	cache  cache.Cache
	index  health.Index[Target]
	scopes scopes

	mu      sync.Mutex
	kinds   map[schema.GroupVersionKind]kindWatch // needs mu, as all below
	targets map[schema.GroupVersionKind]bool
	// clusterScoped are the kinds whose objects have no namespace, as far as is known, whichever a check names.
	clusterScoped sets.Set[schema.GroupVersionKind]
	// reads are the fields that registrations read: of objects no others are kept. Its sets are never changed.
	reads        registration.Fields
	readsVersion int // counts how often reads became more
}

// kindWatch is the watch of a kind, and the fields that are kept of its objects.
type kindWatch struct {
	informer cache.Informer
	fields   sets.Set[string]
}

// healthInformer is an informer and how its lists and watches fare.
type healthInformer struct {
	toolscache.SharedIndexInformer
	health *shoots.WatchHealth
}

// NewWatches makes the watches, with a cache of their own that the manager starts: what checks read of an object is more than
// what the manager keeps of it for others.
func NewWatches(mgr manager.Manager, changed func(Target), now clock.PassiveClock) (*Watches, error) {
	w, err := watchesBy(mgr.GetConfig(), mgr.GetHTTPClient(), mgr.GetScheme(), mgr.GetRESTMapper(), changed, now)
	if err != nil {
		return nil, err
	}
	return w, mgr.Add(allReplicas{w.cache})
}

func watchesBy(config *rest.Config, by *http.Client, scheme *runtime.Scheme, kinds meta.RESTMapper, changed func(Target), now clock.PassiveClock) (*Watches, error) {
	w := WatchesOf(nil, changed, now)
	objects, err := cache.New(config, cache.Options{
		HTTPClient: by, Scheme: scheme, Mapper: kinds, DefaultTransform: w.trim, DefaultWatchErrorHandler: logWatchError, NewInformer: w.newInformer,
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of what checks look at: %w", err)
	}
	w.cache, w.scopes.ask = objects, scopesBy(kinds)
	return w, nil
}

// WatchesOf makes the watches, with a cache that somebody else starts, of kinds that are all served and have namespaces.
func WatchesOf(objects cache.Cache, changed func(Target), now clock.PassiveClock) *Watches {
	return &Watches{
		Changed: changed, Clock: now, cache: objects,
		kinds: map[schema.GroupVersionKind]kindWatch{}, targets: map[schema.GroupVersionKind]bool{}, clusterScoped: sets.New[schema.GroupVersionKind](),
		reads: registration.Fields{}, scopes: scopes{
			clock: now, ask: func(context.Context, schema.GroupVersionKind) (meta.RESTScopeName, error) {
				return meta.RESTScopeNameNamespace, nil
			},
		},
	}
}

// allReplicas has a cache run on every replica, so that one that takes over knows all.
type allReplicas struct{ cache.Cache }

// GetCache is what the manager knows caches by.
func (e allReplicas) GetCache() cache.Cache { return e.Cache }

func (w *Watches) newInformer(by toolscache.ListerWatcher, of runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	var made healthInformer
	kind := of.GetObjectKind().GroupVersionKind()
	made.health = shoots.NewWatchHealth(answerTimeout, w.Clock, func() { w.recovered(kind, made.GetStore()) })
	made.SharedIndexInformer = toolscache.NewSharedIndexInformer(made.health.Observe(by), of, resync, indexers)
	return made
}

// recovered has those evaluated that couldn't be judged while what is known of a kind wasn't trusted.
func (w *Watches) recovered(kind schema.GroupVersionKind, known toolscache.Store) {
	for _, target := range w.index.WatchersOfKind(kind) {
		w.Changed(target)
	}
	if !w.isTarget(kind) {
		return
	}
	for _, o := range known.List() {
		w.Changed(Target{kind.GroupKind(), client.ObjectKeyFromObject(o.(client.Object))})
	}
}

// Watch begins to watch a kind, of which all objects are targets where it says so. The error says why what is known of the
// kind can't be trusted: ErrNotSynced until it is all read.
func (w *Watches) Watch(ctx context.Context, kind schema.GroupVersionKind, targets bool) error {
	scope, err := w.scopes.Of(ctx, kind) // which may take a request, that nobody else is to wait for
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("the kind isn't served: %w", err)
	}
	if err != nil {
		return fmt.Errorf("find the resource of %s: %w", kind.Kind, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if scope == meta.RESTScopeNameRoot && !w.clusterScoped.Has(kind) { // those who follow its objects in a namespace follow them anew
		w.clusterScoped.Insert(kind)
		for _, target := range w.index.WatchersOfKind(kind) {
			w.Changed(target)
		}
	}
	w.targets[kind] = w.targets[kind] || targets
	informer, err := w.informer(ctx, kind)
	if err != nil {
		return fmt.Errorf("watch %s: %w", kind.Kind, err)
	}
	if l, ok := informer.(healthInformer); ok {
		if err := l.health.Err(); apierrors.IsNotFound(err) {
			return fmt.Errorf("the kind isn't served: %w", err)
		} else if err != nil {
			return fmt.Errorf("watch %s: %w", kind.Kind, err)
		}
	}
	if !informer.HasSynced() {
		return ErrNotSynced
	}
	return nil
}

// AddFields has what a registration reads of objects kept from now on. It comes before anybody asks the registration's checks. Kinds of
// which it reads more than was kept are read anew, and unread until then. What was kept once stays kept.
func (w *Watches) AddFields(reg *registration.Registration) {
	more := registration.Fields{}
	more.Add(reg)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.reads.Missing(more)) > 0 {
		w.reads = w.reads.Union(more)
		w.readsVersion++
	}
}

// CloseOthers ends the watches of all kinds but these. One that somebody asks for after all begins anew.
func (w *Watches) CloseOthers(named sets.Set[schema.GroupVersionKind]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for kind := range w.kinds {
		if named.Has(kind) {
			continue
		}
		if err := w.cache.RemoveInformer(context.Background(), empty(kind)); err == nil {
			delete(w.kinds, kind)
			delete(w.targets, kind)
		}
	}
}

// ReadsVersion changes when there is more that is kept of objects: what was read before may lack it.
func (w *Watches) ReadsVersion() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.readsVersion
}

// trim drops of an object what no check reads, before it is kept.
func (w *Watches) trim(o any) (any, error) {
	object, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	w.mu.Lock()
	paths := w.reads[object.GroupVersionKind()]
	w.mu.Unlock()
	trimObject(object, paths)
	return object, nil
}

// informer needs w.mu.
func (w *Watches) informer(ctx context.Context, kind schema.GroupVersionKind) (cache.Informer, error) {
	known, open := w.kinds[kind]
	if open && known.fields.Equal(w.reads[kind]) {
		return known.informer, nil
	}
	if open {
		if err := w.cache.RemoveInformer(ctx, empty(kind)); err != nil {
			return nil, err
		}
		delete(w.kinds, kind)
	}
	informer, err := w.cache.GetInformer(ctx, empty(kind), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.objectChanged(kind, o, o) },
		UpdateFunc: func(before, after any) { w.objectChanged(kind, before, after) },
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			w.objectChanged(kind, o, o)
		},
	})
	if err != nil {
		return nil, err
	}
	w.kinds[kind] = kindWatch{informer, w.reads[kind]}
	return informer, nil
}

func (w *Watches) objectChanged(kind schema.GroupVersionKind, before, after any) {
	was, ok := before.(client.Object)
	is, also := after.(client.Object)
	if !ok || !also {
		return
	}
	key := client.ObjectKeyFromObject(is)
	for target := range w.index.Affected(kind, key, labels.Set(was.GetLabels()), labels.Set(is.GetLabels())) {
		w.Changed(target)
	}
	if w.isTarget(kind) {
		w.Changed(Target{kind.GroupKind(), key})
	}
}

func (w *Watches) isTarget(kind schema.GroupVersionKind) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.targets[kind]
}

// Resolve gives where the objects of a ref are: those of a cluster-scoped kind aren't in the namespace of who looks at them.
func (w *Watches) Resolve(ref registration.Ref) registration.Ref {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clusterScoped.Has(ref.Kind) {
		ref.Namespace = ""
	}
	return ref
}

// Follow has the target judged again when what its checks look at changes; nothing does so with no refs.
func (w *Watches) Follow(target Target, refs []registration.Ref) {
	w.mu.Lock()
	defer w.mu.Unlock() // or a kind could turn out to be cluster-scoped meanwhile
	for i := range refs {
		if w.clusterScoped.Has(refs[i].Kind) {
			refs[i].Namespace = ""
		}
	}
	w.index.SetRefs(target, refs)
}

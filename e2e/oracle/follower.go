package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// follower watches one resource and is the store of its reflector, which lists anew when a watch is lost for good.
type follower struct {
	resource schema.GroupVersionResource
	// ours: the resource of a kind of policies.
	ours    bool
	trims   []func(*unstructured.Unstructured)
	history *history

	// These need history.mu.
	start uint64               // version of the first list
	alive map[types.UID]uint64 // the version seen last
	gone  map[types.UID]bool
}

// retry after a lost watch: quickly, because Check waits for it.
var retry = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Steps: 5, Cap: time.Second}

func (f *follower) run(ctx context.Context, client dynamic.Interface) {
	resource := client.Resource(f.resource)
	objects := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return resource.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, o)
		},
	}, client)
	cache.NewReflectorWithOptions(objects, &unstructured.Unstructured{}, f, cache.ReflectorOptions{
		Name: "oracle", TypeDescription: f.resource.String(), Backoff: &retry,
	}).RunWithContext(ctx)
}

// trim encodes what of an object is judged. Its version is left out, so that equal bytes mean that nothing changed.
func (f *follower) trim(object *unstructured.Unstructured) []byte {
	trimmed := object.DeepCopy()
	trimmed.SetManagedFields(nil)
	trimmed.SetResourceVersion("")
	for _, trim := range f.trims {
		trim(trimmed)
	}
	encoded, err := json.Marshal(trimmed.Object)
	if err != nil { // not for what came as JSON
		panic(fmt.Sprintf("encode %s: %v", object.GetName(), err))
	}
	return encoded
}

// Add takes in an object that the watch tells as new.
func (f *follower) Add(object any) error { return f.Update(object) }

// Update takes in a new revision of an object.
func (f *follower) Update(object any) error {
	u, err := asUnstructured(object)
	if err != nil {
		return err
	}
	f.history.saw(f, u, time.Now())
	f.history.mu.Lock()
	defer f.history.mu.Unlock()
	f.alive[u.GetUID()] = versionOf(u.GetResourceVersion())
	return nil
}

// Delete takes in a deletion; the object has the version at which it went.
func (f *follower) Delete(object any) error {
	u, err := asUnstructured(object)
	if err != nil {
		return err
	}
	f.end(u.GetUID(), versionOf(u.GetResourceVersion()))
	return nil
}

func (f *follower) end(uid types.UID, version uint64) {
	f.history.sawGone(f, uid, version, time.Now())
	f.history.mu.Lock()
	defer f.history.mu.Unlock()
	delete(f.alive, uid)
	f.gone[uid] = true
}

// Replace takes in a list: the first, or one after a lost watch. What isn't in it went at its version at the latest.
func (f *follower) Replace(list []any, version string) error {
	listed := map[types.UID]bool{}
	for _, object := range list {
		if err := f.Update(object); err != nil {
			return err
		}
		u, err := asUnstructured(object)
		if err != nil {
			return err
		}
		listed[u.GetUID()] = true
	}
	for _, uid := range f.missing(listed) {
		f.end(uid, versionOf(version))
	}
	f.history.mu.Lock()
	defer f.history.mu.Unlock()
	if f.start == 0 {
		f.start = versionOf(version)
	}
	return nil
}

func (f *follower) missing(listed map[types.UID]bool) []types.UID {
	f.history.mu.Lock()
	defer f.history.mu.Unlock()
	var missing []types.UID
	for uid := range f.alive {
		if !listed[uid] {
			missing = append(missing, uid)
		}
	}
	return missing
}

// Resync has nothing to do: every event was taken in.
func (f *follower) Resync() error { return nil }

func asUnstructured(object any) (*unstructured.Unstructured, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("read a watched object: it is a %T", object)
	}
	return u, nil
}

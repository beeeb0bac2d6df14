package oracle

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// objectKey identifies one object over its life.
type objectKey struct {
	resource schema.GroupVersionResource
	uid      types.UID
}

type revisionKey struct {
	objectKey
	version uint64
}

// revision is how an object was from a version on.
type revision struct {
	revisionKey
	name string
	// object is JSON; nil once the object is gone.
	object []byte
	at     time.Time
	// unseen: only its writer's audit line is known.
	unseen bool
}

// write is a request that succeeded, as the audit log tells it.
type write struct {
	revisionKey // of the response; the version is 0 if that was no object
	name        string
	subresource string
	verb        string
	ours        bool
	// at is when the answer was complete.
	at time.Time
	// request is the body; kept for our own writes only.
	request []byte
}

// evicts says whether the write is the eviction of a pod.
func (w write) evicts() bool { return w.resource.Resource == "pods" && w.subresource == "eviction" }

// removes says whether the write ends its object.
func (w write) removes() bool { return w.evicts() || w.verb == "delete" && w.subresource == "" }

// history is everything seen since Attach. The watches tell every revision but those made while they were down; the
// audit log tells those, and who wrote.
type history struct {
	user     string
	followed []*follower

	mu        sync.Mutex
	revisions map[revisionKey]*revision
	latest    map[objectKey][]byte // the object seen last, to share its bytes
	writes    []write
	marker    string
	envoys    []revision // of what Envoys run with; they have no versions
}

func newHistory(o Options) *history {
	h := &history{user: o.User, revisions: map[revisionKey]*revision{}, latest: map[objectKey][]byte{}}
	byResource := map[schema.GroupVersionResource]*follower{}
	follow := func(resource schema.GroupVersionResource) *follower {
		if byResource[resource] == nil {
			byResource[resource] = &follower{resource: resource, history: h, alive: map[types.UID]uint64{}, gone: map[types.UID]bool{}}
			h.followed = append(h.followed, byResource[resource])
		}
		return byResource[resource]
	}
	for _, kind := range o.Kinds {
		follow(kind.Policies()).ours = true
		for _, resource := range kind.Foreign() {
			if resource == envoys {
				continue
			}
			f := follow(resource)
			f.trims = append(f.trims, kind.Trim)
		}
	}
	if o.Guardrails {
		follow(guardrails).ours = true
	}
	return h
}

func (h *history) follower(resource schema.GroupVersionResource) *follower {
	i := slices.IndexFunc(h.followed, func(f *follower) bool { return f.resource == resource })
	if i < 0 {
		return nil
	}
	return h.followed[i]
}

// saw takes in a revision, told by a watch or by the audit log; the earlier of the two tells the time.
func (h *history) saw(f *follower, object *unstructured.Unstructured, at time.Time) {
	key := revisionKey{objectKey{f.resource, object.GetUID()}, versionOf(object.GetResourceVersion())}
	encoded := f.trim(object)
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.revisions[key]; known != nil {
		if at.Before(known.at) {
			known.at = at
		}
		return
	}
	if bytes.Equal(encoded, h.latest[key.objectKey]) {
		encoded = h.latest[key.objectKey]
	}
	h.latest[key.objectKey] = encoded
	h.revisions[key] = &revision{revisionKey: key, name: nameOf(f.resource.Resource, object), object: encoded, at: at}
}

func (h *history) sawGone(f *follower, uid types.UID, version uint64, at time.Time) {
	key := revisionKey{objectKey{f.resource, uid}, version}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.latest, key.objectKey)
	h.revisions[key] = &revision{revisionKey: key, at: at}
}

func (h *history) wrote(w write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes = append(h.writes, w)
}

func (h *history) marked(marker string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.marker = marker
}

func (h *history) waitStarted(ctx context.Context) error {
	return poll(ctx, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, f := range h.followed {
			if f.start == 0 {
				return fmt.Errorf("no list of %s yet; is its CRD installed?", f.resource.GroupResource())
			}
		}
		return nil
	})
}

// waitSeen waits until the watch has told of every object in the list, as it is there or later, and of every deletion.
func (h *history) waitSeen(ctx context.Context, f *follower, list *metav1.PartialObjectMetadataList) error {
	listed := map[types.UID]bool{}
	for i := range list.Items {
		listed[list.Items[i].UID] = true
	}
	return poll(ctx, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for i := range list.Items {
			item := &list.Items[i]
			if version, alive := f.alive[item.UID]; alive && version < versionOf(item.ResourceVersion) || !alive && !f.gone[item.UID] {
				return fmt.Errorf("%s is only known at version %d, not %s", item.Name, version, item.ResourceVersion)
			}
		}
		for uid, version := range f.alive {
			if !listed[uid] && version <= versionOf(list.ResourceVersion) {
				return fmt.Errorf("the deletion of object %s isn't known", uid)
			}
		}
		return nil
	})
}

func (h *history) waitMarker(ctx context.Context, marker string) error {
	return poll(ctx, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.marker != marker {
			return fmt.Errorf("%s isn't in it", marker)
		}
		return nil
	})
}

// poll repeats holds until it gives nil; its last error is in the one given when ctx ends.
func poll(ctx context.Context, holds func() error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		last = holds()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}

// past is a copy of the history, in order.
type past struct {
	revisions []revision
	writes    []write
	// starts are the versions at Attach: what came before isn't judged.
	starts map[schema.GroupVersionResource]uint64
}

func (h *history) events(until uint64) past {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := past{writes: slices.Clone(h.writes), starts: map[schema.GroupVersionResource]uint64{}}
	for _, r := range h.revisions {
		if r.version <= until {
			p.revisions = append(p.revisions, *r)
		}
	}
	p.writes = slices.DeleteFunc(p.writes, func(w write) bool { return w.version > until })
	p.revisions = append(p.revisions, placed(h.envoys, p.revisions)...)
	slices.SortStableFunc(p.revisions, func(a, b revision) int { return cmp.Compare(a.version, b.version) })
	slices.SortStableFunc(p.writes, func(a, b write) int { return a.at.Compare(b.at) })
	for _, f := range h.followed {
		p.starts[f.resource] = f.start
	}
	return p
}

// versionOf reads a resource version: the API server's are etcd's revisions, one order over all resources.
func versionOf(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func nameOf(resource string, object metav1.Object) string {
	if object.GetNamespace() == "" {
		return resource + "/" + object.GetName()
	}
	return resource + "/" + object.GetNamespace() + "/" + object.GetName()
}

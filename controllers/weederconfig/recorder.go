package weederconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/kube"
)

// DeletionRecorder writes deletions down in their configs' status before they are done. Without it a manager that is killed would forget
// its last ones, and its successor would begin with budgets that are not spent.
//
// No write takes back what another leader wrote: each names the state of the config that it replaces, and after that was known
// this process was surely the leader. So it is of a time in which nobody else wrote, or the API server refuses the write.
type DeletionRecorder struct {
	Client   client.Client
	Observer *Observer
	// Live reads from the API server, past the cache.
	Live client.Reader
	// Leads says whether this replica surely leads. Default: it does.
	Leads func() bool
	// Prefetch is called beside each write, to ask for what must be known next. Default: nothing is.
	Prefetch func(context.Context, *weeder.Deletion)

	inheriting sync.Mutex // held while it is read what earlier leaders did
	batchers   sync.Map   // *batcher by the config's name
}

// Inherit reads what earlier leaders wrote down for all configs, and lets this process act: the minute and a pod's repeats are shared by
// all of them. It is called before the first deletion, and reads once for all who wait for it.
func (r *DeletionRecorder) Inherit(ctx context.Context) error {
	r.inheriting.Lock()
	defer r.inheriting.Unlock()
	if r.Observer.weeder().Claimed() {
		return nil
	}
	var all v1alpha1.WeederConfigList
	if err := r.Live.List(ctx, &all); err != nil {
		return fmt.Errorf("read the WeederConfigs before the first deletion: %w", err)
	}
	if !r.leads() {
		return errNotLeading
	}
	count := slices.DeleteFunc(all.Items, func(wc v1alpha1.WeederConfig) bool { return wc.DeletionTimestamp != nil || r.unreadable(&wc) })
	if unknown := r.Observer.weeder().Claim(count, r.Observer.Facts.Moment()); len(unknown) > 0 {
		return fmt.Errorf("WeederConfig %s, for which pods were deleted lately, isn't judged yet", unknown[0])
	}
	return nil
}

// unreadable says that a config can't be read: what was done for it counts no more.
func (r *DeletionRecorder) unreadable(wc *v1alpha1.WeederConfig) bool {
	config, ok := r.Observer.policies.Get(client.ObjectKeyFromObject(wc))
	return ok && config.UID == wc.UID && config.Read.unreadable != nil
}

// errNotLeading: another replica may lead by now.
var errNotLeading = errors.New("this replica may no longer be the leader")

func (r *DeletionRecorder) leads() bool { return r.Leads == nil || r.Leads() }

// Enter writes down a deletion that the planner has reserved. After an error it may not be done; otherwise leave must be called
// once it is over, whatever became of it.
func (r *DeletionRecorder) Enter(ctx context.Context, d *weeder.Deletion) (leave func(), err error) {
	shared, _ := r.batchers.LoadOrStore(d.Key, newBatcher())
	b := shared.(*batcher)
	if err := b.enter(func() error { return r.write(ctx, d, b) }); err != nil {
		return nil, fmt.Errorf("record a deletion in the status of WeederConfig %s: %w", d.Key, err)
	}
	return b.leave, nil
}

// forget drops what is known of a config that is gone.
func (r *DeletionRecorder) forget(config types.NamespacedName) { r.batchers.Delete(config) }

// rewrites bounds how often a write is retried because the config changed meanwhile.
const rewrites = 4

// write writes while it holds the batcher's writeLock.
func (r *DeletionRecorder) write(ctx context.Context, d *weeder.Deletion, b *batcher) error {
	if r.Prefetch != nil {
		var asking sync.WaitGroup
		defer asking.Wait()
		asking.Go(func() { r.Prefetch(ctx, d) })
	}
	config, ok := r.Observer.policies.Get(d.Key)
	if !ok {
		r.batchers.CompareAndDelete(d.Key, b) // Enter may have stored it after forget was called, which isn't called again
	}
	if !ok || config.UID != d.Config {
		return errors.New("the WeederConfig is gone")
	}
	if c, err := resourceversion.CompareResourceVersion(config.Object.ResourceVersion, b.version); err != nil || c > 0 {
		b.version = config.Object.ResourceVersion
	}
	for range rewrites {
		err := r.replace(ctx, d, b, config.Object.Status.Services)
		if !apierrors.IsConflict(err) {
			return err
		}
		if err := r.refreshVersion(ctx, d, b); err != nil {
			return err
		}
	}
	return errors.New("the WeederConfig keeps changing")
}

// replace writes over the state of the config that the batcher knows.
func (r *DeletionRecorder) replace(ctx context.Context, d *weeder.Deletion, b *batcher, services int32) error {
	if !r.leads() { // asked after that state was known
		return errNotLeading
	}
	st, ok := r.Observer.weeder().Recorded(d.Config, r.Observer.Facts.Moment())
	if !ok {
		return errors.New("the WeederConfig is gone")
	}
	st.Services = services
	wc := metadataOf(v1alpha1.GroupVersion.WithKind(kindWeederConfig))
	wc.Namespace, wc.Name, wc.UID, wc.ResourceVersion = d.Key.Namespace, d.Key.Name, d.Config, b.version
	err := kube.MergeStatus(ctx, r.Client, wc, st) // what is empty stays as it was, which can only forbid
	if err == nil {
		b.version = wc.ResourceVersion
	}
	return err
}

// refreshVersion reads of which state the config is now.
func (r *DeletionRecorder) refreshVersion(ctx context.Context, d *weeder.Deletion, b *batcher) error {
	wc := metadataOf(v1alpha1.GroupVersion.WithKind(kindWeederConfig))
	if err := r.Live.Get(ctx, d.Key, wc); err != nil {
		return fmt.Errorf("read the WeederConfig: %w", err)
	}
	if wc.UID != d.Config {
		return errors.New("another WeederConfig has this name")
	}
	b.version = wc.ResourceVersion
	return nil
}

const (
	// batchDelay is how long a write waits for deletions that are decided at the same moment. Without it a recovery's first pod
	// would be written down alone, and all others would wait for a second write.
	batchDelay = 2 * time.Millisecond
	// maxInFlight deletions that are written down and not over let the next write wait: two for each sender.
	maxInFlight = 2 * senders
)

// batcher lets the deletions of one config share writes: those that are decided at the same moment, while another write is on
// its way, or while the senders have enough to do.
type batcher struct {
	writeLock chan struct{} // has room for whoever writes
	// version is the config's resource version as far as writers know, "" before the first; needs the writeLock.
	version string

	mu       sync.Mutex
	fewer    sync.Cond // on mu: inFlight has shrunk
	next     *batch    // needs mu: has no write yet; nil for none
	inFlight int       // needs mu: those written down and not over
}

// batch shares one write.
type batch struct {
	size    int           // needs the batcher's mu
	written chan struct{} // closed once the write is over
	err     error         // to be read then
}

func newBatcher() *batcher {
	b := &batcher{writeLock: make(chan struct{}, 1)}
	b.fewer.L = &b.mu
	return b
}

// enter returns when a write is over that began after enter was called. Without an error, leave must follow.
func (b *batcher) enter(write func() error) error {
	in, first := b.join()
	if first { // it must write
		in.err = b.writeFor(in, write)
		close(in.written)
	}
	<-in.written
	return in.err
}

// leave says that what was written down is over.
func (b *batcher) leave() { b.add(-1) }

func (b *batcher) join() (in *batch, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if first = b.next == nil; first {
		b.next = &batch{written: make(chan struct{})}
	}
	b.next.size++
	return b.next, first
}

func (b *batcher) writeFor(in *batch, write func() error) error {
	b.writeLock <- struct{}{}
	defer func() { <-b.writeLock }()
	<-time.After(batchDelay)
	b.seal(in)
	err := write()
	if err != nil {
		b.add(-in.size)
	}
	return err
}

// seal waits until the senders run low, and lets nobody join any more.
func (b *batcher) seal(in *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.inFlight >= maxInFlight {
		b.fewer.Wait()
	}
	b.next = nil
	b.inFlight += in.size
}

func (b *batcher) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight += n
	b.fewer.Signal()
}

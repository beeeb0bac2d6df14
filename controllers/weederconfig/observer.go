package weederconfig

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/keymutex"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weed"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/judging"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// Observer feeds the yard from informers and judges every config that is stored. It runs on every replica: a webhook that
// isn't the leader previews from the same knowledge.
type Observer struct {
	Cache cache.Cache
	Guard *guard.Guard
	Facts *kube.Facts
	// OwnNamespace is Autohealer's; "" when unknown.
	OwnNamespace string
	Report       *Reporter

	judge *judging.Judge[*v1alpha1.WeederConfig, reading]
	// telling is held while the yard is told of a judgement: else an older one could come after a newer.
	telling sync.Mutex
	// asking is held, for each config by itself, while it is read or judged once more for an act.
	asking keymutex.KeyMutex
	// heard is when the watch of each kind of workload last told of anything.
	heard sync.Map
	// lost takes the first object that the API server went back with.
	lost chan error
	// opened holds at most one notice that a window opened.
	opened chan struct{}

	mu      sync.Mutex
	pods    kube.Queue // needs mu, as all below; nil until this replica leads
	configs kube.Queue
	untold  []weed.Opened
}

// NewObserver gives an observer that follows the rules, and does nothing else before Start.
func NewObserver(objects cache.Cache, opts Options, report *Reporter) *Observer {
	o := &Observer{
		Cache: objects, Guard: opts.Guard, Facts: opts.Facts, OwnNamespace: opts.OwnNamespace, Report: report,
		asking: keymutex.NewHashed(judges), lost: make(chan error, 1), opened: make(chan struct{}, 1),
	}
	o.judge = judging.New(judging.Options[*v1alpha1.WeederConfig, reading]{
		Kind: kindWeederConfig, Guard: opts.Guard, Clock: opts.Facts.Clock, Rejections: opts.Rejections, Read: o.read,
	})
	o.followPolicy()
	opts.Guard.OnChange(o.rulesChanged)
	return o
}

// NeedLeaderElection is false: every replica observes.
func (*Observer) NeedLeaderElection() bool { return false }

// Start observes until ctx ends. It fails when the API server went back to an older state: the yard would ignore all news
// until they are newer than what it knows.
func (o *Observer) Start(ctx context.Context) error {
	watches := []struct {
		object   client.Object
		handlers toolscache.ResourceEventHandlerFuncs
	}{
		{&corev1.Pod{}, kube.Handlers(o.pod, o.podGone, o.historyLost)},
		{&discoveryv1.EndpointSlice{}, kube.Handlers(o.slice, o.sliceGone, o.historyLost)},
		{&corev1.Service{}, kube.Handlers(o.service, o.serviceGone, o.historyLost)},
		{&corev1.Namespace{}, kube.Handlers(o.namespace, o.namespaceGone, o.historyLost)},
		{about(workload("Deployment")), holds[*metav1.PartialObjectMetadata](o, "Deployment")},
		{about(workload("StatefulSet")), holds[*metav1.PartialObjectMetadata](o, "StatefulSet")},
		{&appsv1.DaemonSet{}, holds[*appsv1.DaemonSet](o, "DaemonSet")}, // others read more of them
		{&v1alpha1.WeederConfig{}, kube.Handlers(o.config, o.configGone, o.historyLost)},
	}
	var synced []toolscache.InformerSynced
	for _, w := range watches {
		informer, err := o.Cache.GetInformer(ctx, w.object)
		if err != nil {
			return fmt.Errorf("watch %T: %w", w.object, err)
		}
		registration, err := informer.AddEventHandler(w.handlers)
		if err != nil {
			return fmt.Errorf("watch %T: %w", w.object, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // stopped before it began
	}
	o.follow(o.yard().MarkSynced(o.moment()))
	o.enqueueAll()
	var running sync.WaitGroup
	defer running.Wait()
	for range judges {
		running.Go(func() { o.judge.Run(ctx, o.judgeNow) })
	}
	running.Go(func() { o.expire(ctx) })
	select {
	case <-ctx.Done():
		return nil
	case err := <-o.lost:
		return fmt.Errorf("observe pods and WeederConfigs: %w", err)
	}
}

func (o *Observer) yard() *weed.Yard { return o.Facts.Yard }

func (o *Observer) moment() weed.Moment { return weed.Moment(o.Facts.Moment()) }

func (o *Observer) historyLost(err error) {
	select {
	case o.lost <- err:
	default: // the first says enough
	}
}

// expire closes windows when they are over. One timer serves them all.
func (o *Observer) expire(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.opened:
		case <-timer.C:
		}
		at := o.moment()
		next := o.yard().Expire(at)
		o.follow(nil)
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(next.Sub(at.Now) + pastDeadline)
		}
	}
}

// attach takes the queues of a replica that became the leader.
func (o *Observer) attach(pods, configs kube.Queue) {
	o.mu.Lock()
	if pods != nil {
		o.pods = pods
	}
	if configs != nil {
		o.configs = configs
	}
	o.mu.Unlock()
	o.tell(nil)
	o.enqueueAll()
}

func (o *Observer) enqueueAll() {
	if !o.yard().Synced() {
		return
	}
	o.enqueuePods(o.yard().Due(o.moment()), 0)
	for _, key := range o.judge.Keys() {
		o.enqueueConfig(key)
	}
}

// follow does what follows from news: pods to decide on, windows that opened, configs whose status may have changed.
func (o *Observer) follow(due []types.NamespacedName) {
	o.enqueuePods(due, 0)
	if opened := o.yard().TakeOpened(); len(opened) > 0 {
		select {
		case o.opened <- struct{}{}:
		default: // it will look at all
		}
		o.tell(opened)
	}
	o.enqueueDirty()
}

// untoldKept bounds what a standby keeps to tell in case that it takes over.
const untoldKept = 100

// tell tells of windows that opened, each once: a standby keeps to itself what the leader tells, until it leads.
func (o *Observer) tell(opened []weed.Opened) {
	now := o.Facts.Clock.Now()
	o.mu.Lock()
	inherited := o.untold
	if o.untold = nil; o.pods == nil {
		all := append(inherited, opened...)
		o.untold, inherited, opened = all[max(0, len(all)-untoldKept):], nil, nil
	}
	news := slices.DeleteFunc(slices.Concat(inherited, opened), func(w weed.Opened) bool {
		mayBeOld := w.FirstSight || len(inherited) > 0
		j, judged := o.judge.Of(w.Key)
		return !now.Before(w.Ends) || mayBeOld && judged && told(j.Object, w.Window)
	})
	o.mu.Unlock()
	o.Report.recovered(news, now)
}

func (o *Observer) enqueuePods(keys []types.NamespacedName, after time.Duration) {
	if len(keys) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range keys {
		kube.Enqueue(o.pods, key, after)
	}
}

func (o *Observer) enqueueConfig(key types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kube.Enqueue(o.configs, key, 0)
}

// enqueueDirty asks for the status of the configs that changed.
func (o *Observer) enqueueDirty() {
	dirty := o.yard().TakeDirty()
	if len(dirty) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range dirty {
		kube.Enqueue(o.configs, key, status.Delay)
	}
}

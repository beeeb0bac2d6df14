// Package weederconfig deletes crash-looping pods after the Service that they depend on recovered. The Observer keeps the
// planner's state up to date on every replica; on the leader the PodReconciler plans and acts, the DeletionRecorder notes each
// deletion in the config's status before it is sent, and a policy.Keeper writes the rest of the status. A window has no goroutine or object of
// its own: it is an entry in that state. Begin at AddToManager, then Observer.slice, by which a Service recovers and its pods are queued, then
// PodReconciler.Reconcile.
package weederconfig

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

// Observer feeds the planner from informers. It runs on every replica: a standby's webhook forecasts from the same state.
type Observer struct {
	Facts *kube.Facts
	// OwnNamespace is Autohealer's; "" when unknown.
	OwnNamespace string
	Report       *Reporter

	policies policy.Policies[*v1alpha1.WeederConfig, parsedConfig]
	pods     kube.Requests
	watches  *kube.Watches
	// lastEvent is when the watch of each kind last delivered an event.
	lastEvent sync.Map
	// opened holds at most one notice that a window opened.
	opened chan struct{}

	mu         sync.Mutex
	unreported []weeder.Opened // needs mu, which is held, too, while this replica becomes the leader
}

// NewObserver gives an observer that follows the rules, and does nothing else before Start.
func NewObserver(objects cache.Cache, opts policy.Options, report *Reporter) *Observer {
	o := &Observer{
		Facts: opts.Facts, OwnNamespace: opts.OwnNamespace, Report: report,
		watches: kube.NewWatches(objects), opened: make(chan struct{}, 1),
	}
	o.policies.Init(policy.Hooks[*v1alpha1.WeederConfig, parsedConfig]{
		Kind: kindWeederConfig, Guard: opts.Guard, Clock: opts.Facts.Clock, Rejections: opts.Rejections,
		Read: o.read, Guardrails: o.guardrails, Changed: o.update, Forget: o.forget,
	})
	return o
}

// NeedLeaderElection is false: every replica observes.
func (*Observer) NeedLeaderElection() bool { return false }

// Start observes until ctx ends. It fails when the API server went back to an older state: the planner would ignore all news
// until they are newer than what it knows.
func (o *Observer) Start(ctx context.Context) error {
	return o.watches.Run(ctx, o.run,
		kube.On(&corev1.Pod{}, o.pod, o.podGone),
		kube.On(&discoveryv1.EndpointSlice{}, o.slice, o.sliceGone),
		kube.On(&corev1.Service{}, o.service, o.serviceGone),
		kube.On(&corev1.Namespace{}, o.namespace, o.namespaceGone),
		watchHolds[*metav1.PartialObjectMetadata](o, "Deployment", metadataOf(workload("Deployment"))),
		watchHolds[*metav1.PartialObjectMetadata](o, "StatefulSet", metadataOf(workload("StatefulSet"))),
		watchHolds[*appsv1.DaemonSet](o, "DaemonSet", &appsv1.DaemonSet{}), // others read more of them
		kube.On(&v1alpha1.WeederConfig{}, func(wc *v1alpha1.WeederConfig) { o.policies.Seen(ctx, wc) }, o.policies.Gone),
	)
}

func (o *Observer) run(ctx context.Context) error {
	o.handleChanges(o.weeder().MarkSynced(o.Facts.Moment()))
	o.requestAll()
	var running sync.WaitGroup
	for range admissionWorkers {
		running.Go(func() { o.policies.Run(ctx) })
	}
	running.Go(func() { o.expire(ctx) })
	running.Wait()
	return nil
}

func (o *Observer) weeder() *weeder.State { return o.Facts.Weeder }

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
		at := o.Facts.Moment()
		next := o.weeder().Expire(at)
		o.handleChanges(nil)
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(next.Sub(at.Now) + pastDeadline)
		}
	}
}

// attachPods takes the queue of pods of a replica that became the leader.
func (o *Observer) attachPods(pods kube.Queue) {
	o.mu.Lock()
	o.pods.Attach(pods)
	o.mu.Unlock()
	o.becomeLeader()
}

// attachConfigs takes the queue of configs.
func (o *Observer) attachConfigs(configs kube.Queue) {
	o.policies.Statuses.Attach(configs)
	o.becomeLeader()
}

func (o *Observer) becomeLeader() {
	o.reportRecoveries(nil)
	o.requestAll()
}

// requestAll asks for a look at all that is known.
func (o *Observer) requestAll() {
	if !o.weeder().Synced() {
		return
	}
	o.requestPods(o.weeder().Due(o.Facts.Moment()), 0)
	o.policies.Statuses.AddAll(o.policies.Keys()...)
}

// maxUnreported bounds what a standby keeps to report in case it takes over.
const maxUnreported = 100

// reportRecoveries reports windows that opened, each once: a standby keeps them until it leads, since the leader reports them.
func (o *Observer) reportRecoveries(opened []weeder.Opened) {
	now := o.Facts.Clock.Now()
	o.mu.Lock()
	inherited := o.unreported
	if o.unreported = nil; !o.pods.Attached() {
		all := append(inherited, opened...)
		o.unreported, inherited, opened = all[max(0, len(all)-maxUnreported):], nil, nil
	}
	news := slices.DeleteFunc(slices.Concat(inherited, opened), func(w weeder.Opened) bool {
		alreadyReported := false
		if config, judged := o.policies.Get(w.Key); judged && (w.FirstObservation || len(inherited) > 0) {
			alreadyReported = w.ListedIn(&config.Object.Status)
		}
		return alreadyReported || !now.Before(w.Ends)
	})
	o.mu.Unlock()
	o.Report.reportRecoveries(news, now)
}

const (
	// podWorkers are how many pods' deletions are noted in a status by one write at most, or are on their way.
	podWorkers = 256
	// senders are how many deletions are asked of the API server at once.
	senders       = 32
	configWorkers = 4
	// admissionWorkers ask the API server what accounts may do, one question after the other.
	admissionWorkers = 4
)

// AddToManager adds the observer and both controllers.
func AddToManager(mgr manager.Manager, opts policy.Options) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	pods, err := actuate.PodClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	report := NewReporter(mgr.GetEventRecorder("autohealer"))
	observer := NewObserver(mgr.GetCache(), opts, report)
	current := opts.Current(mgr)
	reconciler := &PodReconciler{
		Observer: observer, Live: mgr.GetAPIReader(), Errors: &observer.policies.Errors, Report: report,
		Recorder: &DeletionRecorder{Client: mgr.GetClient(), Observer: observer, Live: mgr.GetAPIReader(), Leads: opts.Leads, Prefetch: func(ctx context.Context, d *weeder.Deletion) {
			// The answer is kept for those who ask just before they act; so is an error, or they ask again.
			_ = current.Check(ctx, v1alpha1.GroupVersion.WithKind(kindWeederConfig), d.Key, d.Config, d.Generation)
		}},
		Pods: &actuate.Pods{
			Client: pods, Acts: mgr.GetLogger().WithName(kube.HistoryLogger), Leads: opts.Leads,
			Current: current,
		},
		sending: semaphore.NewWeighted(senders),
	}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	if err := kube.AddController(mgr, "weederconfig-pod", reconciler, podWorkers, observer.attachPods); err != nil {
		return err
	}
	steps := observer.steps()
	steps.Gone = func(config types.NamespacedName) {
		forgetStates(config)
		reconciler.Recorder.forget(config)
	}
	configs := &policy.Keeper[*v1alpha1.WeederConfig]{Steps: steps, Clock: opts.Facts.Clock, Urgent: observer.policies.VerdictUnreported, Leads: opts.Leads}
	return configs.AddToManager(mgr, "weederconfig", configWorkers, observer.attachConfigs)
}

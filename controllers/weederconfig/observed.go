package weederconfig

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

// handleChanges does what follows from news: pods to decide on, windows that opened, configs whose status may have changed.
func (o *Observer) handleChanges(due []types.NamespacedName) {
	o.requestPods(due, 0)
	if opened := o.weeder().DrainOpened(); len(opened) > 0 {
		select {
		case o.opened <- struct{}{}:
		default: // it will look at all
		}
		o.reportRecoveries(opened)
	}
	for _, key := range o.weeder().DrainDirty() {
		o.policies.Statuses.Add(key, policy.Delay)
	}
}

func (o *Observer) requestPods(keys []types.NamespacedName, after time.Duration) {
	for _, key := range keys {
		o.pods.Add(key, after)
	}
}

func (o *Observer) pod(pod *weeder.Pod) {
	o.handleChanges(o.weeder().ObservePod(pod, o.Facts.Moment()))
}

func (o *Observer) podGone(pod *weeder.Pod) {
	o.weeder().ForgetPod(pod.Key(), pod.UID)
	o.handleChanges(nil)
}

func (o *Observer) slice(slice *discoveryv1.EndpointSlice) {
	o.recordEvent(kindSlice)
	o.handleChanges(o.weeder().ObserveSlice(slice, o.Facts.Moment()))
}

func (o *Observer) sliceGone(slice *discoveryv1.EndpointSlice) {
	o.recordEvent(kindSlice)
	o.weeder().ForgetSlice(client.ObjectKeyFromObject(slice), slice.UID, o.Facts.Moment())
	o.handleChanges(nil)
}

func (o *Observer) service(svc *corev1.Service) {
	o.weeder().ObserveService(svc)
	o.handleChanges(nil)
}

func (o *Observer) serviceGone(svc *corev1.Service) {
	o.weeder().ForgetService(client.ObjectKeyFromObject(svc), svc.UID)
	o.handleChanges(nil)
}

// metadataOf is the metadata of a kind.
func metadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

// workload is a kind of them.
func workload(kind string) schema.GroupVersionKind { return appsv1.SchemeGroupVersion.WithKind(kind) }

// kindSlice is the kind of the objects that list the pods of a Service.
const kindSlice = "EndpointSlice"

// trustedWatches are the kinds whose watches are trusted while they deliver events: slices, and the workloads that may have a hold
// annotation.
var trustedWatches = sets.New(kindSlice, "Deployment", "StatefulSet", "DaemonSet")

// watchHolds follows what the workloads of one of these kinds ask for.
func watchHolds[T client.Object](o *Observer, kind string, object client.Object) kube.Watch {
	return kube.On(object,
		func(w T) { o.recordEvent(kind); o.observeHold(kind, w) },
		func(w T) { o.recordEvent(kind); o.forgetHold(workloadKey(kind, w.GetNamespace(), w.GetName())) })
}

// recordEvent notes that the watch of a kind delivered an event.
func (o *Observer) recordEvent(kind string) { o.lastEvent.Store(kind, o.Facts.Clock.Now()) }

// watchSilent says whether the watch of a kind has delivered nothing lately.
func (o *Observer) watchSilent(kind string, now time.Time) bool {
	at, heard := o.lastEvent.Load(kind)
	return trustedWatches.Has(kind) && (!heard || now.Sub(at.(time.Time)) > o.Facts.Timings.MaxWatchSilence())
}

func workloadKey(kind, namespace, name string) weeder.Workload {
	return weeder.Workload{Namespace: namespace, Kind: kind, Name: name}
}

func (o *Observer) observeHold(kind string, w client.Object) {
	o.handleChanges(o.weeder().ObserveHold(workloadKey(kind, w.GetNamespace(), w.GetName()), hold.Of(w.GetAnnotations()), w.GetResourceVersion(), o.Facts.Moment()))
}

func (o *Observer) forgetHold(w weeder.Workload) {
	o.handleChanges(o.weeder().ForgetHold(w, o.Facts.Moment()))
}

func (o *Observer) namespace(ns *corev1.Namespace) {
	o.handleChanges(o.weeder().ObserveNamespace(ns, o.Facts.Moment()))
}

func (o *Observer) namespaceGone(ns *corev1.Namespace) {
	o.weeder().ForgetNamespace(ns.Name, ns.UID)
	o.handleChanges(nil)
}

const (
	kindWeederConfig = "WeederConfig"
	// ruleRights is the rule over what a config's account may do.
	ruleRights = "weederconfig/account-may-not-delete"
	// pastDeadline lets a deadline lie behind us when it is looked at.
	pastDeadline = time.Millisecond
)

type storedConfig = policy.Policy[*v1alpha1.WeederConfig, parsedConfig]

// parsedConfig is a config as the planner takes it.
type parsedConfig struct {
	// config is nil when the spec can't be read; unreadable says why.
	config     *weeder.Config
	unreadable error
}

// Unreadable says why the spec can't be read.
func (r parsedConfig) Unreadable() error { return r.unreadable }

// read reads a config. Most news of one are of its status only.
func (o *Observer) read(wc *v1alpha1.WeederConfig, before parsedConfig) (r parsedConfig) {
	if c := before.config; c != nil && before.unreadable == nil && c.UID == wc.UID && c.Generation == wc.Generation {
		return parsedConfig{config: c.WithStatus(wc.Status)}
	}
	r.config, r.unreadable = weeder.NewConfig(wc, o.OwnNamespace)
	return r
}

// update has the planner learn what a config asks for and may do.
func (o *Observer) update(_ context.Context, _, now storedConfig) {
	switch {
	case now.Read.unreadable != nil:
		o.weeder().ForgetConfig(now.UID)
		o.handleChanges(nil)
	case now.JudgedAs(now.Object): // else it goes on as it was until it is
		o.handleChanges(o.weeder().ObserveConfig(now.Read.config, stateOf(now), o.Facts.Moment()))
	}
}

func (o *Observer) forget(wc *v1alpha1.WeederConfig) {
	o.weeder().ForgetConfig(wc.UID)
	o.handleChanges(nil)
}

// guardrails puts in force what all Guardrails together say of limits.
func (o *Observer) guardrails(all guardrail.Policy) {
	o.handleChanges(o.weeder().SetLimits(all.Limits))
}

// stateOf is what a config may do now. The planner asks for the rest: it goes on with a config that was changed until that is judged, and
// tells what one would do that observes.
func stateOf(config storedConfig) lifecycle.State {
	forbids := forbidden(config.Verdict)
	return lifecycle.Policy{NotJudged: !config.PauseKnown, Forbidden: forbids, Refused: !config.Admitted.Valid(), Paused: config.Pause.By != ""}.State()
}

// forbidden: the only thing that the rules refuse is the account's lack of rights.
func forbidden(v guard.Verdict) bool {
	rules := v.RuleIDs()
	return len(rules) == 1 && rules[0] == ruleRights
}

// admissionFor is the admission that covers a deletion now; its zero value when there is none, or while acts are paused.
func (o *Observer) admissionFor(ctx context.Context, d *weeder.Deletion) actuate.AdmittedWeeder {
	config, ok := o.policies.Admission(ctx, d.Key, d.Config)
	if !ok || stateOf(config) != lifecycle.Active {
		return actuate.AdmittedWeeder{}
	}
	return config.Admitted
}

package conditionset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

const (
	// requeueWaiting is the safety net while a write isn't visible yet.
	requeueWaiting = 10 * time.Second
	// requeueUncertain lies between two live reads that didn't settle what is to be done.
	requeueUncertain = time.Second
	// pastDeadline lets a deadline lie behind us when it is looked at.
	pastDeadline = time.Millisecond
)

// NodeReconciler gives each node the taints that the sets ask for.
type NodeReconciler struct {
	Observer *Observer
	Taints   *actuate.Taints
	// Live reads from the API server, past the cache.
	Live    client.Reader
	Orphans *kube.Orphans
	// Evictions are recorded before they begin.
	Evictions *actuate.Record
	Errors    *policy.ErrorTracker
	Report    *Reporter
	// OwnNamespace is where Autohealer's own pods run; "" when unknown.
	OwnNamespace string
}

// Reconcile plans one node and carries the plan out.
func (r *NodeReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	defer r.Observer.requestChanged()
	result, err := r.heal(ctx, request)
	if err != nil {
		return reconcile.Result{}, err // the retry comes first; controller-runtime warns of both
	}
	return result, nil
}

// unconfirmed are what can't be confirmed just now, and why: what waits for it is left out of the plan.
type unconfirmed struct {
	// sets whose admission can't be confirmed.
	sets map[types.UID]string
	// evictions can't be recorded, or those of before can't be read.
	evictions string
}

// heal does what may be done: what one set may not do now holds up neither the others nor an undo, since the plan is made
// again without it.
func (r *NodeReconciler) heal(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	unconfirmed, fleet := unconfirmed{sets: map[types.UID]string{}}, r.Observer.Facts.Fleet
	var refused error
	if err := r.Evictions.Recall(ctx, r.evictionPlanner(condition.Plan{})); err != nil {
		unconfirmed.evictions = err.Error()
	}
	for {
		plan, next, err := r.decide(ctx, request.Name, unconfirmed)
		if err != nil {
			return reconcile.Result{}, err
		}
		r.Report.reportBrokenRecord(ctx, request.Name, plan.Node, fleet)
		switch next {
		case condition.Wait:
			return reconcile.Result{RequeueAfter: requeueWaiting}, refused
		case condition.ReadLive: // it still isn't certain; the API server is asked again soon
			return reconcile.Result{RequeueAfter: requeueUncertain}, refused
		case condition.Nothing:
			if refused == nil {
				r.Errors.Clear(request.Name)
			}
			return r.requeue(ctx, plan), refused
		}
		if err := r.recordEviction(ctx, plan); err != nil {
			fleet.Failed(request.Name) // nothing was written
			if !errors.Is(err, actuate.ErrRecalled) {
				unconfirmed.evictions, refused = err.Error(), err
			}
			continue
		}
		err = r.act(ctx, plan)
		var not *actuate.Unconfirmed
		if errors.As(err, &not) && unconfirmed.sets[not.Policy] == "" {
			unconfirmed.sets[not.Policy], refused = err.Error(), err
			continue
		}
		return r.requeue(ctx, plan), errors.Join(refused, err)
	}
}

// decide plans from what is known, and from a live read where that isn't enough: an eviction, an earlier write whose
// outcome is uncertain, a watch that has been silent.
func (r *NodeReconciler) decide(ctx context.Context, name string, unconfirmed unconfirmed) (condition.Plan, condition.Next, error) {
	fleet, facts := r.Observer.Facts.Fleet, r.Observer.Facts
	at := facts.Moment()
	plan, next := fleet.Decide(name, at, &condition.Evidence{NotRead: true, Unconfirmed: unconfirmed.sets, Unknown: unconfirmed.evictions})
	if next == condition.Write && plan.Harmful() && facts.Age(at.Now) > facts.Timings.MaxWatchSilence() {
		fleet.Failed(name) // nothing was written: plan again from a live read
		next = condition.ReadLive
	}
	for range 2 { // the first live read may end an uncertainty and show that an eviction is due, which needs the pods
		if next != condition.ReadLive {
			break
		}
		evidence, err := r.readLive(ctx, plan)
		if err != nil {
			return condition.Plan{}, condition.Nothing, err
		}
		evidence.Unconfirmed, evidence.Unknown = unconfirmed.sets, cmp.Or(unconfirmed.evictions, evidence.Unknown)
		plan, next = fleet.Decide(name, facts.Moment(), evidence)
	}
	return plan, next, nil
}

func (r *NodeReconciler) readLive(ctx context.Context, plan condition.Plan) (*condition.Evidence, error) {
	facts, name := r.Observer.Facts, plan.Node.Name
	var node corev1.Node
	if err := r.Live.Get(ctx, types.NamespacedName{Name: name}, &node); err != nil {
		if apierrors.IsNotFound(err) {
			facts.Fleet.ForgetNode(name, plan.Node.UID, facts.Moment())
			return &condition.Evidence{NotRead: true}, nil
		}
		return nil, fmt.Errorf("read node %s before acting on it: %w", name, err)
	}
	facts.Fleet.ObserveLive(&node, facts.Moment())
	if !plan.NeedsEvidence {
		return &condition.Evidence{NotRead: true}, nil
	}
	evidence, err := r.evidence(ctx, name)
	if err != nil {
		log.FromContext(ctx).Error(err, "Not evicting from the node yet: can't read which pods that would evict")
		return &condition.Evidence{Unknown: err.Error()}, nil
	}
	return evidence, nil
}

// act applies a plan and reports it.
func (r *NodeReconciler) act(ctx context.Context, plan condition.Plan) error {
	fleet, name := r.Observer.Facts.Fleet, plan.Node.Name
	version, err := r.Taints.Apply(ctx, plan, r.Observer.admittedFor(ctx, plan))
	if err != nil {
		if actuate.Certain(err) {
			fleet.Failed(name)
		}
		if !isStale(err) {
			r.Errors.RecordFailure(name, err, policies(plan)...)
		}
		r.Report.countFailures(plan, err)
		return err
	}
	fleet.Written(name, version)
	r.Errors.RecordSuccess(name, policies(plan)...)
	r.Report.reportActs(plan, r.Observer.Facts.Clock.Now())
	r.Evictions.Done(plan.Node.UID)
	return nil
}

// recordEviction notes an eviction before it begins.
func (r *NodeReconciler) recordEviction(ctx context.Context, plan condition.Plan) error {
	fleet, eviction := r.Observer.Facts.Fleet, plan.Eviction()
	switch {
	case !eviction.Began.IsZero():
		return r.Evictions.Begin(ctx, eviction, fleet.Limits().EvictPace, r.evictionPlanner(plan))
	case plan.Harmful() && fleet.Stale(plan):
		return actuate.ErrRecalled
	}
	return nil
}

// evictionPlanner is the fleet that made a plan, as it counts evictions.
func (r *NodeReconciler) evictionPlanner(plan condition.Plan) actuate.Planner {
	fleet, at := r.Observer.Facts.Fleet, r.Observer.Facts.Moment()
	return actuate.Planner{Known: fleet.Evictions, Recall: func(acts []limit.Act) bool { return fleet.Recall(acts, at) || fleet.Stale(plan) }}
}

// requeue says when time alone may change the plan.
func (r *NodeReconciler) requeue(ctx context.Context, plan condition.Plan) reconcile.Result {
	now := r.Observer.Facts.Clock.Now()
	at := plan.RequeueAt
	if orphans := r.Orphans.Check(ctx, unknownSets(plan), now); !orphans.IsZero() && (at.IsZero() || orphans.Before(at)) {
		at = orphans
	}
	if at.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(pastDeadline, at.Sub(now)+pastDeadline)}
}

// policies are the sets that a plan acts for.
func policies(plan condition.Plan) []policy.Ref {
	all := make([]policy.Ref, 0, len(plan.Steps))
	for _, step := range plan.Steps {
		all = append(all, policy.Ref{UID: step.Set, NamespacedName: types.NamespacedName{Name: step.SetName}})
	}
	return all
}

// unknownSets are those that the node's record names and nobody knows.
func unknownSets(plan condition.Plan) map[types.UID]types.NamespacedName {
	all := make(map[types.UID]types.NamespacedName, len(plan.Orphans))
	for uid, name := range plan.Orphans {
		all[uid] = types.NamespacedName{Name: name}
	}
	return all
}

// isStale says that an error means no more than that someone else wrote first.
func isStale(err error) bool { return errors.Is(err, actuate.ErrStale) || apierrors.IsConflict(err) }

// ownPods selects Autohealer's own pods in its namespace.
var ownPods = client.MatchingLabels{"app.kubernetes.io/name": "autohealer"}

// evidence reads which pods of a node it, or its healing, can't do without.
func (r *NodeReconciler) evidence(ctx context.Context, node string) (*condition.Evidence, error) {
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("list the pods of node %s before evicting them: %w", node, err)
	}
	e := &condition.Evidence{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if role := ecosystem.SystemRole(&pod.ObjectMeta, &pod.Spec); role != "" && pod.DeletionTimestamp == nil && !finished(pod) {
			e.SystemPods = append(e.SystemPods, systemPod(pod, role))
		}
	}
	last, err := r.lastOfOurs(ctx, node)
	if err != nil {
		return nil, err
	}
	e.SystemPods = append(e.SystemPods, last...)
	return e, nil
}

// lastOfOurs gives Autohealer's ready pods when all of them run on this node.
func (r *NodeReconciler) lastOfOurs(ctx context.Context, node string) ([]ecosystem.SystemPod, error) {
	if r.OwnNamespace == "" {
		return nil, nil
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(r.OwnNamespace), ownPods); err != nil {
		return nil, fmt.Errorf("list Autohealer's own pods before evicting from node %s: %w", node, err)
	}
	var here []ecosystem.SystemPod
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !ready(pod) {
			continue
		}
		if pod.Spec.NodeName != node && !r.Observer.Facts.Fleet.Evicting(pod.Spec.NodeName) {
			return nil, nil
		}
		if pod.Spec.NodeName != node {
			continue // it is about to go, too
		}
		here = append(here, systemPod(pod, "last ready pod of Autohealer"))
	}
	return here, nil
}

func systemPod(pod *corev1.Pod, role string) ecosystem.SystemPod {
	return ecosystem.SystemPod{Namespace: pod.Namespace, Name: pod.Name, Role: role, Tolerations: pod.Spec.Tolerations}
}

// finished pods aren't evicted; a Failed one may lie on its node for ever.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

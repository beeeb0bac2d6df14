package health

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The checks of workloads take what the API server gives, so that a missing value is the API server's default. They say
// Progressing where the object itself tells that its controller is at work.

// deploymentCheck: a Deployment is healthy when Available is True, and where they are there Progressing isn't False and ReplicaFailure isn't
// True. Not available in the middle of a rollout is Progressing. One that is paused is healthy while as many replicas as it wants are
// available, too; nobody rolls it out, and no deadline says that this failed.
func deploymentCheck(d *appsv1.Deployment, o checked) Result {
	if r := o.requireNot("ReplicaFailure", "can't make pods"); r.Status != True {
		return r
	}
	if d.Spec.Paused && d.Status.AvailableReplicas >= replicas(d.Spec.Replicas) {
		return Result{Status: True, Note: "Deployment is paused: what changes in its template isn't rolled out"}
	}
	rollout := o.condition("Progressing")
	if rollout.status == string(False) { // Unknown says that it was paused or resumed
		return o.require("Progressing")
	}
	available := o.require("Available")
	if available.Status == False && rollsOut(d, rollout) {
		available.Status = Progressing
	}
	if rollout.status == "" { // one that has no deadline doesn't tell whether it ever was available
		return available.atStart()
	}
	return available
}

// rollsOut says whether a rollout goes on. The controller tells, but of one that is or was paused its pods do.
func rollsOut(d *appsv1.Deployment, rollout conditionState) bool {
	if rollout.status == string(Unknown) {
		return d.Status.UpdatedReplicas < replicas(d.Spec.Replicas) || d.Status.Replicas > d.Status.UpdatedReplicas
	}
	return rollout.status != "" && rollout.reason != "NewReplicaSetAvailable"
}

// statefulSetCheck: fewer ready replicas than are wanted are Progressing while a new revision is rolled out, too.
func statefulSetCheck(s *appsv1.StatefulSet, o checked) Result {
	return o.enoughReady(s.Spec.Replicas, s.Status.ReadyReplicas, s.Status.Replicas, s.Status.UpdateRevision != s.Status.CurrentRevision)
}

// replicaSetCheck: one that can't make pods is unhealthy, too.
func replicaSetCheck(s *appsv1.ReplicaSet, o checked) Result {
	return firstOf(
		o.requireNot("ReplicaFailure", "can't make pods"),
		o.enoughReady(s.Spec.Replicas, s.Status.ReadyReplicas, s.Status.Replicas, false),
	)
}

// enoughReady asks that at least as many replicas are ready as are wanted. Fewer are Progressing in a rollout, and while pods are still to
// be made.
func (o checked) enoughReady(wanted *int32, ready, created int32, rollout bool) Result {
	want := replicas(wanted)
	if ready >= want {
		return healthy()
	}
	r := unhealthy(fmt.Sprintf("%d of %d replicas of %s are ready", ready, want, o.GetKind()))
	if rollout || created < want {
		r.Status = Progressing
	}
	return r.atStart()
}

func replicas(spec *int32) int32 {
	if spec == nil {
		return 1
	}
	return *spec
}

// daemonSetCheck: a DaemonSet is healthy when no pod runs where none should, one is scheduled wherever one should, and none is unavailable, or
// during a rollout no more than its maxUnavailable.
func daemonSetCheck(d *appsv1.DaemonSet, _ checked) Result {
	s := &d.Status
	switch allowed := mayBeUnavailable(d); {
	case s.NumberMisscheduled > 0:
		return unhealthy(fmt.Sprintf("%d pods of DaemonSet run on nodes where they shouldn't", s.NumberMisscheduled))
	case s.CurrentNumberScheduled < s.DesiredNumberScheduled:
		return unhealthy(fmt.Sprintf("%d of %d pods of DaemonSet are scheduled", s.CurrentNumberScheduled, s.DesiredNumberScheduled)).atStart()
	case s.NumberUnavailable > allowed:
		return unhealthy(fmt.Sprintf("%d of %d pods of DaemonSet are unavailable, and %d may be", s.NumberUnavailable, s.DesiredNumberScheduled, allowed)).atStart()
	}
	return healthy()
}

func mayBeUnavailable(d *appsv1.DaemonSet) int32 {
	strategy := d.Spec.UpdateStrategy
	if d.Status.UpdatedNumberScheduled >= d.Status.DesiredNumberScheduled || strategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return 0
	}
	most := intstr.FromInt32(1)
	if strategy.RollingUpdate != nil && strategy.RollingUpdate.MaxUnavailable != nil {
		most = *strategy.RollingUpdate.MaxUnavailable
	}
	// Rounded up, as the controller does; what it can't read it doesn't allow.
	n, err := intstr.GetScaledValueFromIntOrPercent(&most, int(d.Status.DesiredNumberScheduled), true)
	if err != nil {
		return 0
	}
	return int32(n)
}

// podCheck: a Pod is healthy when it is Ready, or has Succeeded. One that is Pending is Progressing, unless a container can't start.
func podCheck(p *corev1.Pod, o checked) Result {
	ready := o.require("Ready")
	switch {
	case p.Status.Phase == corev1.PodFailed:
		return unhealthy(fmt.Sprintf("Pod failed (%s): %s", p.Status.Reason, p.Status.Message))
	case p.Status.Phase == corev1.PodSucceeded, ready.Status == True:
		return healthy()
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && cannotStart(w.Reason) {
			r := unhealthy(fmt.Sprintf("container %s of Pod doesn't start (%s): %s", c.Name, w.Reason, w.Message))
			if w.Reason == "InvalidImageName" || w.Reason == "ErrImageNeverPull" { // which nothing that is still to come mends
				return r
			}
			return r.atStart()
		}
	}
	if p.Status.Phase == corev1.PodPending {
		return progressing("Pod is Pending")
	}
	return ready.atStart()
}

// cannotStart says whether a kubelet gave up for a while on a container, by why it waits.
func cannotStart(reason string) bool {
	return strings.HasSuffix(reason, "BackOff") || strings.HasSuffix(reason, "Error") || strings.HasPrefix(reason, "Err") || reason == "InvalidImageName"
}

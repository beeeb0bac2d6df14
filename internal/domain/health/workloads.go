package health

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The checks of workloads take what the API server gives, so that a missing value is the API server's default. They say
// Progressing where the object itself tells that its controller is at work.

// Deployment is healthy when its controller has seen the spec, Available is True, and where they are there Progressing isn't False
// and ReplicaFailure isn't True. Not available in the middle of a rollout is Progressing. One that is paused is healthy while as many
// replicas as it wants are available, too; nobody rolls it out, and no deadline says that this failed.
func Deployment(d *appsv1.Deployment) Result {
	conditions := map[appsv1.DeploymentConditionType]*conditionState{}
	for _, c := range d.Status.Conditions {
		conditions[c.Type] = &conditionState{string(c.Status), c.Reason, c.Message}
	}
	if r := seen("Deployment", d.Generation, d.Status.ObservedGeneration); r.Status != True {
		return r
	}
	if failure := conditions[appsv1.DeploymentReplicaFailure]; failure != nil && failure.status == string(True) {
		return unhealthy(fmt.Sprintf("Deployment can't make pods (%s): %s", failure.reason, failure.message))
	}
	if d.Spec.Paused && d.Status.AvailableReplicas >= replicas(d.Spec.Replicas) {
		return Result{Status: True, Note: "Deployment is paused: what changes in its template isn't rolled out"}
	}
	// Unknown says that it was paused or resumed.
	if rollout := conditions[appsv1.DeploymentProgressing]; rollout != nil && rollout.status == string(False) {
		return requireTrue("Deployment", string(appsv1.DeploymentProgressing), rollout)
	}
	available := requireTrue("Deployment", string(appsv1.DeploymentAvailable), conditions[appsv1.DeploymentAvailable])
	if available.Status == False && rollsOut(d, conditions[appsv1.DeploymentProgressing]) {
		available.Status = Progressing
	}
	if conditions[appsv1.DeploymentProgressing] == nil { // one that has no deadline doesn't tell whether it ever was available
		return available.atStart()
	}
	return available
}

// rollsOut says whether a rollout goes on. The controller tells, but of one that is or was paused its pods do.
func rollsOut(d *appsv1.Deployment, rollout *conditionState) bool {
	switch {
	case rollout == nil:
		return false
	case rollout.status == string(Unknown):
		return d.Status.UpdatedReplicas < replicas(d.Spec.Replicas) || d.Status.Replicas > d.Status.UpdatedReplicas
	}
	return rollout.reason != "NewReplicaSetAvailable"
}

// StatefulSet is healthy when its controller has seen the spec, and at least as many replicas are ready as are wanted. Fewer
// are Progressing while a new revision is rolled out, and while pods are still to be made.
func StatefulSet(s *appsv1.StatefulSet) Result {
	want := replicas(s.Spec.Replicas)
	if r := seen("StatefulSet", s.Generation, s.Status.ObservedGeneration); r.Status != True {
		return r
	}
	if s.Status.ReadyReplicas >= want {
		return healthy()
	}
	r := unhealthy(fmt.Sprintf("%d of %d replicas of StatefulSet are ready", s.Status.ReadyReplicas, want))
	if s.Status.UpdateRevision != s.Status.CurrentRevision || s.Status.Replicas < want {
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

// ReplicaSet is healthy when its controller has seen the spec, ReplicaFailure isn't True, and at least as many replicas are ready as are
// wanted. Fewer are Progressing while pods are still to be made.
func ReplicaSet(s *appsv1.ReplicaSet) Result {
	want := replicas(s.Spec.Replicas)
	if r := seen("ReplicaSet", s.Generation, s.Status.ObservedGeneration); r.Status != True {
		return r
	}
	for _, c := range s.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			return unhealthy(fmt.Sprintf("ReplicaSet can't make pods (%s): %s", c.Reason, c.Message))
		}
	}
	if s.Status.ReadyReplicas >= want {
		return healthy()
	}
	r := unhealthy(fmt.Sprintf("%d of %d replicas of ReplicaSet are ready", s.Status.ReadyReplicas, want))
	if s.Status.Replicas < want {
		r.Status = Progressing
	}
	return r.atStart()
}

// DaemonSet is healthy when its controller has seen the spec, no pod runs where none should, one is scheduled wherever one
// should, and none is unavailable, or during a rollout no more than its maxUnavailable.
func DaemonSet(d *appsv1.DaemonSet) Result {
	s := &d.Status
	if r := seen("DaemonSet", d.Generation, s.ObservedGeneration); r.Status != True {
		return r
	}
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

// Job is healthy unless it has failed.
func Job(j *batchv1.Job) Result {
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return unhealthy(fmt.Sprintf("Job failed (%s): %s", c.Reason, c.Message))
		}
	}
	return healthy()
}

// Pod is healthy when it is Ready, or has Succeeded. One that is Pending is Progressing, unless a container can't start.
func Pod(p *corev1.Pod) Result {
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		return healthy()
	case corev1.PodFailed:
		return unhealthy(fmt.Sprintf("Pod failed (%s): %s", p.Status.Reason, p.Status.Message))
	}
	ready := progressing("Pod has no condition Ready yet")
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			ready = requireTrue("Pod", string(c.Type), &conditionState{string(c.Status), c.Reason, c.Message})
		}
	}
	if ready.Status == True {
		return ready
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

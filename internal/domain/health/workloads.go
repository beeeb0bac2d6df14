package health

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The checks of workloads take what the API server gives, so that a missing value is the API server's default. They say
// Progressing where the object itself tells that its controller is at work.

// Deployment is healthy when its controller has seen the spec, Available is True, and where they are there Progressing is
// True and ReplicaFailure isn't. Not available in the middle of a rollout is Progressing.
func Deployment(d *appsv1.Deployment) Result {
	conditions := map[appsv1.DeploymentConditionType]*standing{}
	for _, c := range d.Status.Conditions {
		conditions[c.Type] = &standing{string(c.Status), c.Reason, c.Message}
	}
	if r := seen("Deployment", d.Generation, d.Status.ObservedGeneration); r.Status != True {
		return r
	}
	if failure := conditions[appsv1.DeploymentReplicaFailure]; failure != nil && failure.status == string(True) {
		return unhealthy(fmt.Sprintf("Deployment can't make pods (%s): %s", failure.reason, failure.message))
	}
	rollout := conditions[appsv1.DeploymentProgressing]
	if rollout != nil {
		if r := wanted("Deployment", string(appsv1.DeploymentProgressing), rollout); r.Status != True {
			return r
		}
	}
	available := wanted("Deployment", string(appsv1.DeploymentAvailable), conditions[appsv1.DeploymentAvailable])
	if available.Status == False && rollout != nil && rollout.reason != "NewReplicaSetAvailable" {
		available.Status = Progressing
	}
	return available
}

// StatefulSet is healthy when its controller has seen the spec, and at least as many replicas are ready as are wanted. Fewer
// while a new revision is rolled out are Progressing.
func StatefulSet(s *appsv1.StatefulSet) Result {
	want := replicas(s.Spec.Replicas)
	if r := seen("StatefulSet", s.Generation, s.Status.ObservedGeneration); r.Status != True {
		return r
	}
	if s.Status.ReadyReplicas >= want {
		return healthy()
	}
	r := unhealthy(fmt.Sprintf("%d of %d replicas of StatefulSet are ready", s.Status.ReadyReplicas, want))
	if s.Status.UpdateRevision != s.Status.CurrentRevision {
		r.Status = Progressing
	}
	return r
}

func replicas(spec *int32) int32 {
	if spec == nil {
		return 1
	}
	return *spec
}

// ReplicaSet is healthy when its controller has seen the spec, and at least as many replicas are ready as are wanted.
func ReplicaSet(s *appsv1.ReplicaSet) Result {
	want := replicas(s.Spec.Replicas)
	if r := seen("ReplicaSet", s.Generation, s.Status.ObservedGeneration); r.Status != True {
		return r
	}
	if s.Status.ReadyReplicas < want {
		return unhealthy(fmt.Sprintf("%d of %d replicas of ReplicaSet are ready", s.Status.ReadyReplicas, want))
	}
	return healthy()
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
		return unhealthy(fmt.Sprintf("%d of %d pods of DaemonSet are scheduled", s.CurrentNumberScheduled, s.DesiredNumberScheduled))
	case s.NumberUnavailable > allowed:
		return unhealthy(fmt.Sprintf("%d of %d pods of DaemonSet are unavailable, and %d may be", s.NumberUnavailable, s.DesiredNumberScheduled, allowed))
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

// Pod is healthy when it is Ready, or has Succeeded. One that is Pending is Progressing.
func Pod(p *corev1.Pod) Result {
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		return healthy()
	case corev1.PodFailed:
		return unhealthy(fmt.Sprintf("Pod failed (%s): %s", p.Status.Reason, p.Status.Message))
	case corev1.PodPending:
		return progressing("Pod is Pending")
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return wanted("Pod", string(c.Type), &standing{string(c.Status), c.Reason, c.Message})
		}
	}
	return unhealthy("Pod has no condition Ready")
}

package weeder

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// CrashLoop is a container that crash-loops. The zero value is none.
type CrashLoop struct {
	// Container is its name.
	Container string `json:"container"`
	// Init: it is an init container, maybe a restartable one (a sidecar).
	Init bool `json:"-"`
	// Waiting: the kubelet reports CrashLoopBackOff. Else it reports the last exit while it backs off.
	Waiting bool `json:"-"`
	// Restarts so far.
	Restarts int32 `json:"restarts"`
	// ExitCode of the last run that is known.
	ExitCode int32 `json:"exitCode"`
}

func (c CrashLoop) String() string {
	kind := "container"
	if c.Init {
		kind = "init container"
	}
	return fmt.Sprintf("%s %s exited with code %d after %d restarts", kind, c.Container, c.ExitCode, c.Restarts)
}

const (
	crashLoopBackOff = "CrashLoopBackOff"
	// startError is what containerd gives as the reason of an exit when there was nothing to run.
	startError = "StartError"
)

// loopOf is the first container that crash-loops. More counts than `waiting: CrashLoopBackOff`: kubelet 1.36 reports `terminated`
// for nearly the whole back-off (75 s of 80 s were seen) and `waiting` in its last seconds. So a container counts also while it is
// terminated for at least the second time in a pod that restarts it. One that couldn't be started has not crashed, and no Service's
// recovery gives it something to run: it counts only as long as the kubelet itself says CrashLoopBackOff. Before that the kubelet
// reports it as `waiting: RunContainerError`, and if it was itself restarted meanwhile, as `terminated: StartError`.
func loopOf(pod *corev1.Pod, containers []corev1.Container, statuses []corev1.ContainerStatus, init bool) CrashLoop {
	if over(pod) {
		return CrashLoop{}
	}
	for i := range statuses {
		s := &statuses[i]
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason == crashLoopBackOff:
			loop := CrashLoop{Container: s.Name, Init: init, Waiting: true, Restarts: s.RestartCount}
			if last := s.LastTerminationState.Terminated; last != nil {
				loop.ExitCode = last.ExitCode
			}
			return loop
		case repeatedExit(s) && restarts(pod, containers, s, init):
			return CrashLoop{Container: s.Name, Init: init, Restarts: s.RestartCount, ExitCode: s.State.Terminated.ExitCode}
		}
	}
	return CrashLoop{}
}

// over says that the kubelet restarts nothing in this pod any more: it ran to its end, or was evicted from its node.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func repeatedExit(s *corev1.ContainerStatus) bool {
	return s.State.Terminated != nil && s.State.Terminated.Reason != startError && s.RestartCount >= 1 && s.LastTerminationState.Terminated != nil
}

// restarts says whether the kubelet restarts the container after its present exit: by the container's own rules and
// policy, where it has some, else by the pod's. An ordinary init container that succeeded is done whatever the policy.
func restarts(pod *corev1.Pod, containers []corev1.Container, s *corev1.ContainerStatus, init bool) bool {
	exit, policy, own := s.State.Terminated.ExitCode, pod.Spec.RestartPolicy, false
	for i := range containers {
		c := &containers[i]
		if c.Name != s.Name {
			continue
		}
		if slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool { return ruleMatches(r, exit) }) {
			return true // every action that there is restarts
		}
		if c.RestartPolicy != nil {
			policy, own = corev1.RestartPolicy(*c.RestartPolicy), true
		}
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exit != 0
	}
	return !init || own || exit != 0
}

func ruleMatches(r corev1.ContainerRestartRule, exit int32) bool {
	if r.ExitCodes == nil {
		return false
	}
	listed := slices.Contains(r.ExitCodes.Values, exit)
	return listed == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
}

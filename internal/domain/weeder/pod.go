package weeder

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/hold"
)

// Pod is what the planner reads of a pod. It shares its labels with the object it was made from and must not be changed.
// An informer can store it in the pod's place, see Transform.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	Created         time.Time
	Labels          map[string]string
	// Controller is the owner that replaces the pod; its Kind is "" when there is none.
	Controller Controller
	// Mirror: the kubelet made it from a file, and deleting it would only delete its image in the API.
	Mirror      bool
	Terminating bool
	// Ready since ReadySince, by the kubelet's clock.
	Ready      bool
	ReadySince time.Time
	// Hold keeps the pod from being deleted; nil for none.
	Hold *hold.Hold
	// Restarted: one of its containers was. FirstRun is then how long that one ran before: of several the shortest, and zero
	// where that isn't known any more.
	Restarted bool
	FirstRun  time.Duration
	// Main and Init are the first containers of each sort that crash-loop.
	Main, Init CrashLoop
}

// Controller is a pod's controlling owner.
type Controller struct {
	APIVersion, Kind, Name string
	UID                    types.UID
}

// Workload is what replaces pods that are deleted.
type Workload struct{ Namespace, Kind, Name string }

// String is Kind/name, as kubectl takes it.
func (w Workload) String() string { return w.Kind + "/" + w.Name }

// ReadPod reads a pod.
func ReadPod(pod *corev1.Pod) *Pod {
	p := &Pod{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		Created: pod.CreationTimestamp.Time, Labels: pod.Labels, Terminating: pod.DeletionTimestamp != nil,
		Hold: hold.Of(pod.Annotations), Main: loopOf(pod, pod.Spec.Containers, pod.Status.ContainerStatuses, false), Init: loopOf(pod, pod.Spec.InitContainers, pod.Status.InitContainerStatuses, true),
	}
	p.Restarted, p.FirstRun = firstRun(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses))
	_, p.Mirror = pod.Annotations[corev1.MirrorPodAnnotationKey]
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		p.Controller = Controller{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: ref.UID}
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			p.Ready, p.ReadySince = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return p
}

// firstRun is how long the containers that were restarted ran before, the shortest of them. A status has the last run
// only, so that it is known until the second restart.
func firstRun(containers []corev1.ContainerStatus) (restarted bool, shortest time.Duration) {
	for i := range containers {
		c := &containers[i]
		if c.RestartCount == 0 {
			continue
		}
		var run time.Duration
		if t := c.LastTerminationState.Terminated; t != nil && c.RestartCount == 1 && !t.StartedAt.IsZero() {
			run = t.FinishedAt.Sub(t.StartedAt.Time)
		}
		if !restarted || run < shortest {
			restarted, shortest = true, run
		}
	}
	return restarted, shortest
}

// Transform is a client-go TransformFunc: it makes an informer store a *Pod for a *corev1.Pod, of which the types alone
// take more than a KiB, and hand it to its handlers. What is a *Pod already stays, since a reflector may transform twice.
func Transform(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return ReadPod(pod), nil
	}
	return object, nil
}

// GetObjectMeta lets an informer's store find the pod's key.
func (p *Pod) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}
}

// Loop is the crash loop that counts, "" as its container when none does. Without includeInit nothing under initContainers counts,
// sidecars neither.
func (p *Pod) Loop(includeInit bool) CrashLoop {
	if p.Main.Container == "" && includeInit {
		return p.Init
	}
	return p.Main
}

// looping says whether any container crash-loops.
func (p *Pod) looping() bool { return p.Main.Container != "" || p.Init.Container != "" }

// Key names the pod.
func (p *Pod) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// Workload is the pod's topmost owner that the pod itself shows: a Deployment for its ReplicaSets' pods, whose names end
// in the hash that the pod carries as a label. A rollout makes a new ReplicaSet, which replaces what the former one loses meanwhile, and a
// record by name survives a restart of the manager as it is. A workload that was deleted and created again has the deletions of
// the former: that only forbids.
func (p *Pod) Workload() Workload {
	w := Workload{Namespace: p.Namespace, Kind: p.Controller.Kind, Name: p.Controller.Name}
	hash := p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if w.Kind != "ReplicaSet" || hash == "" {
		return w
	}
	if name, ok := strings.CutSuffix(w.Name, hash); ok && len(name) > 1 && strings.HasSuffix(name, "-") {
		w.Kind, w.Name = "Deployment", name[:len(name)-1]
	}
	return w
}

// labelName marks Autohealer's own objects.
const labelName, nameAutohealer = "app.kubernetes.io/name", "autohealer"

// autohealers says whether the pod is one of Autohealer's own, which run in ownNamespace; "" when that is unknown.
func (p *Pod) autohealers(ownNamespace string) bool {
	return p.Labels[labelName] == nameAutohealer && (ownNamespace == "" || p.Namespace == ownNamespace)
}

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
	if finished(pod) {
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

// finished says that the kubelet restarts nothing in this pod any more: it ran to its end, or was evicted from its node.
func finished(pod *corev1.Pod) bool {
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

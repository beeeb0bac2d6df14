package weeder_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

func status(options ...func(*corev1.ContainerStatus)) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: "c", RestartCount: 3, State: exited(1), LastTerminationState: exited(1)}
	for _, o := range options {
		o(&s)
	}
	return s
}

func TestCrashLooping(t *testing.T) {
	always, onFailure, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever
	isWaiting := func(s *corev1.ContainerStatus) { s.State = crashLoop() }
	couldNotStart := exited(128)
	couldNotStart.Terminated.Reason = "StartError"
	succeeded := func(s *corev1.ContainerStatus) { s.State = exited(0) }
	rule := func(operator corev1.ContainerRestartRuleOnExitCodesOperator, code int32) []corev1.ContainerRestartRule {
		return []corev1.ContainerRestartRule{{Action: "Restart", ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: []int32{code}}}}
	}
	for name, test := range map[string]struct {
		policy    corev1.RestartPolicy // of the pod; Always unless set
		phase     corev1.PodPhase
		container corev1.Container
		status    corev1.ContainerStatus
		// main and init say whether it counts as a container and as an init container.
		main, init bool
	}{
		"it waits in CrashLoopBackOff":                           {status: status(isWaiting), main: true, init: true},
		"it waits before any restart was counted":                {status: status(isWaiting, func(s *corev1.ContainerStatus) { s.RestartCount = 0; s.LastTerminationState = corev1.ContainerState{} }), main: true, init: true},
		"it waits for its image":                                 {status: status(func(s *corev1.ContainerStatus) { s.State = crashLoop(); s.State.Waiting.Reason = "ImagePullBackOff" })},
		"it is created":                                          {status: status(func(s *corev1.ContainerStatus) { s.State = crashLoop(); s.State.Waiting.Reason = "ContainerCreating" })},
		"terminated, as the kubelet shows most of the back-off":  {status: status(), main: true, init: true},
		"terminated after its first restart":                     {status: status(func(s *corev1.ContainerStatus) { s.RestartCount = 1 }), main: true, init: true},
		"terminated for the first time":                          {status: status(func(s *corev1.ContainerStatus) { s.RestartCount = 0; s.LastTerminationState = corev1.ContainerState{} })},
		"terminated, with a restart counted and no exit before":  {status: status(func(s *corev1.ContainerStatus) { s.LastTerminationState = corev1.ContainerState{} })},
		"terminated, with an exit before and no restart counted": {status: status(func(s *corev1.ContainerStatus) { s.RestartCount = 0 })},
		"it couldn't be started: what the kubelet shows": {status: status(func(s *corev1.ContainerStatus) {
			s.State, s.LastTerminationState = crashLoop(), couldNotStart
			s.State.Waiting.Reason = "RunContainerError"
		})},
		"the same after the kubelet itself was restarted":   {status: status(func(s *corev1.ContainerStatus) { s.State = couldNotStart })},
		"the same when the kubelet calls it a crash loop":   {status: status(func(s *corev1.ContainerStatus) { s.State, s.LastTerminationState = crashLoop(), couldNotStart }), main: true, init: true},
		"it exits, and couldn't be started the time before": {status: status(func(s *corev1.ContainerStatus) { s.LastTerminationState = couldNotStart }), main: true, init: true},
		"it runs again": {status: status(func(s *corev1.ContainerStatus) {
			s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		})},
		"nothing is known of its state":                            {status: status(func(s *corev1.ContainerStatus) { s.State = corev1.ContainerState{} })},
		"it exits with 0 and is restarted":                         {status: status(succeeded), main: true}, // an init container that succeeded is done
		"OnFailure, it failed":                                     {policy: "OnFailure", status: status(), main: true, init: true},
		"OnFailure, it succeeded":                                  {policy: "OnFailure", status: status(succeeded)},
		"Never":                                                    {policy: "Never", status: status()},
		"the pod failed: evicted from its node":                    {phase: "Failed", status: status()},
		"the pod failed while it waited":                           {phase: "Failed", status: status(isWaiting)},
		"the pod succeeded":                                        {phase: "Succeeded", status: status(succeeded)},
		"its own policy Always in a pod with Never (a sidecar)":    {policy: "Never", container: corev1.Container{RestartPolicy: &always}, status: status(), main: true, init: true},
		"its own policy Always, it succeeded":                      {policy: "OnFailure", container: corev1.Container{RestartPolicy: &always}, status: status(succeeded), main: true, init: true},
		"its own policy OnFailure, it succeeded":                   {container: corev1.Container{RestartPolicy: &onFailure}, status: status(succeeded)},
		"its own policy Never":                                     {container: corev1.Container{RestartPolicy: &never}, status: status()},
		"its own policy Never, but a rule restarts this exit code": {container: corev1.Container{RestartPolicy: &never, RestartPolicyRules: rule("In", 1)}, status: status(), main: true, init: true},
		"its own policy Never, and the rule is for another code":   {container: corev1.Container{RestartPolicy: &never, RestartPolicyRules: rule("In", 42)}, status: status()},
		"its own policy Never, and the rule is for all but 42":     {container: corev1.Container{RestartPolicy: &never, RestartPolicyRules: rule("NotIn", 42)}, status: status(), main: true, init: true},
		"its own policy Never, and a rule without exit codes":      {container: corev1.Container{RestartPolicy: &never, RestartPolicyRules: []corev1.ContainerRestartRule{{Action: "Restart"}}}, status: status()},
	} {
		t.Run(name, func(t *testing.T) {
			test.container.Name = "c"
			pod := func() *corev1.Pod {
				p := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: test.policy}, Status: corev1.PodStatus{Phase: "Running"}}
				if test.phase != "" {
					p.Status.Phase = test.phase
				}
				return p
			}
			main, init := pod(), pod()
			main.Spec.Containers, main.Status.ContainerStatuses = []corev1.Container{{Name: "other"}, test.container}, []corev1.ContainerStatus{{Name: "other"}, test.status}
			init.Spec.InitContainers, init.Status.InitContainerStatuses = []corev1.Container{{Name: "other"}, test.container}, []corev1.ContainerStatus{{Name: "other"}, test.status}
			for _, p := range []*corev1.Pod{main, init} {
				for _, includeInit := range []bool{true, false} {
					want := test.main
					if p == init {
						want = test.init && includeInit
					}
					loop := weeder.ReadPod(p).Loop(includeInit)
					expect(t, "crash-looping", loop.Container != "", want)
					if want {
						expect(t, "the loop", loop, weeder.CrashLoop{Container: "c", Init: p == init, Waiting: test.status.State.Waiting != nil, Restarts: test.status.RestartCount, ExitCode: loop.ExitCode})
					}
				}
			}
		})
	}
}

func TestACrashLoopTellsWhatExited(t *testing.T) {
	loop := weeder.ReadPod(newPod("api-1", func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "main", RestartCount: 7, State: crashLoop(), LastTerminationState: exited(137)}
	})).Loop(true)
	expect(t, "text", loop.String(), "container main exited with code 137 after 7 restarts")
}

func TestAWorkloadIsWhatThePodShowsOfItsOwners(t *testing.T) {
	hash := func(p *corev1.Pod) { p.Labels["pod-template-hash"] = "6d4cf56db6" }
	for name, test := range map[string]struct {
		options []podOption
		want    string
	}{
		"a Deployment, by its ReplicaSet's name": {[]podOption{owned("ReplicaSet", "api-6d4cf56db6"), hash}, "Deployment/api"},
		"a ReplicaSet of its own":                {[]podOption{owned("ReplicaSet", "api-6d4cf56db6")}, "ReplicaSet/api-6d4cf56db6"},
		"a ReplicaSet with another name":         {[]podOption{owned("ReplicaSet", "api-blue"), hash}, "ReplicaSet/api-blue"},
		"a ReplicaSet named as the hash":         {[]podOption{owned("ReplicaSet", "-6d4cf56db6"), hash}, "ReplicaSet/-6d4cf56db6"},
		"a StatefulSet":                          {[]podOption{owned("StatefulSet", "api"), hash}, "StatefulSet/api"},
		"a StatefulSet that is named like one":   {[]podOption{owned("StatefulSet", "api-6d4cf56db6"), hash}, "StatefulSet/api-6d4cf56db6"},
	} {
		t.Run(name, func(t *testing.T) {
			y := watchingEtcd(t, etcdForAPI, newPod("api-1", append(test.options, backOff)...))
			recoverEtcd(y, 0)
			plan, _ := decideOn(y, key("api-1"), at(0), "")
			expect(t, "workload", plan.Pod.Workload().String(), test.want)
		})
	}
}

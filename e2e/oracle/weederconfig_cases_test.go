package oracle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// strict leaves the manager no time in which its view may be behind.
var strict = Options{Lag: time.Nanosecond, RightsHold: time.Nanosecond}

func labelled(label, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[label] = value }
}

func in(namespace string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Namespace = namespace }
}

// onNode makes a pod's deletion last until its node is done with it.
func onNode(p *corev1.Pod) { p.Spec.NodeName = "node-0" }

func running(p *corev1.Pod) {
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

// exited has a pod's container end like this, and the time before too.
func exited(p *corev1.Pod, exit corev1.ContainerStateTerminated) {
	state := corev1.ContainerState{Terminated: &exit}
	p.Status.ContainerStatuses[0].State, p.Status.ContainerStatuses[0].LastTerminationState = state, state
}

// correctWeeding is what a manager may do with pods; none of it breaks anything.
var correctWeeding = []weederCase{
	{name: "delete what crash-looped when the Service recovered, and what does so in its window", options: strict, do: func(y yard) {
		c, first := y.config(`,"watchDuration":"1m"`), y.looping("api-0")
		y.recover()
		y.weed(c, first)
		y.weed(c, y.looping("other", func(p *corev1.Pod) { p.OwnerReferences[0].Name = "other" }))
	}},
	{name: "delete as many replacements as it may", do: func(y yard) {
		c := y.config(`,"cooldown":"1s"`)
		y.recover()
		for i := range 4 {
			y.weed(c, y.looping(fmt.Sprintf("api-%d", i)))
		}
	}},
	{name: "delete all of a workload, and once more all that replaced them", do: func(y yard) {
		c := y.config(`,"maxRepeatsPerOwner":1,"cooldown":"1s"`)
		for i := range 2 {
			var pods []*corev1.Pod
			for n := range 3 {
				pods = append(pods, y.looping(fmt.Sprintf("api-%d-%d", i, n)))
			}
			y.recover()
			y.weed(c, pods...)
		}
	}},
	{name: "delete at once what replaced nothing, whatever else of its workload was deleted", options: strict, do: func(y yard) {
		c, first, other := y.config(`,"maxRepeatsPerOwner":0`), y.looping("api-0"), y.looping("api-1")
		y.recover()
		y.weed(c, first)
		y.weed(c, other)
		y.looping("api-2")
		y.looping("api-3")
		y.weed(c, y.looping("api-4"))
	}},
	{name: "delete at once, of two that were created together, either for the one that replaced nothing", do: func(y yard) {
		c, first := y.config(`,"maxRepeatsPerOwner":0`), y.looping("api-0")
		y.recover()
		y.weed(c, first)
		replaces := y.looping("api-1")
		y.looping("api-2")
		y.weed(c, replaces)
	}},
	{name: "delete at once a replacement that ran for ten minutes before it was restarted", options: strict, do: func(y yard) {
		c, first := y.config(`,"maxRepeatsPerOwner":0`), y.looping("api-0")
		y.recover()
		y.weed(c, first)
		y.weed(c, y.looping("api-1", ranFor(10*time.Minute)))
	}},
	{name: "delete what shuts down at leisure", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0", onNode)
		y.recover()
		y.weed(c, p)
	}},
	{name: "delete a pod that the kubelet reports as exited for most of its back-off", do: func(y yard) {
		c := y.config("")
		p := y.looping("api-0", func(p *corev1.Pod) { exited(p, corev1.ContainerStateTerminated{ExitCode: 1}) })
		y.recover()
		y.weed(c, p)
	}},
	{name: "evict when the config asks for that", options: strict, do: func(y yard) {
		c, p := y.config(`,"deletion":"Evict"`), y.looping("api-0")
		onIts := y.looping("api-1", onNode)
		y.recover()
		y.note(c, 2, p, onIts)
		y.evict(p)
		y.evict(onIts)
	}},
	{name: "note more than the status names, by their number", do: func(y yard) {
		c := y.config("")
		var pods []*corev1.Pod
		for i := range 23 {
			pods = append(pods, y.looping(fmt.Sprintf("api-%d", i)))
		}
		y.recover()
		y.note(c, len(pods), pods[3:]...)
		for _, p := range pods {
			y.remove(p)
		}
	}},
	{name: "act for a Service whose pods tell that it recovered before anybody watched", do: func(y yard) {
		c, p := y.config(`,"watchDuration":"1m"`), y.looping("api-0")
		y.looping("etcd-0", labelled("app", "etcd"), running, readyFor(30*time.Second))
		y.turn(true)
		y.weed(c, p)
	}},
	{name: "ask nobody for rights in Autohealer's own namespace, and hold in those that a selector chooses", options: strict, do: func(y yard) {
		y.must("delete", "rolebinding", "weeder")
		defer y.entitle()
		c := y.configIn("autohealer-system", "c", `,"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"default"}}`)
		p := y.looping("api-0")
		y.recover()
		y.weed(c, p)
	}},
	{name: "act for what was changed, and by rights that were lost, just now", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.recover()
		y.note(c, 1, p)
		y.must("delete", "rolebinding", "weeder")
		defer y.entitle()
		y.edit(c, `{"spec":{"mode":"Observe"}}`)
		y.remove(p)
	}},
	{name: "across a restart of the API server", do: func(y yard) {
		c := y.config("")
		first, second, third := y.looping("api-0"), y.looping("api-1", onNode), y.looping("api-2")
		y.recover()
		y.note(c, 3, first, second, third)
		y.remove(first)
		if err := y.cluster.RestartAPIServer(y.Context()); err != nil {
			y.Fatal(err)
		}
		y.remove(second)
		y.remove(third)
	}},
	{name: "leave all pods to others", options: strict, do: func(y yard) {
		p := y.looping("api-0")
		if err := y.admin.CoreV1().Pods(p.Namespace).Delete(y.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
			y.Fatal(err)
		}
	}},
}

// ranFor has a pod's container restart for the first time after it ran so long.
func ranFor(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		end := metav1.NewTime(time.Now().Truncate(time.Second))
		p.Status.ContainerStatuses[0].RestartCount = 1
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: 1, StartedAt: metav1.NewTime(end.Add(-d)), FinishedAt: end,
		}
	}
}

// readyFor gives a pod the condition that it has been ready so long.
func readyFor(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-d))}}
	}
}

// weeded has the manager delete one pod that a change made special.
func weeded(more string, changes ...func(*corev1.Pod)) func(yard) {
	return func(y yard) {
		c, p := y.config(more), y.looping("api-0", changes...)
		y.recover()
		y.weed(c, p)
	}
}

// neverDeleted are pods that no config and no window lets go.
var neverDeleted = []weederCase{
	{name: "whatever has the name, without a UID", broken: []Invariant{Validated}, text: "without saying which", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.recover()
		y.note(c, 1, p)
		y.removeBy(p, metav1.DeleteOptions{})
	}},
	{name: "whatever state it is in, without a resource version", broken: []Invariant{Validated}, text: "without saying which", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.recover()
		y.note(c, 1, p)
		y.removeBy(p, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
	}},
	{name: "whatever has the name, by eviction", broken: []Invariant{Validated}, text: "create eviction by the manager, which no policy asks for", do: func(y yard) {
		c, p := y.config(`,"deletion":"Evict"`), y.looping("api-0")
		y.recover()
		y.note(c, 1, p)
		y.evictBy(p, metav1.DeleteOptions{})
	}},
	{name: "the wrong UID: one that took the other's name and works", broken: []Invariant{Validated}, text: "didn't crash-loop", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.recover()
		if err := y.admin.CoreV1().Pods(p.Namespace).Delete(y.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
			y.Fatal(err)
		}
		y.weed(c, y.looping("api-0", running))
	}},
	{name: "the wrong UID: one that took the other's name, for the note of the other", broken: []Invariant{Validated}, text: "no WeederConfig's status told of it", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.recover()
		y.weed(c, p)
		y.remove(y.looping("api-0"))
	}},
	{name: "one that runs again", broken: []Invariant{Validated}, text: "didn't crash-loop", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.recover()
		running(p)
		y.weed(c, y.become(p))
	}},
	{name: "one that won't be restarted", broken: []Invariant{Validated}, text: "didn't crash-loop", do: weeded("", func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		exited(p, corev1.ContainerStateTerminated{})
	})},
	{name: "one that couldn't be started", broken: []Invariant{Validated}, text: "didn't crash-loop", do: weeded("", func(p *corev1.Pod) {
		exited(p, corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError"})
	})},
	{name: "one that exited for the first time", broken: []Invariant{Validated}, text: "didn't crash-loop", do: weeded("", func(p *corev1.Pod) {
		exited(p, corev1.ContainerStateTerminated{ExitCode: 1})
		p.Status.ContainerStatuses[0].RestartCount = 0
	})},
	{name: "an ownerless one", broken: []Invariant{Validated}, text: "nothing replaces", do: weeded("", func(p *corev1.Pod) { p.OwnerReferences = nil })},
	{name: "one with an owner that doesn't control it", broken: []Invariant{Validated}, text: "nothing replaces", do: weeded("", func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil })},
	{name: "a mirror pod", broken: []Invariant{Validated}, text: "a static pod's image", do: weeded("", onNode, func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	})},
	{name: "a terminating one", broken: []Invariant{Validated}, text: "being deleted", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0", onNode)
		y.recover()
		if err := y.admin.CoreV1().Pods(p.Namespace).Delete(y.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
			y.Fatal(err)
		}
		terminating, err := y.admin.CoreV1().Pods(p.Namespace).Get(y.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			y.Fatal(err)
		}
		y.note(c, 1, p)
		options := same(terminating)
		options.GracePeriodSeconds = new(int64)
		y.removeBy(terminating, options)
	}},
	{name: "one of Autohealer's own", broken: []Invariant{Validated}, text: "a pod of Autohealer", do: func(y yard) {
		c := y.configIn("autohealer-system", "c", "")
		p := y.looping("manager", in("autohealer-system"), labelled("app.kubernetes.io/name", "autohealer"))
		y.weed(c, p)
	}},
	{name: "one of the Service's own, by its slice", broken: []Invariant{Validated}, text: "one of Service default/etcd's own", do: func(y yard) {
		c, p := y.config(""), y.looping("etcd-0")
		y.recover()
		y.weed(c, p)
	}},
	{name: "one of the Service's own, by its selector", broken: []Invariant{Validated}, text: "one of Service default/etcd's own", do: func(y yard) {
		y.must("patch", "service", "etcd", "--type=merge", "-p", `{"spec":{"selector":{"app":"api"}}}`)
		weeded("")(y)
	}},
	{name: "for a Service that is notReady again", options: strict, broken: []Invariant{Validated}, text: "or has been notReady since", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.recover()
		y.turn(false)
		y.weed(c, p)
	}},
	{name: "all of a namespace at once", broken: []Invariant{Validated}, text: "deletecollection", do: func(y yard) {
		y.looping("api-0")
		if err := y.manager.CoreV1().Pods("default").DeleteCollection(y.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			y.Fatal(err)
		}
	}},
}

// unfoundedWeeding is what no config allows, or not now.
var unfoundedWeeding = []weederCase{
	{name: "without a note in a status", broken: []Invariant{Validated}, text: "no WeederConfig's status told of it before", do: func(y yard) {
		y.config("")
		p := y.looping("api-0")
		y.recover()
		y.remove(p)
	}},
	{name: "without a note, while no watch told of it", broken: []Invariant{Validated}, text: "no WeederConfig's status told of it before", do: func(y yard) {
		y.config("")
		p := y.looping("api-0")
		y.recover()
		if err := y.cluster.RestartAPIServer(y.Context()); err != nil {
			y.Fatal(err)
		}
		y.remove(p)
	}},
	{name: "one more than the status counts", broken: []Invariant{Validated}, text: "no WeederConfig's status told of it before", do: func(y yard) {
		c, first, second := y.config(""), y.looping("api-0"), y.looping("api-1")
		y.recover()
		y.note(c, 1, first)
		y.remove(first)
		y.remove(second)
	}},
	{name: "a pod that the config doesn't select", broken: []Invariant{Validated}, text: "doesn't select the pod", do: weeded("", labelled("app", "other"))},
	{name: "a pod that another generation selected", options: strict, broken: []Invariant{Validated}, text: "doesn't select the pod", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.recover()
		y.note(c, 1, p)
		y.edit(c, `{"spec":{"servicesAndDependantSelectors":{"etcd":{"podSelectors":[{"matchLabels":{"app":"other"}}]}}}}`)
		y.remove(p)
	}},
	{name: "for a Service that the config doesn't name any more", options: strict, broken: []Invariant{Validated}, text: `names no Service "etcd"`, do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.recover()
		y.note(c, 1, p)
		y.edit(c, `{"spec":{"servicesAndDependantSelectors":{"etcd":null,"api":{"podSelectors":[{"matchLabels":{"app":"api"}}]}}}}`)
		y.remove(p)
	}},
	{name: "in another namespace", broken: []Invariant{Validated}, text: "doesn't hold in namespace autohealer-system", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0", in("autohealer-system"))
		y.recover()
		y.weed(c, p)
	}},
	{name: "in other namespaces for a tenant that asks for it", broken: []Invariant{Validated}, text: "doesn't hold in namespace autohealer-system", do: func(y yard) {
		c, p := y.config(`,"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"autohealer-system"}}`), y.looping("api-0", in("autohealer-system"))
		y.recover()
		y.weed(c, p)
	}},
	{name: "in Observe mode", broken: []Invariant{Validated}, text: "it only observes", do: weeded(`,"mode":"Observe"`)},
	{name: "while a Guardrail pauses everything", options: strict, broken: []Invariant{Validated}, text: "Guardrail freeze pauses all new acts", do: func(y yard) {
		y.guardrail("freeze", `{"paused":true}`)
		weeded("")(y)
	}},
	{name: "while a Guardrail freezes everything", options: strict, broken: []Invariant{Frozen, Validated}, text: "Guardrail freeze freezes everything", do: func(y yard) {
		y.guardrail("freeze", `{"frozen":true}`)
		weeded("")(y)
	}},
	{name: "under a config that the rules refuse", options: Options{Admissible: refuseRefused}, broken: []Invariant{Validated}, text: "refused is refused: matches healthy nodes", do: func(y yard) {
		c, p := y.configIn("default", "refused", ""), y.looping("api-0")
		y.recover()
		y.weed(c, p)
	}},
	{name: "under a config that its own status calls refused", options: strict, broken: []Invariant{Validated}, text: "that it is refused", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.accepts(c, "False")
		y.recover()
		y.weed(c, p)
	}},
	{name: "under a config that its own status called refused before a Guardrail changed", options: strict, broken: []Invariant{Validated}, text: "that it is refused", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.accepts(c, "False")
		y.guardrail("other", `{}`)
		y.recover()
		y.weed(c, p)
	}},
	{name: "under a config that was deleted", options: strict, broken: []Invariant{Validated}, text: "c was deleted", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.recover()
		y.note(c, 1, p)
		y.must("delete", "weederconfig", "c")
		y.remove(p)
	}},
	{name: "for an author whose account never had the right", options: Options{Lag: time.Nanosecond}, broken: []Invariant{Validated}, text: "ServiceAccount nobody may not delete pods in namespace default", do: weeded(`,"serviceAccountName":"nobody"`)},
	{name: "for an author whose account lost the right", options: strict, broken: []Invariant{Validated}, text: "ServiceAccount default may not delete pods in namespace default", do: func(y yard) {
		y.must("delete", "rolebinding", "weeder")
		defer y.entitle()
		weeded("")(y)
	}},
	{name: "before the Service recovers", broken: []Invariant{Validated}, text: "Service default/etcd didn't turn Ready", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.turn(false)
		y.weed(c, p)
	}},
	{name: "when it turns notReady, or stays Ready", broken: []Invariant{Validated, Validated}, text: "Service default/etcd didn't turn Ready", do: func(y yard) {
		c := y.config("")
		y.turn(true) // seen so the first time, and no pod tells since when
		y.turn(true)
		y.weed(c, y.looping("api-0"))
		y.turn(false)
		y.weed(c, y.looping("api-1"))
	}},
	{name: "when an empty slice comes", broken: []Invariant{Validated}, text: "didn't turn Ready", do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.turn(false)
		y.slice("empty")
		y.weed(c, p)
	}},
	{name: "when one more slice of a Ready Service turns ready", options: strict, broken: []Invariant{Validated}, text: "didn't turn Ready within 1ms before", do: func(y yard) {
		c, p := y.config(`,"watchDuration":"1ms"`), y.looping("api-0")
		y.recover()
		y.slice("other", discoveryv1.Endpoint{Addresses: []string{"10.1.2.4"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "etcd-1"}})
		y.weed(c, p)
	}},
	{name: "when one of two recovers and the config waits for all", broken: []Invariant{Validated}, text: "didn't turn Ready", do: func(y yard) {
		c, p := y.config(`,"readyPolicy":"AllReady"`), y.looping("api-0")
		no := false
		y.slice("other", discoveryv1.Endpoint{
			Addresses: []string{"10.1.2.4"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "etcd-1"},
		})
		y.recover()
		y.weed(c, p)
	}},
	{name: "after the window", options: strict, broken: []Invariant{Validated}, text: "didn't turn Ready within 1ms before", do: weeded(`,"watchDuration":"1ms"`)},
	{name: "for a Service that has been Ready for long", broken: []Invariant{Validated}, text: "didn't turn Ready", do: func(y yard) {
		c, p := y.config(`,"watchDuration":"1m"`), y.looping("api-0")
		y.looping("etcd-0", labelled("app", "etcd"), running, readyFor(time.Hour))
		y.turn(true)
		y.weed(c, p)
	}},
	{name: "by eviction, which the config doesn't ask for", broken: []Invariant{Validated}, text: `its deletion is "Delete"`, do: func(y yard) {
		c, p := y.config(""), y.looping("api-0")
		y.recover()
		y.note(c, 1, p)
		y.evict(p)
	}},
	{name: "past a PodDisruptionBudget, though the config asks for evictions", broken: []Invariant{Validated}, text: `its deletion is "Evict"`, do: weeded(`,"deletion":"Evict"`)},
	{name: "for an init container that the config leaves alone", broken: []Invariant{Validated}, text: "only an init container", do: weeded(`,"includeInitContainers":false`, func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "example.com/none"}}
		p.Status.InitContainerStatuses, p.Status.ContainerStatuses = p.Status.ContainerStatuses, nil
		p.Status.InitContainerStatuses[0].Name = "init"
	})},
	{name: "on an input that has been silent", options: Options{DoubtGrace: time.Nanosecond}, broken: []Invariant{Doubt}, text: "after EndpointSlices froze", do: func(y yard) {
		y.oracle.Freeze("EndpointSlices")
		weeded("")(y)
	}},
}

// unlimitedWeeding goes over a budget, each with one pod too many.
var unlimitedWeeding = []weederCase{
	{name: "more than maxDeletionsPerWatch", broken: []Invariant{Limits}, text: "3 pods were deleted since Service default/etcd recovered; 2 are allowed", do: func(y yard) {
		c := y.config(`,"maxDeletionsPerWatch":2`)
		pods := []*corev1.Pod{y.looping("api-0"), y.looping("api-1"), y.looping("api-2")}
		y.recover()
		y.weed(c, pods...)
	}},
	{name: "more than maxRepeatsPerOwner in an hour", broken: []Invariant{Limits}, text: "3 pods of default/ReplicaSet/api were deleted within an hour, each the replacement of the one before; 2 are allowed", do: func(y yard) {
		c := y.config(`,"maxRepeatsPerOwner":1,"cooldown":"1s"`)
		y.recover()
		for i := range 3 {
			y.weed(c, y.looping(fmt.Sprintf("api-%d", i)))
		}
	}},
	{name: "more than maxRepeatsPerOwner in several windows", broken: []Invariant{Limits}, text: "2 pods of default/ReplicaSet/api were deleted within an hour, each the replacement of the one before; 1 are allowed", do: func(y yard) {
		c := y.config(`,"maxRepeatsPerOwner":0,"cooldown":"1s"`)
		for i := range 2 {
			y.recover()
			y.weed(c, y.looping(fmt.Sprintf("api-%d", i)))
		}
	}},
	{name: "one of several as often as all of them together", options: strict, broken: []Invariant{Limits, Limits, Limits}, text: "the cooldown is 1s", do: func(y yard) {
		c := y.config(`,"maxRepeatsPerOwner":2,"cooldown":"1s"`)
		pods := []*corev1.Pod{y.looping("api-0"), y.looping("api-1"), y.looping("api-2")}
		y.recover()
		y.weed(c, pods...)
		y.looping("api-3")
		y.looping("api-4")
		for i := range 3 {
			y.weed(c, y.looping(fmt.Sprintf("api-5-%d", i)))
		}
	}},
	{name: "one of two that were created together, and then the other, for the one that replaced nothing", broken: []Invariant{Limits}, text: "2 pods of default/ReplicaSet/api were", do: func(y yard) {
		c, first := y.config(`,"maxRepeatsPerOwner":0`), y.looping("api-0")
		y.recover()
		y.weed(c, first)
		y.weed(c, y.looping("api-1"), y.looping("api-2"))
	}},
	{name: "a replacement that ran for less than ten minutes", options: strict, broken: []Invariant{Limits}, text: "the cooldown is 10s", do: func(y yard) {
		c, first := y.config(""), y.looping("api-0")
		y.recover()
		y.weed(c, first)
		y.weed(c, y.looping("api-1", ranFor(10*time.Minute-time.Second)))
	}},
	{name: "a replacement before the cooldown, beside one that replaced nothing", options: strict, broken: []Invariant{Limits}, text: "the cooldown is 10s", do: func(y yard) {
		c := y.config("")
		y.looping("api-older")
		y.recover()
		y.weed(c, y.looping("api-0"))
		y.weed(c, y.looping("api-1"))
	}},
	{name: "more in a minute than the built-in limit", options: Options{MaxPodDeletionsPerMinute: 2}, broken: []Invariant{Limits}, text: "3 pods were deleted within a minute; 2 are allowed", do: func(y yard) {
		c := y.config("")
		pods := []*corev1.Pod{y.looping("api-0"), y.looping("api-1"), y.looping("api-2")}
		y.recover()
		y.weed(c, pods...)
	}},
	{name: "more in a minute, over several configs, than a Guardrail allows", options: strict, broken: []Invariant{Limits}, text: "2 pods were deleted within a minute; 1 are allowed", do: func(y yard) {
		y.guardrail("tight", `{"limits":{"maxPodDeletionsPerMinute":1}}`)
		c, d := y.config(""), y.configIn("default", "d", "")
		first, second := y.looping("api-0"), y.looping("api-1")
		y.recover()
		y.weed(c, first)
		y.weed(d, second)
	}},
}

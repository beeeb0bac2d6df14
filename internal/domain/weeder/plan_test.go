package weeder_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// frozen stands for lifecycle.NotJudged in tables, whose zero is Active.
const frozen = lifecycle.State(-1)

func TestWhatIsNeverDeleted(t *testing.T) {
	initLoop := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "wait"}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "wait", RestartCount: 2, State: exited(1), LastTerminationState: exited(1)}}
	}
	for name, test := range map[string]struct {
		pod     *corev1.Pod
		spec    string
		state   lifecycle.State // Active unless set
		clock   time.Duration   // how far the API server's clock is ahead
		stepped bool
		doubt   string
		want    string
	}{
		"a pod in its back-off":                  {pod: newPod("api-1", backOff), want: "delete"},
		"a pod that waits":                       {pod: newPod("api-1", waiting), want: "delete"},
		"a pod with a crash-looping init":        {pod: newPod("api-1", initLoop), want: "delete"},
		"the same, without init containers":      {pod: newPod("api-1", initLoop), spec: "includeInitContainers: false"},
		"a Job's pod":                            {pod: newPod("api-1", backOff, owned("Job", "api")), want: "delete"},
		"a pod that runs":                        {pod: newPod("api-1", running)},
		"a pod that doesn't depend on it":        {pod: newPod("db-1", backOff)},
		"a pod of another namespace":             {pod: newPod("api-1", backOff, in("other"))},
		"a pod that is terminating":              {pod: newPod("api-1", backOff, terminating)},
		"a pod without a controller":             {pod: newPod("api-1", backOff, ownerless), want: "NoController"},
		"a mirror pod":                           {pod: newPod("api-1", backOff, mirror), want: "MirrorPod"},
		"a pod that a node owns":                 {pod: newPod("api-1", backOff, owned("Node", "n1")), want: "MirrorPod"},
		"one of the Service's own pods":          {pod: newPod("etcd-0", backOff, labelled("app", "api")), want: "PodOfTheService"},
		"one that the Service selects":           {pod: newPod("api-1", backOff, labelled("etcd", "yes")), want: "PodOfTheService"},
		"one of Autohealer's":                    {pod: newPod("api-1", backOff, in("autohealer-system"), labelled("app.kubernetes.io/name", "autohealer")), want: "PodOfAutohealer"},
		"another one in Autohealer's namespace":  {pod: newPod("api-1", backOff, in("autohealer-system")), want: "delete"},
		"the config isn't judged yet":            {pod: newPod("api-1", backOff), state: frozen, want: "Starting"},
		"a rule refuses the config":              {pod: newPod("api-1", backOff), state: lifecycle.Refused, want: "NotAdmitted"},
		"its account may not delete":             {pod: newPod("api-1", backOff), state: lifecycle.Forbidden, want: "Forbidden"},
		"a Guardrail pauses":                     {pod: newPod("api-1", backOff), state: lifecycle.Paused, want: "Paused"},
		"mode Observe":                           {pod: newPod("api-1", backOff), spec: "mode: Observe", want: "Observing"},
		"the clocks differ by 9s":                {pod: newPod("api-1", backOff), clock: 9 * second, want: "delete"},
		"the clocks differ by 11s":               {pod: newPod("api-1", backOff), clock: 11 * second, want: "ClockStepped"},
		"the API server's is behind by 11s":      {pod: newPod("api-1", backOff), clock: -11 * second, want: "ClockStepped"},
		"the clock stepped":                      {pod: newPod("api-1", backOff), stepped: true, want: "ClockStepped"},
		"what is known may be old":               {pod: newPod("api-1", backOff), doubt: "the watch of EndpointSlices is silent", want: "FactsInDoubt"},
		"a DaemonSet's pod, which is no mirror":  {pod: newPod("api-1", backOff, owned("DaemonSet", "api")), want: "delete"},
		"a pod that is held":                     {pod: newPod("api-1", backOff, heldUntil("2026-11-03T14:00:00Z")), want: "HoldUntil"},
		"a pod that was held":                    {pod: newPod("api-1", backOff, heldUntil("2026-11-03T12:00:00Z")), want: "delete"},
		"a pod held by garbage":                  {pod: newPod("api-1", backOff, heldUntil("soon")), want: "HoldUntil"},
		"Autohealer's name in another namespace": {pod: newPod("api-1", backOff, labelled("app.kubernetes.io/name", "autohealer")), want: "delete"},
	} {
		t.Run(name, func(t *testing.T) {
			state := test.state
			switch state {
			case 0:
				state = lifecycle.Active
			case frozen:
				state = lifecycle.NotJudged
			}
			y := newState()
			y.ObservePod(weeder.ReadPod(test.pod), at(-time.Minute))
			y.ObserveService(&corev1.Service{ObjectMeta: newPod("etcd").ObjectMeta, Spec: corev1.ServiceSpec{Selector: map[string]string{"etcd": "yes"}}})
			namespace := "ns"
			if test.pod.Namespace == "autohealer-system" {
				namespace = test.pod.Namespace
			}
			slice := newSlice("a", "etcd", "etcd-0:notready", "etcd-1:notready")
			slice.Namespace = namespace
			y.ObserveSlice(slice, at(-time.Minute))
			y.ObserveConfig(compiled(t, newWeederConfig(t, namespace, "wc", etcdForAPI+test.spec)), state, at(-time.Minute))
			y.MarkSynced(at(-time.Minute))
			slice = newSlice("a", "etcd", "etcd-0:notready", "etcd-1")
			slice.Namespace = namespace
			y.ObservePod(weeder.ReadPod(newPod("etcd-1", in(namespace), readySince(0))), at(0))
			y.ObserveSlice(slice, at(0))
			if test.stepped {
				y.DeferActsUntil(noon.Add(5 * time.Minute))
			}
			now := at(second)
			now.Server = now.Server.Add(test.clock)
			podKey := key(test.pod.Name)
			podKey.Namespace = test.pod.Namespace
			plan, next := decideOn(y, podKey, now, test.doubt)
			expect(t, "verdict", verdict(plan, next), test.want)
			if len(plan.Holds) > 0 {
				sum, _ := y.Summary("wc-uid", now)
				expect(t, "held", sum.Held[plan.Holds[0].Reason].Pods, 1)
				expect(t, "skipped", fmt.Sprint(sum.Skipped), fmt.Sprintf("[{%s 1}]", plan.Holds[0].Reason))
			}
		})
	}
}

func TestADeletionNamesItsAct(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI+"deletion: Evict", newPod("api-1", backOff))
	y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(-3*second))), at(0))
	seeEtcdReady(y, 0)
	plan, _ := decideOn(y, key("api-1"), at(second), "")
	if plan.Delete == nil {
		t.Fatal("nothing is deleted")
	}
	expect(t, "deletion", fmt.Sprintf("%+v", *plan.Delete), fmt.Sprintf("%+v", weeder.Deletion{
		Config: "wc-uid", Key: key("wc"), Generation: 1, Service: "etcd", Recovered: noon.Add(-3 * second), Trigger: noon.Add(-3 * second), Ends: noon.Add(117 * second), Evict: true,
		Loop: weeder.CrashLoop{Container: "main", Restarts: 4, ExitCode: 1},
	}))
	expect(t, "precondition", string(plan.Pod.UID), "api-1-uid")
	if plan.Pod.ResourceVersion == "" {
		t.Error("the pod's resource version is missing")
	}
}

func TestTheOldestConfigThatMayDeletes(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI+"mode: Observe", newPod("api-1", backOff), newPod("api-2", backOff))
	young := newWeederConfig(t, "ns", "young", etcdForAPI+"maxDeletionsPerWatch: 1")
	young.CreationTimestamp.Time = noon.Add(-time.Minute)
	y.ObserveConfig(compiled(t, young), lifecycle.Active, at(-second))
	recoverEtcd(y, 0)
	plan, next := decideOn(y, key("api-1"), at(0), "")
	expect(t, "the first pod", verdict(plan, next), "delete")
	expect(t, "by", string(plan.Delete.Config), "young-uid")
	expect(t, "the second pod", decide(y, "api-2", 0), "Observing,MaxDeletionsPerWatch")
}

func TestATerminatingPodIsLeftAlone(t *testing.T) {
	pod := weeder.Pod{Terminating: true, Main: weeder.CrashLoop{Container: "main"}, Controller: weeder.Controller{Kind: "ReplicaSet"}}
	in := weeder.Input{Pod: &pod, At: at(0), Openings: []weeder.Opening{{
		Config: newConfig(t, "wc", etcdForAPI), State: lifecycle.Active, Window: weeder.Window{Ends: noon.Add(second)},
	}}}
	expect(t, "terminating", weeder.PlanPod(in).Delete == nil, true)
	pod.Terminating = false
	expect(t, "not terminating", weeder.PlanPod(in).Delete == nil, false)
}

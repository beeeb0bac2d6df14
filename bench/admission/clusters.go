package admission

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/resourcestack/autohealer/bench/conditionset"
	"github.com/resourcestack/autohealer/bench/weederconfig"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/kube"
)

// inMemory is how much there is in a cluster in memory, over which one policy is judged.
type inMemory struct {
	path        string // of the hook that judges over it
	nodes, sets int
	// One namespace has the Services, the pods that depend on them, and a WeederConfig for each Service but the one that the judged
	// policy is about.
	pods, services int
	// targets are namespaces with a ProbeConfig each.
	targets int
}

// What policies of each kind are judged over; the first is the reference of the others. What the judged one selects is the same in all.
var (
	clustersOfSets    = []inMemory{{path: "/small", nodes: 10, sets: 10}, {path: "/nodes", nodes: 5000, sets: 10}, {path: "/sets", nodes: 10, sets: 10000}}
	clustersOfPods    = []inMemory{{path: "/few-pods", nodes: 10, sets: 10, pods: 40, services: 4}, {path: "/many-pods", nodes: 10, sets: 10, pods: 10000, services: 1000}}
	clustersOfTargets = []inMemory{
		{path: "/few-targets", nodes: 10, sets: 10, pods: 40, services: 4, targets: 4},
		{path: "/many-targets", nodes: 10, sets: 10, pods: 10000, services: 1000, targets: 1000},
	}
)

// facts are what the planners know of nodes, sets, pods and Services.
func (c inMemory) facts() (*kube.Facts, error) {
	now := time.Now()
	facts := &kube.Facts{
		Fleet: condition.NewFleet(limit.Builtin()), Weeder: weeder.NewState(limit.Builtin(), ""),
		Clock: clock.RealClock{}, Server: &kube.ServerClock{Clock: clock.RealClock{}},
	}
	at := timing.Moment{Now: now, Server: now}
	for i := range c.sets {
		cs := conditionset.Set(fmt.Sprintf("bench-%02d", i), i%50)
		cs.UID, cs.Generation = types.UID(fmt.Sprintf("set-%d", i)), 1
		set, err := condition.NewSet(cs)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", cs.Name, err)
		}
		facts.Fleet.ObserveSet(set, lifecycle.Active, nil, "", at)
	}
	for beat := range 2 { // a heartbeat seen to change proves that the reporter lives
		for i := range c.nodes {
			facts.Fleet.ObserveNode(reportingNode(i, beat), at)
		}
	}
	facts.Fleet.MarkSynced(at)
	facts.Weeder.MarkSynced(timing.Moment(at))
	facts.RecordNodeEvent()
	for i := range c.pods {
		facts.Weeder.ObservePod(weeder.ReadPod(dependentPod(i, weederconfig.ServiceName(i%c.services), now.Add(-time.Hour))), timing.Moment(at))
	}
	for i := range c.services {
		if err := observeService(facts.Weeder, i, timing.Moment(at)); err != nil {
			return nil, err
		}
	}
	return facts, nil
}

// reportingNode reports what the nodes of other measurements do; one in a hundred matches a set.
func reportingNode(i, beat int) *corev1.Node {
	began := metav1.NewTime(time.Now().Truncate(time.Hour))
	heartbeat := metav1.NewTime(began.Add(time.Duration(beat) * time.Second))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: strconv.Itoa(beat + 1)}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: heartbeat, LastTransitionTime: began}}
	for t := range conditionset.TypesPerNode {
		status := corev1.ConditionFalse
		if t == 0 && i%100 == 0 {
			status = corev1.ConditionTrue
		}
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: conditionset.ConditionType((i + t) % 50), Status: status, LastHeartbeatTime: heartbeat, LastTransitionTime: began,
		})
	}
	return node
}

func dependentPod(i int, service string, created time.Time) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: weederconfig.Namespace, Name: "pod-" + strconv.Itoa(i), UID: types.UID(strconv.Itoa(i)), CreationTimestamp: metav1.NewTime(created),
		Labels:          map[string]string{weederconfig.DependsOn: service, "app": "bench", "pod-template-hash": "5d8b7c9f6d"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "of-" + service + "-5d8b7c9f6d", UID: "bench", Controller: new(true)}},
	}}
}

// observeService is about a Service with one pod behind it, and about its config.
func observeService(facts *weeder.State, i int, at timing.Moment) error {
	name := weederconfig.ServiceName(i)
	meta := metav1.ObjectMeta{Namespace: weederconfig.Namespace, Name: name, UID: types.UID(name), Labels: map[string]string{discoveryv1.LabelServiceName: name}}
	facts.ObserveService(&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: map[string]string{"behind": name}}})
	behind := discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "behind-" + name}}
	facts.ObserveSlice(&discoveryv1.EndpointSlice{ObjectMeta: meta, Endpoints: []discoveryv1.Endpoint{behind}}, at)
	if i == 0 {
		return nil // the config that is judged is about it
	}
	stored := configFor("of-"+name, name)
	stored.UID, stored.Generation = types.UID(name), 1
	config, err := weeder.NewConfig(stored, "")
	if err != nil {
		return fmt.Errorf("read a config: %w", err)
	}
	facts.ObserveConfig(config, lifecycle.Active, at)
	return nil
}

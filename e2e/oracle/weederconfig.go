package oracle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// WeederConfigs is the kind that deletes crash-looping pods once a Service that they depend on recovered.
type WeederConfigs struct{}

// Policies are the WeederConfigs.
func (WeederConfigs) Policies() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: ourGroup, Version: "v1alpha1", Resource: "weederconfigs"}
}

// Foreign are the pods, and what tells when a Service recovered, whose pods are its own, where a config holds, and what its
// account may do.
func (WeederConfigs) Foreign() []schema.GroupVersionResource {
	return append(rbacResources(),
		schema.GroupVersionResource{Version: "v1", Resource: "pods"}, schema.GroupVersionResource{Version: "v1", Resource: "services"},
		schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	)
}

// Trim drops most of pods.
func (WeederConfigs) Trim(object *unstructured.Unstructured) {
	if object.GetKind() != "Pod" {
		return
	}
	policy, _, _ := unstructured.NestedString(object.Object, "spec", "restartPolicy")
	object.Object["spec"] = map[string]any{"restartPolicy": policy}
	status, _, _ := unstructured.NestedMap(object.Object, "status")
	kept := map[string]any{}
	for _, field := range []string{"phase", "conditions", "containerStatuses", "initContainerStatuses"} {
		if value, found := status[field]; found {
			kept[field] = value
		}
	}
	object.Object["status"] = kept
}

// Begin gives a reader that has seen nothing yet.
func (WeederConfigs) Begin(o Options) Reader { return newPods(o) }

// pod is what one revision of a pod says.
type pod struct {
	key    types.NamespacedName
	uid    types.UID
	labels map[string]string
	// workload is what replaces it, "" when nothing does.
	workload            string
	mirror, terminating bool
	// disrupted: an eviction was granted.
	disrupted bool
	// readySince is zero while the pod isn't ready.
	readySince time.Time
	// main and init say whether a container of the sort crash-loops.
	main, init bool
	// restarted: a container was. ranWell: each that was ran for ten minutes before, after which the kubelet forgets its back-off.
	restarted, ranWell bool
}

// slice is what an EndpointSlice says of a Service.
type slice struct {
	key       types.NamespacedName
	service   types.NamespacedName
	endpoints []endpoint
}

type endpoint struct {
	pod                string
	ready, terminating bool
}

// selector is a Service's, by which pods are its own.
type selector struct {
	key   types.NamespacedName
	pairs map[string]string
}

// namespace has the labels by which configs choose it.
type namespace struct {
	name   string
	labels map[string]string
}

// None of them carries a record: it is in the config's status.
func (*pod) Records() []types.UID       { return nil }
func (*slice) Records() []types.UID     { return nil }
func (*selector) Records() []types.UID  { return nil }
func (*namespace) Records() []types.UID { return nil }

func parseForWeeder(object []byte) (View, error) {
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(object, &meta); err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	key := types.NamespacedName{Namespace: meta.Namespace, Name: meta.Name}
	switch meta.Kind {
	case "Pod":
		return parsePod(object)
	case "EndpointSlice":
		return parseSlice(object)
	case "Service":
		var svc corev1.Service
		err := json.Unmarshal(object, &svc)
		return &selector{key: key, pairs: svc.Spec.Selector}, err
	case "Namespace":
		return &namespace{name: meta.Name, labels: meta.Labels}, nil
	case "Role", "ClusterRole":
		return parseRole(key, object)
	case "RoleBinding", "ClusterRoleBinding":
		return parseBinding(key, object)
	}
	return nil, fmt.Errorf("read an object: its kind is %q", meta.Kind)
}

func parsePod(object []byte) (*pod, error) {
	var o corev1.Pod
	if err := json.Unmarshal(object, &o); err != nil {
		return nil, fmt.Errorf("read a pod: %w", err)
	}
	p := &pod{
		key: types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, uid: o.UID, labels: o.Labels,
		workload: workloadOf(&o), terminating: o.DeletionTimestamp != nil,
	}
	_, p.mirror = o.Annotations[corev1.MirrorPodAnnotationKey]
	for _, c := range o.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == corev1.PodReady:
			p.readySince = c.LastTransitionTime.Time
		case c.Type == corev1.DisruptionTarget:
			p.disrupted = true
		}
	}
	if o.Status.Phase != corev1.PodSucceeded && o.Status.Phase != corev1.PodFailed {
		loops := func(s corev1.ContainerStatus) bool { return crashLoops(s, o.Spec.RestartPolicy) }
		p.main = slices.ContainsFunc(o.Status.ContainerStatuses, loops)
		p.init = slices.ContainsFunc(o.Status.InitContainerStatuses, loops)
	}
	p.ranWell = true
	for _, c := range slices.Concat(o.Status.InitContainerStatuses, o.Status.ContainerStatuses) {
		if c.RestartCount > 0 {
			p.restarted, p.ranWell = true, p.ranWell && ranWell(c)
		}
	}
	return p, nil
}

// ranWell says of a container that was restarted whether its first run is known, and lasted long enough to be no crash loop's.
func ranWell(s corev1.ContainerStatus) bool {
	first := s.LastTerminationState.Terminated
	return s.RestartCount == 1 && first != nil && !first.StartedAt.IsZero() && first.FinishedAt.Sub(first.StartedAt.Time) >= 10*time.Minute
}

// crashLoops: it waits in CrashLoopBackOff, or has exited again in a pod that restarts it. What couldn't be started hasn't
// exited. Restart policies of containers aren't looked at.
func crashLoops(s corev1.ContainerStatus, policy corev1.RestartPolicy) bool {
	if s.State.Waiting != nil {
		return s.State.Waiting.Reason == "CrashLoopBackOff"
	}
	exit := s.State.Terminated
	if exit == nil || exit.Reason == "StartError" || s.RestartCount == 0 || s.LastTerminationState.Terminated == nil {
		return false
	}
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && exit.ExitCode != 0
}

// workloadOf is the pod's topmost owner that it shows itself: a Deployment for the pods of its ReplicaSets.
func workloadOf(o *corev1.Pod) string {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return ""
	}
	kind, name := owner.Kind, owner.Name
	if deployment, cut := strings.CutSuffix(name, "-"+o.Labels["pod-template-hash"]); kind == "ReplicaSet" && cut {
		kind, name = "Deployment", deployment
	}
	return o.Namespace + "/" + kind + "/" + name
}

func parseSlice(object []byte) (*slice, error) {
	var o discoveryv1.EndpointSlice
	if err := json.Unmarshal(object, &o); err != nil {
		return nil, fmt.Errorf("read an EndpointSlice: %w", err)
	}
	s := &slice{
		key:     types.NamespacedName{Namespace: o.Namespace, Name: o.Name},
		service: types.NamespacedName{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]},
	}
	holds := func(claim *bool, missing bool) bool {
		if claim == nil {
			return missing
		}
		return *claim
	}
	for _, e := range o.Endpoints {
		if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
			continue
		}
		terminating := holds(e.Conditions.Terminating, false)
		ready := holds(e.Conditions.Ready, true) && holds(e.Conditions.Serving, true) && !terminating
		s.endpoints = append(s.endpoints, endpoint{pod: e.TargetRef.Name, ready: ready, terminating: terminating})
	}
	return s, nil
}

package weederconfig

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/bench/testbed"
	"github.com/resourcestack/autohealer/e2e/harness"
)

const (
	// Namespace is Autohealer's own: elsewhere accounts would be asked, which isn't what is measured.
	Namespace = harness.Namespace
	// DependsOn is the label by which pods depend on a Service.
	DependsOn = "depends-on"
)

// ServiceName is that of the i-th Service.
func ServiceName(i int) string { return fmt.Sprintf("weed-%d", i) }

// configOf is which config watches a Service.
func configOf(service int) string { return fmt.Sprintf("bench-%d", service/servicesPerConfig) }

// addConfigs stores the configs, and a Guardrail that lifts the limit.
func (b *Bench) addConfigs(ctx context.Context) error {
	if err := b.Client.Create(ctx, &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "bench"}, Spec: v1alpha1.GuardrailSpec{
		Limits: &v1alpha1.GuardrailLimits{MaxPodDeletionsPerMinute: new(int32(10000))},
	}}); err != nil {
		return fmt.Errorf("lift the limit: %w", err)
	}
	for from := 0; from < services; from += servicesPerConfig {
		var of []string
		for i := from; i < min(from+servicesPerConfig, services); i++ {
			of = append(of, ServiceName(i))
		}
		if err := b.addConfig(ctx, configOf(from), of...); err != nil {
			return err
		}
	}
	// The drains have configs of their own: after a restart the deletions of one that its status has no room for make
	// replacements of all dependents that are new.
	for round := range b.Rounds {
		if err := b.addConfig(ctx, drainService(round), drainService(round)); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) addConfig(ctx context.Context, name string, services ...string) error {
	wc := &v1alpha1.WeederConfig{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}, Spec: v1alpha1.WeederConfigSpec{
		WatchDuration: "30m", MaxDeletionsPerWatch: new(int32(10000)), ServicesAndDependantSelectors: map[string]v1alpha1.DependantSelectors{},
	}}
	for _, service := range services {
		wc.Spec.ServicesAndDependantSelectors[service] = Dependants(service)
	}
	if err := b.Client.Create(ctx, wc); err != nil {
		return fmt.Errorf("create a config: %w", err)
	}
	return nil
}

// Dependants selects the pods that depend on a Service.
func Dependants(service string) v1alpha1.DependantSelectors {
	return v1alpha1.DependantSelectors{PodSelectors: []v1alpha1.LabelSelector{{MatchLabels: map[string]string{DependsOn: service}}}}
}

// addPods creates pods of which some of each Service's dependents crash-loop, one pod behind each Service, and its slice,
// which isn't ready yet.
func (b *Bench) addPods(ctx context.Context) error {
	err := testbed.Each(ctx, b.Pods, func(ctx context.Context, i int) error {
		service := ServiceName(i % services)
		return b.addPod(ctx, fmt.Sprintf("pod-%d", i), service, i < loopsPerService*services)
	})
	if err != nil {
		return err
	}
	return testbed.Each(ctx, services+b.Rounds, func(ctx context.Context, i int) error {
		if i < services {
			return b.addService(ctx, ServiceName(i))
		}
		return b.addService(ctx, drainService(i-services))
	})
}

func (b *Bench) addPod(ctx context.Context, name, service string, loops bool) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name, Labels: map[string]string{DependsOn: service, "app": "bench", "pod-template-hash": "5d8b7c9f6d"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "of-" + service, UID: "bench", Controller: new(true)}}},
		Spec: restricted(),
	}
	pods := b.Clients.CoreV1().Pods(Namespace)
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s: %w", name, err)
	}
	if !loops {
		return nil
	}
	return b.setStatus(ctx, name, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "main", RestartCount: 7, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
	}}})
}

func (b *Bench) setStatus(ctx context.Context, pod string, st corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"status": st})
	if err != nil {
		return fmt.Errorf("encode a pod's status: %w", err)
	}
	_, err = b.Clients.CoreV1().Pods(Namespace).Patch(ctx, pod, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write the status of pod %s: %w", pod, err)
	}
	return nil
}

// restricted is what the namespace's Pod Security allows.
func restricted() corev1.PodSpec {
	return corev1.PodSpec{
		NodeName: "node-0", TerminationGracePeriodSeconds: new(int64),
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "main", Image: "example.com/none", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}
}

func (b *Bench) addService(ctx context.Context, name string) error {
	if err := b.addPod(ctx, "behind-"+name, "", false); err != nil {
		return err
	}
	// It has been Ready for long: when its Service turns Ready then, it is for another reason, and at that moment.
	long := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))},
	}}
	if err := b.setStatus(ctx, "behind-"+name, long); err != nil {
		return err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: Namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints(name, false),
	}
	if _, err := b.Clients.DiscoveryV1().EndpointSlices(Namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create slice %s: %w", name, err)
	}
	return nil
}

func endpoints(service string, ready bool) []discoveryv1.Endpoint {
	return []discoveryv1.Endpoint{{
		Addresses: []string{"10.1.2.3"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: Namespace, Name: "behind-" + service},
	}}
}

// setReady makes a Service Ready or notReady.
func (b *Bench) setReady(ctx context.Context, service string, ready bool) error {
	patch, err := json.Marshal(map[string]any{"endpoints": endpoints(service, ready)})
	if err != nil {
		return fmt.Errorf("encode a slice: %w", err)
	}
	_, err = b.Clients.DiscoveryV1().EndpointSlices(Namespace).Patch(ctx, service, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("make Service %s Ready or not: %w", service, err)
	}
	return nil
}

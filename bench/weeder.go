package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

const (
	// weedNamespace is Autohealer's own: elsewhere accounts would be asked, which isn't what is measured.
	weedNamespace = harness.Namespace
	weedServices  = 100
	// loopsPerService pods of each Service's dependents crash-loop before it recovers.
	loopsPerService = 5
	// drained is how many pods crash-loop when the last Service recovers.
	drained = 2000
	// servicesPerConfig is less than a config may have.
	servicesPerConfig = 50
	drainService      = "drained"
	// recoveriesPerSecond leaves the API server time for what follows from one.
	recoveriesPerSecond = 4
)

func serviceName(i int) string { return fmt.Sprintf("weed-%d", i) }

// weeder measures deletions after recoveries among many pods. Nothing plays the pods, and nothing replaces what is deleted:
// their owners exist by name only, and no garbage collector runs.
func (b *bench) weeder(ctx context.Context) error {
	b.say("weeder: %d pods, %d Services", b.size.pods, weedServices)
	if b.pprof == "" {
		b.pprof = loopback()
	}
	if err := b.restarted(ctx); err != nil {
		return err
	}
	empty, err := b.liveMemory(ctx)
	if err != nil {
		return err
	}
	if err := b.addConfigs(ctx); err != nil {
		return err
	}
	if err := b.addPods(ctx); err != nil {
		return err
	}
	if err := b.restarted(ctx); err != nil { // the memory of a full store, not of filling it
		return err
	}
	full, err := b.liveMemory(ctx)
	if err != nil {
		return err
	}
	perPod := (full - empty) / max(1, b.size.pods)
	b.report.absolute(row{what: fmt.Sprintf("memory a pod, on the manager's heap after a collection, with %d pods", b.size.pods), ours: fmt.Sprintf("%.1f KiB", float64(perPod)/1024), goal: "≤ 2 KiB", reached: perPod <= 2<<10})
	if err := b.recoveries(ctx); err != nil {
		return err
	}
	return b.drain(ctx)
}

// loopback is an address that is free now.
func loopback() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1:6060"
	}
	defer func() { _ = listener.Close() }() // free from now on
	return listener.Addr().String()
}

// restarted restarts the manager and lets it come to rest.
func (b *bench) restarted(ctx context.Context) error {
	if err := b.withoutManager(ctx, func() error { return nil }); err != nil {
		return err
	}
	_, err := b.quiet(ctx)
	return err
}

// liveMemory is what the manager's heap holds after a collection, in bytes.
func (b *bench) liveMemory(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.pprof+"/debug/pprof/heap?gc=1&debug=1", nil)
	if err != nil {
		return 0, fmt.Errorf("ask for the manager's heap: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask for the manager's heap: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // only read from
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("read the manager's heap: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "# HeapAlloc = "); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, errors.New("the manager's heap profile doesn't say how much is in use")
}

// addConfigs stores the configs, and a Guardrail that lifts the limit.
func (b *bench) addConfigs(ctx context.Context) error {
	most := int32(10000)
	if err := b.Client.Create(ctx, &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "bench"}, Spec: v1alpha1.GuardrailSpec{
		Limits: &v1alpha1.GuardrailLimits{MaxPodDeletionsPerMinute: &most},
	}}); err != nil {
		return fmt.Errorf("lift the limit: %w", err)
	}
	for from := 0; from <= weedServices; from += servicesPerConfig {
		wc := &v1alpha1.WeederConfig{ObjectMeta: metav1.ObjectMeta{Namespace: weedNamespace, Name: fmt.Sprintf("bench-%d", from)}, Spec: v1alpha1.WeederConfigSpec{
			WatchDuration: "30m", MaxDeletionsPerWatch: ptr.To[int32](10000), ServicesAndDependantSelectors: map[string]v1alpha1.DependantSelectors{},
		}}
		for i := from; i < min(from+servicesPerConfig, weedServices); i++ {
			wc.Spec.ServicesAndDependantSelectors[serviceName(i)] = dependants(serviceName(i))
		}
		if from == weedServices {
			wc.Spec.ServicesAndDependantSelectors[drainService] = dependants(drainService)
		}
		if err := b.Client.Create(ctx, wc); err != nil {
			return fmt.Errorf("create a config: %w", err)
		}
	}
	return nil
}

func dependants(service string) v1alpha1.DependantSelectors {
	return v1alpha1.DependantSelectors{PodSelectors: []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"depends-on": service}}}}
}

// addPods creates pods of which some of each Service's dependents crash-loop, one pod behind each Service, and its slice,
// which isn't ready yet.
func (b *bench) addPods(ctx context.Context) error {
	err := each(ctx, b.size.pods, func(ctx context.Context, i int) error {
		service := serviceName(i % weedServices)
		return b.addPod(ctx, fmt.Sprintf("pod-%d", i), service, i < loopsPerService*weedServices)
	})
	if err != nil {
		return err
	}
	return each(ctx, weedServices+1, func(ctx context.Context, i int) error {
		name := serviceName(i)
		if i == weedServices {
			name = drainService
		}
		return b.addService(ctx, name)
	})
}

func (b *bench) addPod(ctx context.Context, name, service string, loops bool) error {
	controls := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: weedNamespace, Name: name, Labels: map[string]string{"depends-on": service, "app": "bench", "pod-template-hash": "5d8b7c9f6d"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "of-" + service, UID: "bench", Controller: &controls}}},
		Spec: restricted(),
	}
	pods := b.clients.CoreV1().Pods(weedNamespace)
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s: %w", name, err)
	}
	if !loops {
		return nil
	}
	exit := &corev1.ContainerStateTerminated{ExitCode: 1}
	patch, err := json.Marshal(map[string]any{"status": corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "main", RestartCount: 7, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: exit},
	}}}})
	if err != nil {
		return fmt.Errorf("encode a pod's status: %w", err)
	}
	if _, err := pods.Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("bring pod %s into a crash loop: %w", name, err)
	}
	return nil
}

// restricted is what the namespace's Pod Security allows.
func restricted() corev1.PodSpec {
	yes, no := true, false
	return corev1.PodSpec{
		NodeName: "node-0", TerminationGracePeriodSeconds: new(int64),
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "main", Image: "example.com/none", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}
}

func (b *bench) addService(ctx context.Context, name string) error {
	if err := b.addPod(ctx, "behind-"+name, "", false); err != nil {
		return err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: weedNamespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints(name, false),
	}
	if _, err := b.clients.DiscoveryV1().EndpointSlices(weedNamespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create slice %s: %w", name, err)
	}
	return nil
}

func endpoints(service string, ready bool) []discoveryv1.Endpoint {
	return []discoveryv1.Endpoint{{
		Addresses: []string{"10.1.2.3"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: weedNamespace, Name: "behind-" + service},
	}}
}

// recover turns a Service Ready.
func (b *bench) recover(ctx context.Context, service string) error {
	patch, err := json.Marshal(map[string]any{"endpoints": endpoints(service, true)})
	if err != nil {
		return fmt.Errorf("encode a slice: %w", err)
	}
	_, err = b.clients.DiscoveryV1().EndpointSlices(weedNamespace).Patch(ctx, service, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("turn %s Ready: %w", service, err)
	}
	return nil
}

// recoveries turns one Service after the other Ready and measures how long after a bare watch has told of it each DELETE
// reaches the API server.
func (b *bench) recoveries(ctx context.Context) error {
	b.say("weeder: %d recoveries, with %d crash-looping pods each", weedServices, loopsPerService)
	told, stop, err := b.watchReady(ctx)
	if err != nil {
		return err
	}
	defer stop()
	end, err := b.quiet(ctx)
	if err != nil {
		return err
	}
	if err := paced(ctx, weedServices, recoveriesPerSecond, func(ctx context.Context, i int) error { return b.recover(ctx, serviceName(i)) }); err != nil {
		return err
	}
	deletions, err := b.awaitDeletions(ctx, end, weedServices*loopsPerService)
	if err != nil {
		return err
	}
	var delays []time.Duration
	for name, sent := range deletions {
		i, err := strconv.Atoi(strings.TrimPrefix(name, "pod-"))
		if err != nil {
			return fmt.Errorf("pod %s was deleted: %w", name, err)
		}
		delays = append(delays, max(0, sent.Sub(told(serviceName(i%weedServices)))))
	}
	p50, p99 := quantile(delays, .5), quantile(delays, .99)
	b.report.absolute(row{what: fmt.Sprintf("Service Ready on a bare watch → DELETE received, %d pods, p50", b.size.pods), ours: milliseconds(p50)})
	b.report.absolute(row{what: "the same, p99", ours: milliseconds(p99), goal: "< 50 ms", reached: p99 < 50*time.Millisecond})
	return nil
}

// drain lets many pods crash-loop for one Service and measures how fast they go, against a bare loop over as many others.
func (b *bench) drain(ctx context.Context) error {
	b.say("weeder: %d crash-looping pods of one Service", drained)
	fill := func(prefix string) error {
		return each(ctx, drained, func(ctx context.Context, i int) error {
			return b.addPod(ctx, fmt.Sprintf("%s-%d", prefix, i), drainService, true)
		})
	}
	if err := fill("bare"); err != nil {
		return err
	}
	var bare time.Duration
	pods, err := b.clients.CoreV1().Pods(weedNamespace).List(ctx, metav1.ListOptions{LabelSelector: "depends-on=" + drainService})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	if err := b.withoutManager(ctx, func() error {
		began := time.Now()
		err := eachOf(ctx, weedWriters, len(pods.Items), func(ctx context.Context, i int) error { return b.deleteBare(ctx, &pods.Items[i]) })
		bare = time.Since(began)
		return err
	}); err != nil {
		return err
	}
	if err := fill("ours"); err != nil {
		return err
	}
	end, err := b.quiet(ctx)
	if err != nil {
		return err
	}
	before := b.usage()
	began := time.Now()
	if err := b.recover(ctx, drainService); err != nil {
		return err
	}
	deletions, err := b.awaitDeletions(ctx, end, drained)
	if err != nil {
		return err
	}
	var last time.Time
	for _, sent := range deletions {
		if sent.After(last) {
			last = sent
		}
	}
	ours := series{drained / last.Sub(began).Seconds()}
	reference := series{drained / bare.Seconds()}
	b.report.ratio(row{what: fmt.Sprintf("drain: %d crash-looping pods after one recovery, deletions/s", drained), ours: ours.text("%.0f"), reference: reference.text("%.0f"),
		ratio: ours.over(reference), goal: "≥ 0.85", reached: ours.over(reference).median() >= .85})
	b.report.cost("a deletion in the drain", b.usage().since(before), drained)
	return nil
}

// weedWriters is as many as the manager has workers.
const weedWriters = 32

// deleteBare deletes a pod as the manager does, under the same preconditions, with nothing to decide, watch or tell.
func (b *bench) deleteBare(ctx context.Context, pod *corev1.Pod) error {
	same := &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
	if err := b.clients.CoreV1().Pods(weedNamespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: same}); err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return nil
}

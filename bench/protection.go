package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

const (
	// protectedTargets are so many that those that break aren't more than a tenth, which would open the breaker.
	protectedTargets = 300
	breakingTargets  = 25
	// decidesAfter is the failureThreshold.
	decidesAfter    = 3
	protectedPrefix = "protected-"
)

// protection measures how long after the probe that decides the manager's first write of a scale reaches the API server.
func (b *bench) protection(ctx context.Context) error {
	b.say("protection: %d of %d probed targets break, one a second", breakingTargets, protectedTargets)
	servers, err := startBreakable()
	if err != nil {
		return err
	}
	defer servers.stop()
	if err := b.StopComponent(harness.Manager); err != nil {
		return err
	}
	if err := b.StartManager(ctx, "--probe-loopback"); err != nil {
		return err
	}
	if err := b.addProtected(ctx, servers); err != nil {
		return err
	}
	if err := b.awaitProbed(ctx); err != nil {
		return err
	}
	end, err := b.quiet(ctx)
	if err != nil {
		return err
	}
	if err := paced(ctx, breakingTargets, 1, func(_ context.Context, i int) error { servers.breakFor(i); return nil }); err != nil {
		return err
	}
	var writes map[int]auditv1.Event
	if err := wait.PollUntilContextTimeout(ctx, time.Second, time.Minute, false, func(context.Context) (bool, error) {
		writes, err = b.firstScales(end)
		return len(writes) == breakingTargets, err
	}); err != nil {
		return fmt.Errorf("wait until all that broke is scaled down, which %d are: %w", len(writes), err)
	}
	var delays, took []time.Duration
	for i, e := range writes {
		delays = append(delays, max(0, e.RequestReceivedTimestamp.Sub(servers.decidedAt(i))))
		took = append(took, e.StageTimestamp.Sub(e.RequestReceivedTimestamp.Time))
	}
	slowest := quantile(delays, 1)
	b.report.absolute(row{
		what: fmt.Sprintf("the probe that decides answered → first scale received, %d targets, p50 and the slowest of %d", protectedTargets, breakingTargets),
		ours: milliseconds(quantile(delays, .5)) + ", " + milliseconds(slowest), goal: "< 50 ms", reached: slowest < 50*time.Millisecond,
	})
	b.report.absolute(row{what: "for comparison, how long the API server took for these scales", ours: milliseconds(quantile(took, .5)) + ", " + milliseconds(quantile(took, 1))})
	return nil
}

// addProtected makes the targets, each with a Deployment of which nobody makes pods, and the config.
func (b *bench) addProtected(ctx context.Context, servers *breakable) error {
	label := map[string]string{"bench": "protected"}
	if err := each(ctx, protectedTargets, func(ctx context.Context, i int) error {
		namespace := protectedPrefix + strconv.Itoa(i)
		if err := b.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: label}}); err != nil {
			return fmt.Errorf("create a namespace: %w", err)
		}
		for n, name := range []string{"internal", "external"} {
			kubeconfig, err := servers.load.kubeconfig(servers.load.address(n), "target-"+strconv.Itoa(i))
			if err != nil {
				return err
			}
			if err := b.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"kubeconfig": kubeconfig}}); err != nil {
				return fmt.Errorf("create a Secret: %w", err)
			}
		}
		app := map[string]string{"app": "kcm"}
		if err := b.Client.Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kcm"}, Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}},
		}}); err != nil {
			return fmt.Errorf("create a Deployment: %w", err)
		}
		return b.LetProbe(ctx, namespace)
	}); err != nil {
		return err
	}
	if err := b.Client.Create(ctx, &v1alpha1.ProbeConfig{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: "bench"}, Spec: v1alpha1.ProbeConfigSpec{
		InternalKubeConfigSecretName: "internal", ExternalKubeConfigSecretName: "external", NamespaceSelector: &v1alpha1.LabelSelector{MatchLabels: label},
		ProbeInterval: "3s", InitialDelay: "0s", FailureThreshold: ptr.To[int32](decidesAfter),
		DependentResourceInfos: []v1alpha1.DependentResourceInfo{{
			Ref: v1alpha1.DependentRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "kcm"}, ScaleUp: &v1alpha1.ScaleInfo{}, ScaleDown: &v1alpha1.ScaleInfo{},
		}},
	}}); err != nil {
		return fmt.Errorf("create a config: %w", err)
	}
	return nil
}

// awaitProbed waits until all targets are probed.
func (b *bench) awaitProbed(ctx context.Context) error {
	pc := &v1alpha1.ProbeConfig{}
	err := wait.PollUntilContextTimeout(ctx, time.Second, 2*time.Minute, false, func(ctx context.Context) (bool, error) {
		err := b.Client.Get(ctx, client.ObjectKey{Namespace: harness.Namespace, Name: "bench"}, pc)
		return pc.Status.Targets != nil && pc.Status.Targets.Probed == protectedTargets, err
	})
	if err != nil {
		return fmt.Errorf("wait until all targets are probed: %w; conditions %v", err, pc.Status.Conditions)
	}
	return nil
}

// firstScales are the manager's first writes of a scale since then, by target.
func (b *bench) firstScales(since int64) (writes map[int]auditv1.Event, err error) {
	file, err := os.Open(b.AuditLog)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Seek(since, io.SeekStart); err != nil {
		return nil, fmt.Errorf("go on in the audit log: %w", err)
	}
	writes = map[int]auditv1.Event{}
	lines := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return writes, nil
		}
		var event auditv1.Event
		if err := errors.Join(err, json.Unmarshal(line, &event)); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if w, ok := writeOf(&event); !ok || w.subresource != "scale" {
			continue
		}
		i, err := strconv.Atoi(strings.TrimPrefix(event.ObjectRef.Namespace, protectedPrefix))
		if err != nil {
			return nil, fmt.Errorf("something is scaled in namespace %s: %w", event.ObjectRef.Namespace, err)
		}
		if _, known := writes[i]; !known {
			writes[i] = event
		}
	}
}

// breakable are two servers that answer as API servers do. The second breaks for single targets, which it tells apart by their
// tokens.
type breakable struct {
	load    probeLoad
	servers []*http.Server

	mu     sync.Mutex
	failed map[string][]time.Time // needs mu; when it failed a broken target
}

func startBreakable() (*breakable, error) {
	certificate, ca, err := stubCertificate()
	if err != nil {
		return nil, err
	}
	s := &breakable{load: probeLoad{CA: ca}, failed: map[string][]time.Time{}}
	for _, handler := range []http.HandlerFunc{answerVersion, s.answer} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			s.stop()
			return nil, fmt.Errorf("listen for probes: %w", err)
		}
		s.load.Addresses = append(s.load.Addresses, listener.Addr().String())
		s.servers = append(s.servers, serveStub(listener, certificate, handler))
	}
	return s, nil
}

func (s *breakable) stop() {
	for _, server := range s.servers {
		_ = server.Close()
	}
}

func (s *breakable) answer(w http.ResponseWriter, r *http.Request) {
	target := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer target-")
	s.mu.Lock()
	times, broken := s.failed[target]
	if broken {
		s.failed[target] = append(times, time.Now())
	}
	s.mu.Unlock()
	if broken {
		http.Error(w, "broken", http.StatusServiceUnavailable)
		return
	}
	answerVersion(w, r)
}

// breakFor breaks it for a target from now on.
func (s *breakable) breakFor(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[strconv.Itoa(i)] = []time.Time{}
}

// decidedAt is when it answered the probe that made a target unhealthy.
func (s *breakable) decidedAt(i int) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed[strconv.Itoa(i)][decidesAfter-1]
}

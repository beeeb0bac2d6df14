package probeconfig

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/bench/testbed"
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

// Protection measures how long after the probe that decides the manager's first write of a scale reaches the API server.
func (b *Bench) Protection(ctx context.Context) error {
	b.Say("protection: %d of %d probed targets break, one a second", breakingTargets, protectedTargets)
	servers, err := startBreakable()
	if err != nil {
		return err
	}
	defer servers.stop()
	if err := b.RestartManager(ctx, "--probe-loopback"); err != nil {
		return err
	}
	if err := b.addProtected(ctx, servers); err != nil {
		return err
	}
	if err := b.awaitProbed(ctx); err != nil {
		return err
	}
	end, err := b.AwaitNoWrites(ctx)
	if err != nil {
		return err
	}
	if err := testbed.Paced(ctx, breakingTargets, 1, func(_ context.Context, i int) error { servers.breakFor(i); return nil }); err != nil {
		return err
	}
	var scales map[int]testbed.Write
	if err := wait.PollUntilContextTimeout(ctx, time.Second, time.Minute, false, func(context.Context) (bool, error) {
		scales, err = b.firstScales(end)
		return len(scales) == breakingTargets, err
	}); err != nil {
		return fmt.Errorf("wait until all that broke is scaled down, which %d are: %w", len(scales), err)
	}
	var delays, took []time.Duration
	for i, w := range scales {
		delays, took = append(delays, max(0, w.Received.Sub(servers.decidedAt(i)))), append(took, w.Took())
	}
	p50AndSlowest := func(of []time.Duration) string {
		return report.Milliseconds(report.Quantile(of, .5)) + ", " + report.Milliseconds(report.Quantile(of, 1))
	}
	b.Report.Checked(fmt.Sprintf("the probe that decides answered → first scale received, %d targets, p50 and the slowest of %d", protectedTargets, breakingTargets),
		p50AndSlowest(delays), "< 50 ms", report.Quantile(delays, 1) < 50*time.Millisecond)
	b.Report.Value("for comparison, how long the API server took for these scales", p50AndSlowest(took))
	return nil
}

// addProtected makes the targets, each with a Deployment of which nobody makes pods, and the config.
func (b *Bench) addProtected(ctx context.Context, servers *breakable) error {
	label := map[string]string{"bench": "protected"}
	if err := testbed.Each(ctx, protectedTargets, func(ctx context.Context, i int) error {
		namespace := protectedPrefix + strconv.Itoa(i)
		if err := b.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: label}}); err != nil {
			return fmt.Errorf("create a namespace: %w", err)
		}
		for n, name := range []string{"internal", "external"} {
			kubeconfig, err := servers.kubeconfig(n, "target-"+strconv.Itoa(i))
			if err != nil {
				return err
			}
			if err := b.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"kubeconfig": kubeconfig}}); err != nil {
				return fmt.Errorf("create a Secret: %w", err)
			}
		}
		app := map[string]string{"app": "kcm"}
		if err := b.Client.Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kcm"}, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: app},
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
		ProbeInterval: "3s", InitialDelay: "0s", FailureThreshold: new(int32(decidesAfter)),
		DependentResourceInfos: []v1alpha1.DependentResourceInfo{{
			Ref: v1alpha1.DependentRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "kcm"}, ScaleUp: &v1alpha1.ScaleInfo{}, ScaleDown: &v1alpha1.ScaleInfo{},
		}},
	}}); err != nil {
		return fmt.Errorf("create a config: %w", err)
	}
	return nil
}

// awaitProbed waits until all targets are probed.
func (b *Bench) awaitProbed(ctx context.Context) error {
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
func (b *Bench) firstScales(since int64) (map[int]testbed.Write, error) {
	writes, err := b.Writes(since)
	if err != nil {
		return nil, err
	}
	first := map[int]testbed.Write{}
	for _, w := range writes {
		if w.Subresource != "scale" {
			continue
		}
		i, err := strconv.Atoi(strings.TrimPrefix(w.Namespace, protectedPrefix))
		if err != nil {
			return nil, fmt.Errorf("something is scaled in namespace %s: %w", w.Namespace, err)
		}
		if _, known := first[i]; !known {
			first[i] = w
		}
	}
	return first, nil
}

// breakable are two servers, of which the second breaks for single targets. It tells them apart by their tokens.
type breakable struct {
	apiServers
	stop func()

	mu     sync.Mutex
	failed map[string][]time.Time // needs mu; when it failed a broken target
}

func startBreakable() (s *breakable, err error) {
	s = &breakable{failed: map[string][]time.Time{}}
	s.apiServers, s.stop, err = serve(answerVersion, s.answer)
	return s, err
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

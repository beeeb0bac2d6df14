package healthcheckregistration

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/bench/testbed"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

const shootsRegistration = `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: HealthCheckRegistration
metadata: {name: bench-shoots}
spec:
  target: {apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, type: bench-shoots}
  shootKubeconfig: {secretName: gardener}
  checks:
  - {name: system, conditionType: EveryNodeReady, cluster: Shoot, object: {apiVersion: v1, kind: ConfigMap, namespace: "'` + harness.Namespace + `'", name: "'shoot'"}, evaluate: {cel: {healthy: object.data.state == 'Ready'}}}
`

func shootNamespace(i int) string { return fmt.Sprintf("shoot--bench--%d", i) }

// memory reports what targets take of the manager's heap, first without shoots and then what shoots take beside.
func (b *Bench) memory(ctx context.Context, empty int) error {
	full, stacks, err := b.heapAndStacks(ctx)
	if err != nil {
		return err
	}
	perTarget := (full - empty) / max(1, b.Workers)
	b.Report.Checked(fmt.Sprintf("health: memory a target with 3 dependents, on the manager's heap after a collection, with %d", b.Workers),
		report.KiB(perTarget), "≤ 15 KiB", perTarget <= 15<<10)
	shoots, err := b.addShoots(ctx)
	if err != nil {
		return err
	}
	withShoots, stacksWith, err := b.heapAndStacks(ctx)
	if err != nil {
		return err
	}
	n := max(1, b.Shoots)
	b.Report.Value(fmt.Sprintf("health: memory a target with a shoot of its own, of which one object is watched, with %d", b.Shoots),
		fmt.Sprintf("%s (and %s of stacks)", report.KiB((withShoots-full)/n), report.KiB((stacksWith-stacks)/n)))
	if _, err := b.Kubectl(ctx, "delete", "healthcheckregistration", "bench-shoots", "--timeout=2m"); err != nil {
		return err
	}
	_, err = shoots.Await(ctx, "", b.Shoots)
	return err
}

// heapAndStacks are the memory of what is kept, not of what is being looked at.
func (b *Bench) heapAndStacks(ctx context.Context) (heap, stacks int, err error) {
	if err := b.awaitNoRequests(ctx, targetSilence); err != nil {
		return 0, 0, err
	}
	if heap, err = b.Heap(ctx); err != nil {
		return 0, 0, err
	}
	stacks, err = b.Stacks(ctx)
	return heap, stacks, err
}

// addShoots has targets with a shoot each. All shoots are this one control plane, each with a kubeconfig and so a client and
// connections of its own.
func (b *Bench) addShoots(ctx context.Context) (*workers, error) {
	kubeconfig, err := os.ReadFile(b.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	shoot := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shoot"}, Data: map[string]string{"state": "Ready"}}
	if _, err := b.Clients.CoreV1().ConfigMaps(harness.Namespace).Create(ctx, shoot, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create a ConfigMap: %w", err)
	}
	workers, err := b.watchWorkers(ctx, "bench-shoots")
	if err != nil {
		return nil, err
	}
	if err := testbed.Each(ctx, b.Shoots, func(ctx context.Context, i int) error {
		if err := b.addNamespace(ctx, shootNamespace(i)); err != nil {
			return err
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "gardener"}, Data: map[string][]byte{"kubeconfig": kubeconfig}}
		if _, err := b.Clients.CoreV1().Secrets(shootNamespace(i)).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create a Secret: %w", err)
		}
		return workers.addTarget(ctx, shootNamespace(i), workerName(i), "bench-shoots")
	}); err != nil {
		return nil, err
	}
	if _, err := b.register(ctx, shootsRegistration); err != nil {
		return nil, err
	}
	_, err = workers.Await(ctx, health.True, b.Shoots)
	return workers, err
}

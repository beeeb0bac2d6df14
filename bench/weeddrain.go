package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// drained is how many pods crash-loop when the last Service recovers.
const drained = 2000

// weedWriters is how many deletions are asked of the API server at once, as many as the manager does.
const weedWriters = 32

// drainsPerRound make up for how short a drain is: of two, other load of the machine may bend either.
const drainsPerRound = 3

func (b *bench) drainRounds() int { return drainsPerRound * b.size.rounds }

func drainService(round int) string { return fmt.Sprintf("drained-%d", round) }

// drain lets many pods crash-loop for one Service and measures how fast they go, against a bare loop over as many others: one
// while no manager runs, and one while it watches them and has nothing to do. Who comes first changes from round to round.
func (b *bench) drain(ctx context.Context) error {
	b.say("weeder: %d crash-looping pods of one Service, %d rounds", drained, b.drainRounds())
	clients, err := b.asManager(ctx)
	if err != nil {
		return err
	}
	var alone, watched, ours drains
	turns := []func(round int) error{
		func(round int) error { return b.drainOurs(ctx, round, &ours) },
		func(round int) error {
			return b.withoutManager(ctx, func() error { return b.drainBare(ctx, clients, fmt.Sprintf("alone-%d", round), &alone) })
		},
		func(round int) error { return b.drainBare(ctx, clients, fmt.Sprintf("watched-%d", round), &watched) },
	}
	for round := range b.drainRounds() {
		for i := range turns {
			if err := turns[(round+i)%len(turns)](round); err != nil {
				return err
			}
		}
	}
	b.reportDrain(alone, watched, ours)
	return nil
}

func (b *bench) reportDrain(alone, watched, ours drains) {
	ratio := ours.perSecond.over(alone.perSecond)
	b.report.ratio(row{what: fmt.Sprintf("drain: %d crash-looping pods after one recovery, deletions/s, against a bare loop while no manager runs", drained),
		ours: ours.perSecond.text("%.0f"), reference: alone.perSecond.text("%.0f"), ratio: ratio, goal: "≥ 0.85", reached: ratio.median() >= .85})
	b.report.ratio(row{what: "the same against a bare loop while the manager watches the pods", ours: ours.perSecond.text("%.0f"),
		reference: watched.perSecond.text("%.0f"), ratio: ours.perSecond.over(watched.perSecond)})
	n := float64(drained * b.drainRounds())
	b.report.cost("a deletion in the drain, ours", ours.spent, n)
	b.report.cost("the same, bare loop while no manager runs", alone.spent, n)
	b.report.cost("the same, bare loop while the manager watches", watched.spent, n)
}

// drains are rounds of one way to delete.
type drains struct {
	perSecond series
	spent     usage
}

func (d *drains) add(took time.Duration, spent usage) {
	d.perSecond = append(d.perSecond, drained/took.Seconds())
	if d.spent == nil {
		d.spent = usage{}
	}
	d.spent.add(spent)
}

// fillDrain makes pods crash-loop for want of something that isn't Ready, and lets everybody come to rest.
func (b *bench) fillDrain(ctx context.Context, want string) (end int64, err error) {
	if err := each(ctx, drained, func(ctx context.Context, i int) error {
		return b.addPod(ctx, fmt.Sprintf("%s-%d", want, i), want, true)
	}); err != nil {
		return 0, err
	}
	return b.quiet(ctx)
}

// drainBare deletes pods by a loop with the manager's rights that has nothing to decide or tell.
func (b *bench) drainBare(ctx context.Context, clients kubernetes.Interface, want string, into *drains) error {
	if _, err := b.fillDrain(ctx, want); err != nil {
		return err
	}
	pods, err := b.clients.CoreV1().Pods(weedNamespace).List(ctx, metav1.ListOptions{LabelSelector: dependsOn + "=" + want})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	before, began := b.usage(), time.Now()
	if err := eachOf(ctx, weedWriters, len(pods.Items), func(ctx context.Context, i int) error { return deleteBare(ctx, clients, &pods.Items[i]) }); err != nil {
		return err
	}
	into.add(time.Since(began), b.usage().since(before))
	return nil
}

// drainOurs lets the Service recover. The time ends when the API server has answered the last DELETE.
func (b *bench) drainOurs(ctx context.Context, round int, into *drains) error {
	end, err := b.fillDrain(ctx, drainService(round))
	if err != nil {
		return err
	}
	before, began := b.usage(), time.Now()
	if err := b.turn(ctx, drainService(round), true); err != nil {
		return err
	}
	log, err := b.awaitDeletions(ctx, end, drained)
	if err != nil {
		return err
	}
	spent := b.usage().since(before)
	var last time.Time
	for _, d := range log.deletions {
		if d.answered.After(last) {
			last = d.answered
		}
	}
	into.add(last.Sub(began), spent)
	return nil
}

// managerConfig has the manager's rights.
func (b *bench) managerConfig(ctx context.Context) (*rest.Config, error) {
	kubeconfig, err := b.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the manager's kubeconfig: %w", err)
	}
	config.QPS = -1
	return config, nil
}

// asManager is a bare client with the manager's rights.
func (b *bench) asManager(ctx context.Context) (kubernetes.Interface, error) {
	config, err := b.managerConfig(ctx)
	if err != nil {
		return nil, err
	}
	config.ContentType = runtime.ContentTypeProtobuf
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a bare client: %w", err)
	}
	return clients, nil
}

// deleteBare deletes a pod under the same preconditions as the manager does.
func deleteBare(ctx context.Context, clients kubernetes.Interface, pod *corev1.Pod) error {
	same := &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
	if err := clients.CoreV1().Pods(weedNamespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: same}); err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return nil
}

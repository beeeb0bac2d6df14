package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

const (
	sickKey  = "node.stakater.com/KernelDeadlock"
	patience = 3 * time.Minute
)

type tour struct {
	*harness.Harness
	nodes []string
	xds   string // where the manager serves Envoys
}

// walk shows the story.
func (t *tour) walk(ctx context.Context) error {
	for _, step := range []func(context.Context) error{t.refuse, t.accept, t.taint, t.recover, t.weed, t.tell, t.probe, t.envoy, t.leave} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *tour) refuse(ctx context.Context) error {
	say("A dangerous ConditionSet is refused: OutOfDisk: false with NoExecute would evict every healthy node")
	if err := t.show(ctx, "apply", "-f", t.sample("refused", "outofdisk.yaml")); err == nil {
		return fmt.Errorf("the dangerous ConditionSet was accepted")
	}
	return ctx.Err()
}

func (t *tour) accept(ctx context.Context) error {
	say("Two sound ones are accepted, with warnings where they could be gentler")
	for _, file := range []string{"conditionset-1.yaml", "conditionset-2.yaml"} {
		if err := t.show(ctx, "apply", "-f", t.sample(file)); err != nil {
			return err
		}
	}
	if _, err := t.Kubectl(ctx, "wait", "--for=condition=Ready", "--timeout=30s", "conditionset", "--all"); err != nil {
		return err
	}
	return t.show(ctx, "get", "conditionsets")
}

func (t *tour) taint(ctx context.Context) error {
	sick := t.nodes[0]
	say("Node %s reports KernelDeadlock. After one minute (spec.for, by default) it is tainted and its pods are evicted", sick)
	if err := t.show(ctx, t.podsOn(sick)...); err != nil {
		return err
	}
	if err := t.SetCondition(ctx, sick, "KernelDeadlock", corev1.ConditionTrue, cluster.ConditionOptions{Reason: "DockerHung"}); err != nil {
		return err
	}
	if err := t.await(ctx, "the taint", func(n *corev1.Node) bool { return tainted(n) }); err != nil {
		return err
	}
	if err := t.show(ctx, "get", "node", sick, "-o", "jsonpath={.spec.taints}{'\\n'}{.metadata.annotations['autohealer\\.resourcestack\\.com/owned-taints']}{'\\n'}"); err != nil {
		return err
	}
	if err := t.awaitEviction(ctx, sick); err != nil {
		return err
	}
	if err := t.show(ctx, t.podsOn(sick)...); err != nil {
		return err
	}
	return t.show(ctx, "get", "conditionset", "conditionset-2")
}

func (t *tour) recover(ctx context.Context) error {
	sick := t.nodes[0]
	say("The node recovers. After one minute (spec.recoverAfter, by default) the taint goes")
	if err := t.SetCondition(ctx, sick, "KernelDeadlock", corev1.ConditionFalse, cluster.ConditionOptions{Reason: "NoProblem"}); err != nil {
		return err
	}
	if err := t.await(ctx, "the end of the taint", func(n *corev1.Node) bool { return !tainted(n) }); err != nil {
		return err
	}
	return t.show(ctx, "get", "events", "--field-selector=involvedObject.name="+sick, "--sort-by=.metadata.creationTimestamp", "-o",
		"custom-columns=REASON:.reason,MESSAGE:.message")
}

// leave deletes what the tour applied: the pages of the documentation begin with none.
func (t *tour) leave(ctx context.Context) error {
	say("What a policy did is undone when it is deleted. The cluster is as it was")
	if err := t.show(ctx, "delete", "-f", t.sample("conditionset-1.yaml"), "-f", t.sample("conditionset-2.yaml")); err != nil {
		return err
	}
	return t.show(ctx, "delete", "-k", t.sample("tenant"))
}

func tainted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == sickKey })
}

func (t *tour) podsOn(node string) []string {
	return []string{"get", "pods", "--field-selector=spec.nodeName=" + node, "-o", "wide"}
}

func (t *tour) awaitEviction(ctx context.Context, node string) error {
	return t.until(ctx, "the eviction", func() (bool, error) {
		var pods corev1.PodList
		err := t.Client.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node})
		return len(pods.Items) == 0, err
	})
}

func (t *tour) await(ctx context.Context, what string, holds func(*corev1.Node) bool) error {
	return t.until(ctx, what, func() (bool, error) {
		var node corev1.Node
		err := t.Client.Get(ctx, types.NamespacedName{Name: t.nodes[0]}, &node)
		return holds(&node), err
	})
}

// until looks every 250 ms and says how long it took.
func (t *tour) until(ctx context.Context, what string, done func() (bool, error)) error {
	fmt.Printf("waiting for %s …", what)
	began := time.Now()
	for time.Since(began) < patience {
		ok, err := done()
		if err != nil {
			return err
		}
		if ok {
			fmt.Printf(" after %s\n", time.Since(began).Round(100*time.Millisecond))
			return nil
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s didn't come within %s; see %s", what, patience, t.Log(harness.Manager))
}

// show runs kubectl as a user would, and prints the command and all that it says.
func (t *tour) show(ctx context.Context, args ...string) error {
	typed := make([]string, 0, len(args))
	for _, arg := range args {
		if strings.ContainsAny(arg, "'{} ") { // as a shell wants it; none of ours has both kinds of quotes
			arg = `"` + arg + `"`
		}
		typed = append(typed, arg)
	}
	fmt.Printf("$ kubectl %s\n", strings.Join(typed, " "))
	return t.KubectlTo(ctx, os.Stdout, args...)
}

// showAll shows one command after the other.
func (t *tour) showAll(ctx context.Context, all ...[]string) error {
	for _, args := range all {
		if err := t.show(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// here is a file of the tour's own.
func (t *tour) here(name string) string {
	return fromHere(filepath.Join(t.Root(), "hack", "playground", name))
}

func (t *tour) sample(path ...string) string {
	return fromHere(filepath.Join(append([]string{t.Root(), "config", "samples"}, path...)...))
}

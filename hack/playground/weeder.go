package main

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Labels that kwok's pods obey.
const (
	crash   = "autohealer.test/crash"
	unready = "autohealer.test/unready"
)

// dependents are the pods that need Service database in config/samples/tenant.
var dependents = client.MatchingLabels{"app": "shop"}

// weed shows what a WeederConfig does.
func (t *tour) weed(ctx context.Context) error {
	say("A tenant's WeederConfig acts with the rights of an account in its namespace")
	if err := t.show(ctx, "apply", "-f", t.sample("tenant", "account.yaml")); err != nil {
		return err
	}
	if err := t.awaitRights(ctx, "system:serviceaccount:default:weeder", authorizationv1.ResourceAttributes{Namespace: "default", Verb: "delete", Resource: "pods"}); err != nil {
		return err
	}
	say("Service database goes down, and the shop's pods crash-loop for want of it (kwok obeys these labels)")
	if err := t.showAll(ctx,
		[]string{"label", "pods", "-l", "app=database", unready + "=true"},
		[]string{"label", "pods", "-l", "app=shop", crash + "=true"},
	); err != nil {
		return err
	}
	before, err := t.awaitCrashes(ctx)
	if err != nil {
		return err
	}
	if err := t.showAll(ctx,
		[]string{"get", "pods", "-l", "app=shop"},
		[]string{"apply", "-f", t.sample("tenant", "weederconfig.yaml")},
		[]string{"wait", "--for=condition=Ready", "--timeout=30s", "weederconfig/shop"},
		[]string{"autohealer", "plan", "-f", t.sample("tenant", "weederconfig.yaml")},
	); err != nil {
		return err
	}
	say("The database recovers. The pods that crash-loop are deleted now, not when the kubelet's back-off ends")
	if err := t.show(ctx, "label", "pods", "-l", "app=database", unready+"-"); err != nil {
		return err
	}
	if err := t.awaitReplacements(ctx, before); err != nil {
		return err
	}
	return t.showAll(ctx,
		[]string{"get", "pods", "-l", "app=shop"},
		[]string{"get", "weederconfigs"},
		[]string{"get", "events", "--field-selector=reason=PodDeleted,involvedObject.kind=ReplicaSet", "-o", "custom-columns=REASON:.reason,MESSAGE:.message"},
	)
}

// awaitRights waits until the API server has read the account's new role: a policy that comes before is refused.
func (t *tour) awaitRights(ctx context.Context, user string, to authorizationv1.ResourceAttributes) error {
	return t.until(ctx, "its rights", func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &to}}
		err := t.Client.Create(ctx, review)
		return review.Status.Allowed, err
	})
}

// awaitCrashes gives the dependents once all of them crash-loop.
func (t *tour) awaitCrashes(ctx context.Context) (before map[types.UID]bool, err error) {
	err = t.until(ctx, "the crash loops", func() (bool, error) {
		var pods corev1.PodList
		err := t.Client.List(ctx, &pods, dependents)
		before = map[types.UID]bool{}
		for _, pod := range pods.Items {
			for _, c := range pod.Status.ContainerStatuses {
				if c.State.Waiting != nil {
					before[pod.UID] = true
				}
			}
		}
		return len(before) > 0 && len(before) == len(pods.Items), err
	})
	return before, err
}

// awaitReplacements waits until others are Ready in the place of all of those.
func (t *tour) awaitReplacements(ctx context.Context, before map[types.UID]bool) error {
	return t.until(ctx, fmt.Sprintf("%d new pods that are ready", len(before)), func() (bool, error) {
		var pods corev1.PodList
		err := t.Client.List(ctx, &pods, dependents)
		ready := 0
		for _, pod := range pods.Items {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && !before[pod.UID] {
					ready++
				}
			}
		}
		return ready == len(before), err
	})
}

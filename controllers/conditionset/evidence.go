package conditionset

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
)

// ownPods selects Autohealer's own pods in its namespace.
var ownPods = client.MatchingLabels{"app.kubernetes.io/name": "autohealer"}

// evidence reads which pods of a node it, or its healing, can't do without.
func (r *NodeReconciler) evidence(ctx context.Context, node string) (*condition.Evidence, error) {
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("list the pods of node %s before evicting them: %w", node, err)
	}
	e := &condition.Evidence{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if role := ecosystem.SystemRole(&pod.ObjectMeta, &pod.Spec); role != "" && pod.DeletionTimestamp == nil && !finished(pod) {
			e.SystemPods = append(e.SystemPods, systemPod(pod, role))
		}
	}
	last, err := r.lastOfOurs(ctx, node)
	if err != nil {
		return nil, err
	}
	e.SystemPods = append(e.SystemPods, last...)
	return e, nil
}

// lastOfOurs gives Autohealer's ready pods when all of them run on this node.
func (r *NodeReconciler) lastOfOurs(ctx context.Context, node string) ([]ecosystem.SystemPod, error) {
	if r.OwnNamespace == "" {
		return nil, nil
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(r.OwnNamespace), ownPods); err != nil {
		return nil, fmt.Errorf("list Autohealer's own pods before evicting from node %s: %w", node, err)
	}
	var here []ecosystem.SystemPod
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !ready(pod) {
			continue
		}
		if pod.Spec.NodeName != node && !r.Observer.Facts.Fleet.Evicting(pod.Spec.NodeName) {
			return nil, nil
		}
		if pod.Spec.NodeName != node {
			continue // it is about to go, too
		}
		here = append(here, systemPod(pod, "last ready pod of Autohealer"))
	}
	return here, nil
}

func systemPod(pod *corev1.Pod, role string) ecosystem.SystemPod {
	return ecosystem.SystemPod{Namespace: pod.Namespace, Name: pod.Name, Role: role, Tolerations: pod.Spec.Tolerations}
}

// finished pods aren't evicted; a Failed one may lie on its node for ever.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

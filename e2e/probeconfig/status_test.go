package probeconfig

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

func (s shoot) condition(ctx context.Context, conditionType string) (metav1.ConditionStatus, error) {
	return conditionOf(ctx, &v1alpha1.ProbeConfig{ObjectMeta: named(s.namespace, "prober")}, conditionType)
}

func conditionOf(ctx context.Context, pc *v1alpha1.ProbeConfig, conditionType string) (metav1.ConditionStatus, error) {
	if err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
		return "", err
	}
	if c := meta.FindStatusCondition(pc.Status.Conditions, conditionType); c != nil {
		return c.Status, nil
	}
	return "", nil
}

// tells gives for a failure what the status says of the target.
func (s shoot) tells(ctx context.Context) func() string {
	return func() string {
		pc := s.prober("prober")
		if err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
			return s.namespace + ": " + err.Error()
		}
		status, err := yaml.Marshal(pc.Status)
		if err != nil {
			return s.namespace + ": " + err.Error()
		}
		return s.namespace + ":\n" + string(status)
	}
}

// errors in a row of the external probe, as the status tells.
func (s shoot) errors(ctx context.Context) (int32, error) {
	pc := s.prober("prober")
	if err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil || pc.Status.External == nil {
		return 0, err
	}
	return pc.Status.External.ErrorCount, nil
}

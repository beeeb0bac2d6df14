package snapshot

import (
	"context"
	"iter"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/kube"
)

// Synced says whether the snapshot has the objects of a kind.
func (s *Snapshot) Synced(_ context.Context, kind string) bool { return s.policies()[kind] != nil }

// Get gives a stored policy, nil when there is none.
func (s *Snapshot) Get(_ context.Context, kind, namespace, name string) (client.Object, error) {
	for object := range s.each(kind) {
		if object.GetNamespace() == namespace && object.GetName() == name {
			return object, nil
		}
	}
	return nil, nil
}

// All are the stored policies of a kind, in the order of their names.
func (s *Snapshot) All(_ context.Context, kind string) (iter.Seq[client.Object], error) {
	return slices.Values(slices.SortedFunc(s.each(kind), kube.ByName)), nil
}

func (s *Snapshot) each(kind string) iter.Seq[client.Object] {
	if each := s.policies()[kind]; each != nil {
		return each
	}
	return func(func(client.Object) bool) {}
}

// policies are the kinds that the snapshot has.
func (s *Snapshot) policies() map[string]iter.Seq[client.Object] {
	return map[string]iter.Seq[client.Object]{
		"ConditionSet":            pointers(s.ConditionSets),
		"Guardrail":               pointers(s.Guardrails),
		"GuardrailException":      pointers(s.GuardrailExceptions),
		"WeederConfig":            pointers(s.WeederConfigs),
		"ProbeConfig":             pointers(s.ProbeConfigs),
		"OutlierPolicy":           pointers(s.OutlierPolicies),
		"HealthCheckRegistration": pointers(s.HealthCheckRegistrations),
	}
}

func pointers[T any, P interface {
	*T
	client.Object
}](list []T) iter.Seq[client.Object] {
	return func(yield func(client.Object) bool) {
		for i := range list {
			if !yield(P(&list[i])) {
				return
			}
		}
	}
}

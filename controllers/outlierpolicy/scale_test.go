package outlierpolicy

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/guard"
)

// confirmed is a live check that finds everything as it was admitted.
type confirmed struct{}

func (confirmed) Check(context.Context, schema.GroupVersionKind, types.NamespacedName, types.UID, int64) error {
	return nil
}

// BenchmarkOneEdit is what the manager does of itself when one policy of a Service among 10,000 is edited.
func BenchmarkOneEdit(b *testing.B) {
	p, _ := newTestPublisher(b, nil)
	p.Clusters.Current = confirmed{}
	var services []*corev1.Service
	for i := range 10000 {
		svc := service("web", 8080).DeepCopy()
		svc.Namespace, svc.Name = fmt.Sprintf("team-%03d", i%100), fmt.Sprintf("service-%05d", i)
		services = append(services, svc)
	}
	world := hosts("10.0.0.1", services...)
	def := stored(systemNamespace, outlier.DefaultName, 9)
	edited := stored("team-000", "edited", 1, target("service-00000", ""))
	publish := func() {
		pic := &picture{policies: map[types.NamespacedName]*standing{}, services: map[string][]*corev1.Service{}, seen: map[types.NamespacedName]bool{}}
		var policies []*outlier.Policy
		for _, op := range []*v1alpha1.OutlierPolicy{def, edited} {
			read, err := outlier.NewPolicy(op)
			if err != nil {
				b.Fatal(err)
			}
			admitted, _ := guard.Admit(b.Context(), p.Guard, op)
			pic.policies[client.ObjectKeyFromObject(op)] = &standing{generation: op.Generation, reading: reading{policy: read}, admitted: admitted}
			policies = append(policies, read)
		}
		pic.index = outlier.NewIndex(policies, nil, systemNamespace)
		told, _, err := p.tell(b.Context(), pic, p.translate(pic, world))
		if err != nil || len(told) != 10000 {
			b.Fatal(len(told), err)
		}
		p.remember(protocols(told))
		p.told = p.withMissing(told)
		p.show(pic)
	}
	publish()
	b.ReportAllocs()
	for b.Loop() {
		edited.Generation++
		publish()
	}
}

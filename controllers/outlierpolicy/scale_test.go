package outlierpolicy

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/kube"
)

// confirmed is a live check that finds everything as it was admitted.
type confirmed struct{}

func (confirmed) CheckAll(context.Context, schema.GroupVersionKind, []kube.Admission) map[types.UID]error {
	return nil
}

// BenchmarkOneEdit is what the manager does of itself when one policy of a Service among 10,000 is edited, from its judgement on.
func BenchmarkOneEdit(b *testing.B) {
	p, _ := newTestPublisher(b, nil)
	store := &objectStore{}
	p.Clusters.Current, p.Informers = confirmed{}, store.followed(b.Context(), b)
	p.Guard.SetGuardrails(nil)
	ctx, stop := context.WithCancel(b.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- p.Clusters.Server.Start(ctx) }()
	defer func() {
		stop()
		if err := <-stopped; err != nil {
			b.Error(err)
		}
	}()
	for i := range 10000 {
		svc := service(fmt.Sprintf("service-%05d", i), 8080)
		svc.Namespace = fmt.Sprintf("team-%03d", i%100)
		store.set(svc)
		store.set(sliceOf(svc, "10.0.0.1", "10.0.0.2", "10.0.0.3"))
	}
	judge := func(namespace, name string, generation int64) {
		op := stored(namespace, name, 1)
		if name != outlier.DefaultName {
			op = stored(namespace, name, 1, target("service-00000", ""))
		}
		op.Generation = generation
		store.set(op)
		p.onPolicy(b.Context(), op)
		p.policies.Judge(b.Context(), client.ObjectKeyFromObject(op))
	}
	publish := func() {
		if _, err := p.publish(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	judge(systemNamespace, outlier.DefaultName, 1)
	judge("team-000", "edited", 1)
	publish()
	b.ReportAllocs()
	generation := int64(1)
	for b.Loop() {
		generation++
		judge("team-000", "edited", generation)
		publish()
		if s := p.snapshot().policies[types.NamespacedName{Namespace: "team-000", Name: "edited"}]; s.generation != generation || len(s.clusters) != 1 {
			b.Fatalf("it stands at generation %d with %d clusters", s.generation, len(s.clusters))
		}
	}
}

package outlierpolicy

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

// publisherOf is a publisher of a store that changes, and of which Envoys may have had clusters before.
func publisherOf(t *testing.T, before ...string) (*Publisher, *testclock.FakeClock, *objectStore) {
	t.Helper()
	rules, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rules.SetGuardrails(nil)
	store := &objectStore{}
	p, now := publisherWith(t, rules, store)
	p.Informers, p.Clusters.Current = store.followed(t.Context(), t), confirmed{}
	p.addServed(anyProtocol(t, before...))
	return p, now, store
}

// confirmDeletions has the objects read that are missing.
func confirmDeletions(t *testing.T, p *Publisher) {
	t.Helper()
	for range p.confirmer.queue.Len() {
		o, _ := p.confirmer.queue.Get()
		p.confirmer.read(t.Context(), o)
		p.confirmer.queue.Done(o)
	}
}

// TestAServiceThatBecomesExternalNameKeepsItsCluster: its pods' addresses may be others' soon, and a cluster goes only with its Service.
func TestAServiceThatBecomesExternalNameKeepsItsCluster(t *testing.T) {
	g := NewWithT(t)
	p, _, store := publisherOf(t)
	svc, op := service("web", 80), stored("shop", "a", 1, target("web", ""))
	for _, o := range []client.Object{svc, op, sliceOf(svc, "10.0.0.1")} {
		store.set(o)
	}
	p.onPolicy(t.Context(), op)
	p.policies.Judge(t.Context(), client.ObjectKeyFromObject(op))
	_, err := p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(flat(p)).To(HaveKeyWithValue("shop/web/80", And(ContainSubstring("detects true"), ContainSubstring("10.0.0.1"))))

	external := svc.DeepCopy()
	external.Spec.Type, external.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
	store.set(external)
	store.set(sliceOf(svc))
	p.onObject(external)
	_, err = p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(flat(p)).To(HaveKeyWithValue("shop/web/80", And(ContainSubstring("no policy"), HaveSuffix("hosts []"))))
	g.Expect(p.missingObjects(p.snapshot())).To(BeEmpty())
	g.Expect(p.snapshot().clusters["shop"][client.ObjectKeyFromObject(op)]).To(BeNil())
}

// TestAClusterGoesWithItsRoute and stays gone, though its Service is there: the record would have it served again.
func TestAClusterGoesWithItsRoute(t *testing.T) {
	g := NewWithT(t)
	p, _, store := publisherOf(t, "shop/web/80@httproute/checkout")
	svc := service("web", 80)
	store.set(svc)
	store.set(sliceOf(svc, "10.0.0.1"))
	publish := func() {
		_, err := p.publish(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
	}
	publish()
	g.Expect(flat(p)).To(HaveKey("shop/web/80@httproute/checkout"))
	confirmDeletions(t, p)
	publish()
	g.Expect(p.served).To(BeEmpty())
	publish()
	g.Expect(flat(p)).To(BeEmpty())
}

// TestAClusterThatEnvoysMayHaveDoesNotWaitForItsPolicy: to an Envoy of the state of the world it would be gone until then.
func TestAClusterThatEnvoysMayHaveDoesNotWaitForItsPolicy(t *testing.T) {
	g := NewWithT(t)
	p, _, store := publisherOf(t, "shop/web/80")
	_, err := p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.missingObjects(p.snapshot())).To(HaveLen(1))

	svc, op := service("web", 80, 81), stored("shop", "a", 1, target("web", ""))
	store.set(op)
	p.onPolicy(t.Context(), op)
	store.set(svc)
	p.onObject(svc)
	_, err = p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(flat(p)).To(And(HaveLen(1), HaveKeyWithValue("shop/web/80", ContainSubstring("detects false"))), "81 waits")
	p.policies.Judge(t.Context(), client.ObjectKeyFromObject(op))
	_, err = p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(flat(p)).To(And(HaveLen(2), HaveKeyWithValue("shop/web/80", ContainSubstring("detects true"))))
}

// TestWhatNobodyConfirmsIsServedAfterAMinute: an Envoy without hosts is worse than one that detects nothing.
func TestWhatNobodyConfirmsIsServedAfterAMinute(t *testing.T) {
	g := NewWithT(t)
	p, now, store := publisherOf(t)
	doubtful := "a"
	p.Clusters.Current = unsure{&doubtful}
	record := &memory{keys: anyProtocol(t)}
	p.Record = record
	svc, op := service("web", 80), stored("shop", "a", 1, target("web", ""))
	for _, o := range []client.Object{svc, op, sliceOf(svc, "10.0.0.1")} {
		store.set(o)
	}
	p.onPolicy(t.Context(), op)
	p.policies.Judge(t.Context(), client.ObjectKeyFromObject(op))
	_, err := p.publish(t.Context())
	g.Expect(err).To(MatchError(ContainSubstring("the API server is busy")))
	now.Step(startupTimeout - time.Second)
	_, err = p.publish(t.Context())
	g.Expect(err).To(HaveOccurred(), "not yet a minute")
	now.Step(time.Second)
	again, err := p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(Equal(retryAfter))
	g.Expect(flat(p)).To(HaveKeyWithValue("shop/web/80", And(ContainSubstring("detects false"), ContainSubstring("10.0.0.1"))))
	g.Expect(p.writeRecord(t.Context())).To(Succeed())
	g.Expect(record.keys).To(HaveLen(1), "Envoys have it")
	g.Expect(p.snapshot().clusters["shop"][client.ObjectKeyFromObject(op)].holds[0].unconfirmed).To(HaveOccurred(), "the status tells")
	doubtful = ""
	_, err = p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(flat(p)).To(HaveKeyWithValue("shop/web/80", ContainSubstring("detects true")))
}

func TestIncrementalTranslationsDontDelayTheFullOne(t *testing.T) {
	g := NewWithT(t)
	p, now, _ := publisherOf(t)
	again, err := p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.nextDelay(again)).To(Equal(fullInterval))
	now.Step(fullInterval - time.Second)
	p.stale.add("shop")
	again, err = p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.snapshot().onlyNamespaces).To(HaveLen(1))
	g.Expect(p.nextDelay(again)).To(Equal(time.Second))
	now.Step(time.Hour)
	g.Expect(p.nextDelay(again)).To(Equal(minInterval), "a translation that took long has the full one come next, and not never")
}

func TestWhatChangesAtOnceIsTranslatedTogether(t *testing.T) {
	g := NewWithT(t)
	p, now := newTestPublisher(t, nil)
	store := &objectStore{}
	p.Clusters.Current, p.Informers = confirmed{}, store.followed(t.Context(), t)
	p.Guard.SetGuardrails(nil)
	idle := now.Waiters()
	go p.publishLoop(t.Context())
	g.Eventually(p.snapshot, "5s", "1ms").ShouldNot(BeNil(), "the first goes at once")
	last := p.snapshot()
	for round := range 20 {
		for range 20 {
			p.translation.fire()
		}
		g.Eventually(func() int { return len(p.translation) }, "5s", "1ms").Should(Equal(1))
		g.Consistently(p.snapshot, "5ms", "1ms").Should(BeIdenticalTo(last), "it waits")
		g.Eventually(now.Waiters, "5s", "1ms").Should(Equal(idle+2+round), "for this, and for when nothing changes, of which those of earlier rounds aren't taken back")
		now.Step(minInterval)
		g.Eventually(p.snapshot, "5s", "1ms").ShouldNot(BeIdenticalTo(last))
		last = p.snapshot()
	}
}

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
		key := types.NamespacedName{Namespace: "team-000", Name: "edited"}
		s, of := p.snapshot().policies[key], p.snapshot().clusters["team-000"][key]
		if s.generation != generation || len(of.holds) != 1 {
			b.Fatalf("it is of generation %d with %d clusters", s.generation, len(of.holds))
		}
	}
}

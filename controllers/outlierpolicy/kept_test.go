package outlierpolicy

import (
	"maps"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/guard"
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
	p.addServed(maps.All(anyProtocol(t, before...)))
	return p, now, store
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
	g.Expect(p.snapshot().policies[client.ObjectKeyFromObject(op)].clusters).To(BeEmpty())
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
	for range p.confirmer.queue.Len() {
		o, _ := p.confirmer.queue.Get()
		p.confirmer.read(t.Context(), o)
		p.confirmer.queue.Done(o)
	}
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
	g.Expect(p.snapshot().policies[client.ObjectKeyFromObject(op)].clusters[0].unconfirmed).To(HaveOccurred(), "the status tells")
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
}

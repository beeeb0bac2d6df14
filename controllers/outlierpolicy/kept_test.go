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
func kept(t *testing.T, before ...string) (*Publisher, *testclock.FakeClock, *objects) {
	t.Helper()
	rules, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rules.SetGuardrails(nil)
	world := &objects{}
	p, now := publisherBy(t, rules, world)
	p.Routed, p.Clusters.Current = world.followed(t.Context(), t), confirmed{}
	p.remember(maps.All(anyProtocol(t, before...)))
	return p, now, world
}

// TestAServiceThatBecomesANameElsewhereKeepsItsCluster: its pods' addresses may be others' soon, and a cluster goes only with its Service.
func TestAServiceThatBecomesANameElsewhereKeepsItsCluster(t *testing.T) {
	g := NewWithT(t)
	p, _, world := kept(t)
	svc, op := service("web", 80), stored("shop", "a", 1, target("web", ""))
	for _, o := range []client.Object{svc, op, sliceOf(svc, "10.0.0.1")} {
		world.put(o)
	}
	p.policy(t.Context(), op)
	p.policies.Judge(t.Context(), client.ObjectKeyFromObject(op))
	_, err := p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(flat(p)).To(HaveKeyWithValue("shop/web/80", And(ContainSubstring("detects true"), ContainSubstring("10.0.0.1"))))

	elsewhere := svc.DeepCopy()
	elsewhere.Spec.Type, elsewhere.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
	world.put(elsewhere)
	world.put(sliceOf(svc))
	p.routed(elsewhere)
	_, err = p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(flat(p)).To(HaveKeyWithValue("shop/web/80", And(ContainSubstring("no policy"), HaveSuffix("hosts []"))))
	g.Expect(p.missing(p.picture())).To(BeEmpty())
	g.Expect(p.picture().policies[client.ObjectKeyFromObject(op)].clusters).To(BeEmpty())
}

// TestAClusterGoesWithItsRoute and stays gone, though its Service is there: the record would have it served again.
func TestAClusterGoesWithItsRoute(t *testing.T) {
	g := NewWithT(t)
	p, _, world := kept(t, "shop/web/80@httproute/checkout")
	svc := service("web", 80)
	world.put(svc)
	world.put(sliceOf(svc, "10.0.0.1"))
	publish := func() {
		_, err := p.publish(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
	}
	publish()
	g.Expect(flat(p)).To(HaveKey("shop/web/80@httproute/checkout"))
	for range p.absences.queue.Len() {
		o, _ := p.absences.queue.Get()
		p.absences.ask(t.Context(), o)
		p.absences.queue.Done(o)
	}
	publish()
	g.Expect(p.served).To(BeEmpty())
	publish()
	g.Expect(flat(p)).To(BeEmpty())
}

// TestAClusterThatEnvoysMayHaveDoesNotWaitForItsPolicy: to an Envoy of the state of the world it would be gone until then.
func TestAClusterThatEnvoysMayHaveDoesNotWaitForItsPolicy(t *testing.T) {
	g := NewWithT(t)
	p, _, world := kept(t, "shop/web/80")
	_, err := p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.missing(p.picture())).To(HaveLen(1))

	svc, op := service("web", 80, 81), stored("shop", "a", 1, target("web", ""))
	world.put(op)
	p.policy(t.Context(), op)
	world.put(svc)
	p.routed(svc)
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
	p, now, world := kept(t)
	doubtful := "a"
	p.Clusters.Current = unsure{&doubtful}
	record := &memory{keys: anyProtocol(t)}
	p.Record = record
	svc, op := service("web", 80), stored("shop", "a", 1, target("web", ""))
	for _, o := range []client.Object{svc, op, sliceOf(svc, "10.0.0.1")} {
		world.put(o)
	}
	p.policy(t.Context(), op)
	p.policies.Judge(t.Context(), client.ObjectKeyFromObject(op))
	_, err := p.publish(t.Context())
	g.Expect(err).To(MatchError(ContainSubstring("the API server is busy")))
	now.Step(patience - time.Second)
	_, err = p.publish(t.Context())
	g.Expect(err).To(HaveOccurred(), "not yet a minute")
	now.Step(time.Second)
	again, err := p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(Equal(lookAgain))
	g.Expect(flat(p)).To(HaveKeyWithValue("shop/web/80", And(ContainSubstring("detects false"), ContainSubstring("10.0.0.1"))))
	g.Expect(p.record(t.Context())).To(Succeed())
	g.Expect(record.keys).To(HaveLen(1), "Envoys have it")
	g.Expect(p.picture().policies[client.ObjectKeyFromObject(op)].clusters[0].doubt).To(HaveOccurred(), "the status tells")
	doubtful = ""
	_, err = p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(flat(p)).To(HaveKeyWithValue("shop/web/80", ContainSubstring("detects true")))
}

func TestWhatIsTranslatedInBetweenPutsNothingOff(t *testing.T) {
	g := NewWithT(t)
	p, now, _ := kept(t)
	again, err := p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.pause(again)).To(Equal(atLeast))
	now.Step(atLeast - time.Second)
	p.stale.add("shop")
	again, err = p.publish(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.picture().only).To(HaveLen(1))
	g.Expect(p.pause(again)).To(Equal(time.Second))
}

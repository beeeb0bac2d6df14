package probeconfig

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/oracle"
)

// settled is longer than a target must be healthy before it is scaled up, and than its turn may take to come then, also where
// API servers, their controllers and the manager share two busy processors. Nothing is waited for as long unless it is broken.
const settled = 5 * time.Minute

// specTime is for a spec that waits for several things one after the other.
const specTime = 2 * settled

// A target has to be healthy for a minute before anything is scaled up. So all specs share two such minutes: one passes
// before the manager is killed and one after, and what else is to be seen is looked at meanwhile.
var _ = Describe("dependents are scaled", Ordered, ContinueOnFailure, func() {
	s := &story{}
	BeforeAll(s.begin, NodeTimeout(specTime))

	s.scaleDown()
	s.breakTogether()
	s.leaveAlone()
	s.followNamespaces()
	s.askRights()
	s.strip()
	s.killHalfway()
	s.scaleUp()
})

// bystanders are probed and never fail. Tenants together may have as many targets down as are probed: where configs are being deleted
// none are any more, and what these scaled down still counts. Without bystanders the last that falls may find no place.
const bystanders = 8

// story is what the specs tell.
type story struct {
	began time.Time
	gate  *gate
	wave  *wave
	// rail caps how many targets are scaled down.
	rail *v1alpha1.Guardrail
	// mended is when the wave could recover.
	mended time.Time
	// broken is scaled down and up again. Nothing is scaled where the way from inside is cut, or both, or one comes and goes.
	broken, inside, cutOff, flapping shoot
	// powerless has an account that loses its right to scale. The config of stripped goes without giving anything back.
	powerless, stripped shoot
	halfway
}

func (s *story) begin(ctx SpecContext) {
	underOracle(ctx, s.lateByItself)
	s.began = time.Now()
	s.gate = throughGate(ctx)
	s.rail = capTargets(ctx, noCap) // but where a spec says otherwise
	s.wave = newWave(ctx)
	plain := newShoots(ctx, 6+bystanders)
	s.broken, s.inside, s.cutOff, s.flapping, s.powerless, s.stripped = plain[0], plain[1], plain[2], plain[3], plain[4], plain[5]
	s.halfway = newHalfway(ctx)
	atOnce(append(plain, s.all()...), func(one shoot) {
		one.deploy(ctx, "kcm", 2)
		one.deploy(ctx, "mcm", 1)
		one.deploy(ctx, "idle", 0)
		one.state(ctx, "ca", 1)
		pc := one.prober("prober", dependent("kcm", 0, 1), dependent("mcm", 0, 1), dependent("idle", 0, 1), dependentOf("apps/v1", "StatefulSet", "ca", 1, 0))
		pc.Spec.ProbeInterval, pc.Spec.ProbeTimeout = "4s", "3900ms" // one failure begins the minute anew
		if one == s.flapping {
			pc.Spec.FailureThreshold = ptr.To[int32](8) // the status, by which the spec goes, may be late
		}
		Eventually(func(ctx context.Context) error { return h.Client.Create(ctx, pc.DeepCopy()) }).WithContext(ctx).Should(Succeed(), "once the account may")
		Eventually(one.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionTrue), "the way from outside works")
	})
}

// What all of them had, and what is left of it.
var (
	had  = map[string]int32{"kcm": 2, "mcm": 1, "idle": 0, "ca": 1}
	none = map[string]int32{"kcm": 0, "mcm": 0, "idle": 0, "ca": 0}
)

// scaledByOthers is a Deployment of the broken target.
const scaledByOthers = "mcm"

func (s *story) scaleDown() {
	It("to 0 when only the way from outside is cut: those of a level at once, and one level after the other", func(ctx SpecContext) {
		s.gate.meet(s.broken.namespace, 2)
		cut(s.broken.external)
		Eventually(s.broken.replicas).WithContext(ctx).Should(Equal(none))
		Expect(s.gate.met(s.broken.namespace)).To(ConsistOf("kcm", "mcm"), "each waited for the other")
		writes := s.broken.written(ctx, 3)
		Expect(writes[:2]).To(ConsistOf("kcm 0", "mcm 0"))
		Expect(writes[2:]).To(Equal([]string{"ca 0"}), "what was at 0 already isn't touched")
		Eventually(s.broken.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionProtectionActive).Should(Equal(metav1.ConditionTrue))
	}, SpecTimeout(specTime))

	It("to 0 in many targets that fail", func(ctx SpecContext) {
		s.takeDown(ctx)
		scaleTo(ctx, s.broken, scaledByOthers, 5)
		mend(s.broken.external)
		s.letRise(s.gate)
		s.loseRight(ctx)
	}, SpecTimeout(specTime))
}

func (s *story) leaveAlone() {
	It("not at all when the way from inside is cut, or both are, or when it comes and goes", func(ctx SpecContext) {
		cut(s.inside.internal)
		cut(s.cutOff.internal, s.cutOff.external)
		Eventually(s.inside.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionInternalHealthy).Should(Equal(metav1.ConditionFalse))
		Eventually(s.cutOff.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionInternalHealthy).Should(Equal(metav1.ConditionFalse))
		for range 3 { // each time it fails once at least, and never often enough in a row
			cut(s.flapping.external)
			Eventually(s.flapping.errors).WithContext(ctx).Should(BeNumerically(">", 0))
			mend(s.flapping.external)
			Eventually(s.flapping.errors).WithContext(ctx).Should(BeZero())
		}
		for _, one := range []shoot{s.inside, s.cutOff, s.flapping} {
			Expect(one.replicas(ctx)).To(Equal(had))
			Expect(one.scalings(ctx)).To(BeEmpty())
		}
		mend(s.inside.internal, s.cutOff.internal, s.cutOff.external)
	}, SpecTimeout(specTime))
}

// backOff: an API server that doesn't answer inside is left alone for a while.
func backOff() {
	It("not while the way from inside is cut, of which nothing comes but that it is asked more seldom", func(ctx SpecContext) {
		one := newShoot(ctx)
		one.deploy(ctx, "kcm", 2)
		pc := one.prober("prober", dependent("kcm", 0, 0))
		pc.Spec.InternalProbeFailureBackoffDuration = "5s"
		one.start(ctx, pc)
		cut(one.internal)
		Eventually(one.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionInternalHealthy).Should(Equal(metav1.ConditionFalse))
		told := one.internal.Accepted()
		Eventually(one.internal.Accepted).WithContext(ctx).Should(BeNumerically(">=", told+2))
		asked := one.internal.AcceptedAt()[told-1:] // from the run that made it unhealthy, or one after it
		// A connection may come late, and the next one in time.
		for i := range asked[1:] {
			Expect(asked[i+1].Sub(asked[i])).To(BeNumerically(">=", 4*time.Second))
		}
		Expect(one.sides(ctx)).To(HaveField("External.ErrorCount", BeZero()))
		Expect(one.scalings(ctx)).To(BeEmpty())
		mend(one.internal)
		Eventually(one.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionInternalHealthy).Should(Equal(metav1.ConditionTrue))
	}, SpecTimeout(specTime))
}

// strip deletes a config with its finalizer, while the manager can't write anything there.
func (s *story) strip() {
	It("as a config leaves it that someone strips of its finalizer", func(ctx SpecContext) {
		cut(s.stripped.external)
		Eventually(s.stripped.replicas).WithContext(ctx).Should(Equal(none))
		s.gate.shutAfter(s.stripped.namespace, 0)
		pc := s.stripped.prober("prober")
		Expect(h.Client.Delete(ctx, pc)).To(Succeed())
		Expect(h.Client.Patch(ctx, pc, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		Expect(h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc)).To(MatchError(apierrors.IsNotFound, "not found"))
		Expect(s.stripped.replicas(ctx)).To(Equal(none))
	}, SpecTimeout(specTime))
}

// lateByItself: what a config took that was stripped of its finalizer is given back when it was seen to be gone for a minute.
// Here no write gets through for a while, either; nor for those that return, until the manager that was killed has a successor.
func (s *story) lateByItself(v oracle.Violation) bool {
	return v.Invariant == oracle.Undone && slices.ContainsFunc(append(shootsOf(s.returning), s.stripped), func(one shoot) bool {
		return strings.Contains(v.Object, "/"+one.namespace+"/")
	})
}

// expectGivenBack: all is as it was, although no config tells of it.
func (s shoot) expectGivenBack(ctx context.Context) {
	GinkgoHelper()
	Eventually(s.replicas).WithContext(ctx).Should(Equal(had), s.namespace)
	Eventually(s.records).WithContext(ctx).Should(BeEmpty(), s.namespace)
}

func (s *story) scaleUp() {
	It("back to what they had a minute after it recovers, ten targets a minute, and nothing else is", func(ctx SpecContext) {
		had := maps.Clone(had)
		had["mcm"] = 5
		Eventually(s.broken.replicas).WithContext(ctx).Should(Equal(had), "what someone else scaled meanwhile is left alone")
		writes := s.broken.written(ctx, 5)
		Expect(writes[3:]).To(Equal([]string{"ca 1", "kcm 2"}), "in the order of scaleUp")
		Eventually(s.wave.down).WithContext(ctx).Should(BeZero())
		s.expectRisen(ctx)
		s.expectEmpowered(ctx)
		s.stripped.expectGivenBack(ctx)
		s.expectPaced()
		for _, one := range []shoot{s.inside, s.cutOff, s.flapping} {
			Expect(one.scalings(ctx)).To(BeEmpty())
		}
	}, SpecTimeout(specTime))
}

func scaleTo(ctx context.Context, s shoot, deployment string, replicas int) {
	GinkgoHelper()
	Expect(h.Client.Patch(ctx, &appsv1.Deployment{ObjectMeta: named(s.namespace, deployment)},
		client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)))).To(Succeed())
}

// cut breaks ways for good, open connections included; mend lets new ones through.
func cut(ways ...*faultproxy.Proxy) {
	for _, p := range ways {
		p.BreakNew(faultproxy.Reset)
		p.BreakOpen(faultproxy.Reset)
	}
}

func mend(ways ...*faultproxy.Proxy) {
	for _, p := range ways {
		p.BreakNew(faultproxy.None)
	}
}

// state makes a StatefulSet.
func (s shoot) state(ctx context.Context, name string, replicas int32) {
	GinkgoHelper()
	Expect(h.Client.Create(ctx, &appsv1.StatefulSet{ObjectMeta: named(s.namespace, name), Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: selector(name), Template: template(name), ServiceName: name,
	}})).To(Succeed())
}

// replicas that are asked for, by name.
func (s shoot) replicas(ctx context.Context) (map[string]int32, error) {
	all := map[string]int32{}
	err := s.each(ctx, func(name string, replicas int32, _ map[string]string) { all[name] = replicas })
	return all, err
}

// records are the replicas that records of ours tell, by name.
func (s shoot) records(ctx context.Context) (map[string]int32, error) {
	all := map[string]int32{}
	err := s.each(ctx, func(name string, _ int32, annotations map[string]string) {
		var record struct{ Replicas int32 }
		if json.Unmarshal([]byte(annotations["autohealer.resourcestack.com/original-replicas"]), &record) == nil {
			all[name] = record.Replicas
		}
	})
	return all, err
}

func (s shoot) each(ctx context.Context, do func(name string, replicas int32, annotations map[string]string)) error {
	var deployments appsv1.DeploymentList
	if err := h.Client.List(ctx, &deployments, client.InNamespace(s.namespace)); err != nil {
		return err
	}
	for _, d := range deployments.Items {
		do(d.Name, *d.Spec.Replicas, d.Annotations)
	}
	var sets appsv1.StatefulSetList
	if err := h.Client.List(ctx, &sets, client.InNamespace(s.namespace)); err != nil {
		return err
	}
	for _, set := range sets.Items {
		do(set.Name, *set.Spec.Replicas, set.Annotations)
	}
	return nil
}

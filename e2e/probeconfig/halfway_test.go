package probeconfig

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// To scale a target down or up takes six writes, a record and a scale for each of three objects; to delete its config takes
// one more, of the finalizer. There is a target for each number of writes after which the manager may die: it lets them go
// so far, and it dies once for all of them. The last of each kind needs no second manager.
var (
	fallUntil, fallDeleted = []int{0, 1, 2, 3, 4, 5, 6}, []int{1, 3, 5}
	riseUntil, riseDeleted = []int{0, 1, 2, 3, 4, 5, 6}, []int{2, 4}
	returnUntil            = []int{0, 1, 2, 3, 4, 5, 6, 7}
)

// halfway are targets that are half-way somewhere when the manager dies.
type halfway struct {
	// falling are scaled down, rising up. Of some the config is deleted while there is no manager.
	falling, fallingDeleted, rising, risingDeleted []stopped
	// returning are given back, since their config is deleted.
	returning []stopped
	// killed is when the manager was, and restarted when there was one again.
	killed, restarted time.Time
}

// stopped is a target that stops after so many writes.
type stopped struct {
	shoot
	after int
}

func newHalfway(ctx context.Context) halfway {
	GinkgoHelper()
	all := newShoots(ctx, len(slices.Concat(fallUntil, fallDeleted, riseUntil, riseDeleted, returnUntil)))
	next := func(until []int) (group []stopped) {
		for _, after := range until {
			group = append(group, stopped{all[0], after})
			all = all[1:]
		}
		return group
	}
	return halfway{
		falling: next(fallUntil), fallingDeleted: next(fallDeleted), rising: next(riseUntil), risingDeleted: next(riseDeleted), returning: next(returnUntil),
	}
}

func shootsOf(groups ...[]stopped) (all []shoot) {
	for _, s := range slices.Concat(groups...) {
		all = append(all, s.shoot)
	}
	return all
}

func (hw *halfway) all() []shoot {
	return shootsOf(hw.falling, hw.fallingDeleted, hw.rising, hw.risingDeleted, hw.returning)
}

// withdrawn are those whose config is deleted.
func (hw *halfway) withdrawn() []shoot {
	return shootsOf(hw.fallingDeleted, hw.risingDeleted, hw.returning)
}

// takeDown scales those down that are to go up again.
func (hw *halfway) takeDown(ctx context.Context) {
	GinkgoHelper()
	down := shootsOf(hw.rising, hw.risingDeleted, hw.returning)
	for _, one := range down {
		cut(one.external)
	}
	for _, one := range down {
		Eventually(one.replicas).WithContext(ctx).Should(Equal(none), one.tells(ctx))
	}
}

// letRise mends them but for those that are to return from where they are. When their minute is over they go up as far as
// they may; they are as many as may begin in a minute, with one more.
func (hw *halfway) letRise(g *gate) {
	for _, one := range slices.Concat(hw.rising, hw.risingDeleted) {
		g.shutAfter(one.namespace, one.after)
	}
	for _, one := range shootsOf(hw.rising, hw.risingDeleted) {
		mend(one.external)
	}
}

func (s *story) killHalfway() {
	It("as far as they come when the manager is killed, whatever it wrote last", func(ctx SpecContext) {
		s.expectStopped(ctx, s.rising, riseUntil)
		s.expectStopped(ctx, s.risingDeleted, nil)

		By("letting others fall, and others return")
		for _, one := range slices.Concat(s.falling, s.fallingDeleted) {
			s.gate.shutAfter(one.namespace, one.after)
			cut(one.external)
		}
		for _, one := range s.returning {
			s.gate.shutAfter(one.namespace, one.after)
			Expect(h.Client.Delete(ctx, one.prober("prober"))).To(Succeed())
		}
		s.expectStopped(ctx, s.falling, fallUntil)
		s.expectStopped(ctx, s.fallingDeleted, nil)
		s.expectStopped(ctx, s.returning, returnUntil)
		Eventually(s.wave.said.all).Should(ContainElement(MatchRegexp("waiting to be scaled: [1-9]")),
			"the wave comes after the ten targets that may begin in a minute")

		By("killing the manager")
		Expect(h.Kill(harness.Manager, syscall.SIGKILL)).To(Succeed())
		s.killed = time.Now()
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
	}, SpecTimeout(specTime))

	It("and then by the next manager, to the end; or back, where the config was deleted meanwhile", func(ctx SpecContext) {
		for _, one := range slices.Concat(s.fallingDeleted, s.risingDeleted) {
			Expect(h.Client.Delete(ctx, one.prober("prober"))).To(Succeed())
		}
		s.gate.open()
		Expect(h.StartComponent(ctx, harness.Manager)).To(Succeed())
		s.restarted = time.Now()
		for _, one := range s.falling {
			Eventually(one.replicas).WithContext(ctx).Should(Equal(none), one.String())
			Expect(one.records(ctx)).To(Equal(map[string]int32{"kcm": 2, "mcm": 1, "ca": 1}), one.String())
		}
		for _, one := range s.withdrawn() {
			one.expectReleased(ctx, had)
		}
	}, SpecTimeout(specTime))

	It("back at once when the config is deleted", func(ctx SpecContext) {
		for _, one := range s.falling {
			Expect(h.Client.Delete(ctx, one.prober("prober"))).To(Succeed())
		}
		for _, one := range s.falling {
			one.expectReleased(ctx, had)
			Expect(one.scalings(ctx)).To(HaveLen(6), "each object is scaled once down and once up: %s", strings.Join(one.scalings(ctx), ", "))
		}
	}, SpecTimeout(specTime))
}

// expectStopped waits until the targets have had their writes and want more, but for the one that needs no more than until
// has at last.
func (s *story) expectStopped(ctx context.Context, group []stopped, until []int) {
	GinkgoHelper()
	for _, one := range group {
		if len(until) > 0 && one.after == until[len(until)-1] {
			Eventually(s.gate.used).WithContext(ctx).WithArguments(one.namespace).Should(BeTrue(), "all writes of %s", one)
			Expect(s.gate.wants(one.namespace)).To(BeEmpty(), "%s should need no more", one)
			continue
		}
		Eventually(s.gate.holds).WithContext(ctx).WithArguments(one.namespace).Should(BeTrue(), one.String())
	}
}

// expectRisen: those that went up have what they had, and no write was for anything else.
func (s *story) expectRisen(ctx context.Context) {
	GinkgoHelper()
	for _, one := range s.rising {
		Eventually(one.replicas).WithContext(ctx).Should(Equal(had), one.String())
		Eventually(one.records).WithContext(ctx).Should(BeEmpty(), one.String())
		writes := one.written(ctx, 6)
		Expect(writes[:2]).To(ConsistOf("kcm 0", "mcm 0"), one.String())
		Expect(writes[2:4]).To(Equal([]string{"ca 0", "ca 1"}), one.String())
		Expect(writes[4:]).To(ConsistOf("kcm 2", "mcm 1"), one.String())
	}
}

// expectReleased: the config is gone, everything is back, and nothing tells of it any more.
func (s shoot) expectReleased(ctx context.Context, had map[string]int32) {
	GinkgoHelper()
	Eventually(s.replicas).WithContext(ctx).Should(Equal(had), s.namespace)
	Eventually(s.records).WithContext(ctx).Should(BeEmpty(), s.namespace)
	Eventually(func(ctx context.Context) error {
		_, err := s.condition(ctx, "Ready")
		return err
	}).WithContext(ctx).Should(MatchError(apierrors.IsNotFound, "not found"), s.namespace)
}

// String names a target and where it stops.
func (s stopped) String() string { return s.namespace }

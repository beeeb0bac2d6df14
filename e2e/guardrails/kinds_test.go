package guardrails

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/internal/guard"
)

const tenants = "tenants"

// tenancy is a namespace whose account may do what WeederConfigs and ProbeConfigs need.
func tenancy(ctx context.Context) {
	GinkgoHelper()
	Expect(w.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenants}})).To(Succeed())
	Expect(w.Client.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenants, Name: "all"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenants, Name: "default"}},
	})).To(Succeed())
	Expect(w.LetProbe(ctx, tenants)).To(Succeed())
}

func newWeeder(name string) *v1alpha1.WeederConfig {
	return &v1alpha1.WeederConfig{ObjectMeta: metav1.ObjectMeta{Namespace: tenants, Name: name}, Spec: v1alpha1.WeederConfigSpec{
		ServicesAndDependantSelectors: map[string]v1alpha1.DependantSelectors{"none": {PodSelectors: []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"app": name}}}}},
	}}
}

// newProber names Secrets that aren't there, so that nothing is probed.
func newProber(name string) *v1alpha1.ProbeConfig {
	return &v1alpha1.ProbeConfig{ObjectMeta: metav1.ObjectMeta{Namespace: tenants, Name: name}, Spec: v1alpha1.ProbeConfigSpec{
		InternalKubeConfigSecretName: "in", ExternalKubeConfigSecretName: "out",
		DependentResourceInfos: []v1alpha1.DependentResourceInfo{{
			Ref: v1alpha1.DependentRef{APIVersion: "apps/v1", Kind: "Deployment", Name: name}, ScaleUp: &v1alpha1.ScaleInfo{}, ScaleDown: &v1alpha1.ScaleInfo{},
		}},
	}}
}

// accepted gives a policy's condition Accepted.
func accepted(ctx context.Context, policy client.Object) func() (string, error) {
	return func() (string, error) {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return "", err
		}
		switch p := policy.(type) {
		case *v1alpha1.WeederConfig:
			return says(p, p.Status.Conditions, "Accepted"), nil
		case *v1alpha1.ProbeConfig:
			return says(p, p.Status.Conditions, "Accepted"), nil
		}
		return "", fmt.Errorf("a %T", policy)
	}
}

// revisions of policies: each new status is a new one.
func revisions(ctx context.Context, policies ...client.Object) func() []string {
	return func() []string {
		GinkgoHelper()
		var all []string
		for _, p := range policies {
			Expect(w.Client.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			all = append(all, fmt.Sprintf("%T %s@%s", p, p.GetName(), p.GetResourceVersion()))
		}
		return all
	}
}

// resting waits until no status is due any more.
func resting(ctx context.Context, policies ...client.Object) []string {
	GinkgoHelper()
	var last []string
	Eventually(func() bool {
		was := last
		last = revisions(ctx, policies...)()
		return fmt.Sprint(was) == fmt.Sprint(last)
	}).WithPolling(1500 * time.Millisecond).Should(BeTrue())
	return last
}

var _ = Describe("WeederConfigs and ProbeConfigs", Ordered, func() {
	weeders := []*v1alpha1.WeederConfig{newWeeder("a"), newWeeder("b")}
	probers := []*v1alpha1.ProbeConfig{newProber("a"), newProber("b")}
	var set *v1alpha1.ConditionSet

	BeforeAll(func(ctx SpecContext) {
		tenancy(ctx)
		for _, policy := range []client.Object{weeders[0], weeders[1], probers[0], probers[1]} {
			Expect(w.Client.Create(ctx, policy)).To(Succeed())
			Eventually(accepted(ctx, policy)).Should(HavePrefix("True Admitted"))
		}
		set = w.Create(ctx, fixture.NewSet("bystander", w.Key("bystander"), repel, "BystanderBroken"))
	})
	AfterAll(func(ctx SpecContext) {
		for _, policy := range []client.Object{weeders[0], weeders[1], probers[0], probers[1]} {
			Expect(w.Client.Delete(ctx, policy)).To(Succeed())
		}
	})

	of := func(kind, expression string) string {
		return fmt.Sprintf("{rules: [{name: r, kinds: [%s], exceptable: true, expression: %q}]}", kind, expression)
	}

	It("follow a rule within a second, and no status of another kind is written", func(ctx SpecContext) {
		before := resting(ctx, probers[0], probers[1], set)
		store(ctx, newRail("weeding", of("WeederConfig", "object.metadata.name != 'a'")))
		Eventually(accepted(ctx, weeders[0]), soon).Should(HavePrefix("False RuleViolated: weeding/r"))
		Expect(accepted(ctx, weeders[1])()).To(HavePrefix("True Admitted"))
		Consistently(revisions(ctx, probers[0], probers[1], set), "1s").Should(Equal(before))
		drop(ctx, "weeding")
		Eventually(accepted(ctx, weeders[0]), soon).Should(HavePrefix("True Admitted"))

		before = resting(ctx, weeders[0], weeders[1], set)
		store(ctx, newRail("probing", of("ProbeConfig", "object.metadata.name != 'b'")))
		Eventually(accepted(ctx, probers[1]), soon).Should(HavePrefix("False RuleViolated: probing/r"))
		Expect(accepted(ctx, probers[0])()).To(HavePrefix("True Admitted"))
		Consistently(revisions(ctx, weeders[0], weeders[1], set), "1s").Should(Equal(before))
		drop(ctx, "probing")
		Eventually(accepted(ctx, probers[1]), soon).Should(HavePrefix("True Admitted"))
	})

	It("follow an exception within a second, and no status but its target's is written", func(ctx SpecContext) {
		for kind, c := range map[string]struct {
			target client.Object
			others []client.Object
		}{
			"WeederConfig": {weeders[0], []client.Object{weeders[1], probers[0], probers[1], set}},
			"ProbeConfig":  {probers[0], []client.Object{probers[1], weeders[0], weeders[1], set}},
		} {
			put(ctx, "strict", of(kind, "object.metadata.name != 'a'"))
			Eventually(accepted(ctx, c.target), soon).Should(HavePrefix("False RuleViolated: strict/r"))
			hash, err := guard.SpecHash(c.target)
			Expect(err).NotTo(HaveOccurred())
			before := resting(ctx, c.others...)
			x := &v1alpha1.GuardrailException{ObjectMeta: metav1.ObjectMeta{Name: "for-a"}, Spec: v1alpha1.GuardrailExceptionSpec{
				RuleIDs: []string{"strict/r"}, TargetRef: v1alpha1.ExceptionTarget{Kind: kind, Namespace: tenants, Name: "a"}, SpecHash: hash,
				Reason: "end-to-end test, nobody is woken", ExpiresAt: v1alpha1.Timestamp(time.Now().Add(time.Hour).UTC().Format(time.RFC3339)),
			}}
			Expect(w.Client.Create(ctx, x)).To(Succeed())
			Eventually(accepted(ctx, c.target), soon).Should(And(HavePrefix("True Admitted"), ContainSubstring("GuardrailException for-a lifts strict/r")))
			Expect(w.Client.Delete(ctx, x)).To(Succeed())
			Eventually(accepted(ctx, c.target), soon).Should(HavePrefix("False RuleViolated: strict/r"))
			Consistently(revisions(ctx, c.others...), "1s").Should(Equal(before), kind)
			drop(ctx, "strict")
			Eventually(accepted(ctx, c.target), soon).Should(HavePrefix("True Admitted"))
		}
	})

	It("follow a limit that a rule reads within a second, and no status of another kind is written", func(ctx SpecContext) {
		put(ctx, "slow", of("WeederConfig", "limits.maxPodDeletionsPerMinute > 5 || object.metadata.name != 'b'"))
		before := resting(ctx, probers[0], probers[1], set)
		put(ctx, "few", "{limits: {maxPodDeletionsPerMinute: 5}}")
		Eventually(accepted(ctx, weeders[1]), soon).Should(HavePrefix("False RuleViolated: slow/r"))
		Expect(accepted(ctx, weeders[0])()).To(HavePrefix("True Admitted"))
		drop(ctx, "few")
		Eventually(accepted(ctx, weeders[1]), soon).Should(HavePrefix("True Admitted"))
		Consistently(revisions(ctx, probers[0], probers[1], set), "1s").Should(Equal(before))
	})
})

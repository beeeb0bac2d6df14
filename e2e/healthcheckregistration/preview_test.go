package healthcheckregistration

import (
	"context"
	"fmt"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// heard takes the API server's warnings.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (w *heard) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, text)
}

// tryOut asks what would come of a registration, and creates nothing.
func tryOut(ctx context.Context, name, spec string) (warnings []string, err error) {
	GinkgoHelper()
	warned := &heard{}
	config := rest.CopyConfig(h.Config)
	config.WarningHandler = warned
	c, err := client.New(config, client.Options{Scheme: h.Client.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	hcr := &v1alpha1.HealthCheckRegistration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(yaml.UnmarshalStrict([]byte(spec), &hcr.Spec)).To(Succeed())
	err = c.Create(ctx, hcr, client.DryRunAll)
	return warned.lines, err
}

func warns(rule, text string) OmegaMatcher {
	return ContainElement(SatisfyAll(HavePrefix("healthcheckregistration/"+rule), ContainSubstring(text)))
}

var _ = Describe("what a registration would do", func() {
	It("is said at admission, by the targets that there are", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		putTarget(ctx, gadget, namespace)
		spec := about(gadget, namespace, "checks: ["+checkOf("Dialled", "dial")+"]")
		Expect(tryOut(ctx, namespace, spec)).To(BeEmpty(), "all would be True")

		By("something that is down")
		setPhase(ctx, namespace, "dial", "Down")
		Expect(tryOut(ctx, namespace, spec)).To(warns("would-fail", "would set 1 of 1 targets False: "+namespace+"/w: Dialled (0/1) Health checks successful: 1) dial: it is Down"))

		By("one mistake that reaches everyone")
		for i := range 4 {
			apply(ctx, "{apiVersion: example.org/v1, kind: Gadget, metadata: {namespace: %s, name: g%d}, spec: {type: %s}}", namespace, i, namespace)
		}
		Expect(tryOut(ctx, namespace, spec)).To(warns("would-fail", "would set 5 of 5 targets False: "))

		By("an expression that can only fail")
		Expect(tryOut(ctx, namespace, strings.Replace(spec, "failed: object.data.phase == 'Down'", "failed: object.data.color == 'red'", 1))).To(
			warns("would-be-unknown", "would set 5 of 5 targets Unknown: "+namespace+"/"))

		By("kinds that aren't served, may not be read, or take no conditions")
		Expect(tryOut(ctx, namespace, about(gadget, namespace, `checks:
- {name: a, conditionType: A, object: {apiVersion: v1, kind: PersistentVolumeClaim, name: "'p'"}, evaluate: {builtin: {}}}
- {name: b, conditionType: B, object: {apiVersion: nobody.example.org/v1, kind: Nothing, name: "'p'"}, evaluate: {status: {}}}
- {name: c, conditionType: C, object: {apiVersion: v1, kind: ConfigMap, name: "'dial'"}, evaluate: {status: {}}}`))).To(SatisfyAll(
			warns("unknown-kind", "the API server knows no Nothing of nobody.example.org/v1"),
			warns("unreadable-kind", "persistentvolumeclaims"),
			warns("statusless", "always say healthy: c (ConfigMap has no conditions)"),
		))
		apply(ctx, "{apiVersion: example.org/v1, kind: Passing, metadata: {namespace: %s, name: p}, spec: {type: %s}}", namespace, namespace)
		Expect(tryOut(ctx, namespace, strings.Replace(spec, "Gadget", "Passing", 1))).To(warns("unwritable", "Passing takes no conditions: the kind has no status subresource"))
	}, NodeTimeout(specTime))

	It("is refused where an expression can only fail by the types of what it reads", func(ctx SpecContext) {
		namespace := place(ctx)
		judging := func(object, evaluate string) string {
			return about(gadget, namespace, "checks: [{name: a, conditionType: A, object: {"+object+"}, evaluate: {cel: {"+evaluate+"}}}]")
		}
		const (
			deployment = `apiVersion: apps/v1, kind: Deployment, name: "'d'"`
			worker     = `apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, name: "'w'"`
			unserved   = `apiVersion: nobody.example.org/v1, kind: Nothing, name: "'n'"`
		)
		for _, c := range []struct{ object, evaluate, refused string }{
			{deployment, "healthy: object.status.readyReplicas == '3'", "healthcheckregistration/type-error: an expression can only fail, by the types of the fields that it reads: check a: cel.healthy: == can't be applied to (int, string); convert one of them"},
			{deployment, "healthy: object.spec.replicas", "check a: cel.healthy: it gives int, not bool"},
			{deployment, "healthy: object.spec.replicas > 0, message: object.metadata.name + object.spec.replicas", "check a: cel.message: + can't be applied to (string, int)"},
			{worker, `healthy: "object.status.conditions.all(c, c.status)"`, "check a: cel.healthy: a string is where a bool must be"},
			{unserved, "healthy: object.spec.x == 1, message: object.metadata.generation", "healthcheckregistration/readable: check a: cel.message: it gives int, not string"},
		} {
			_, err := tryOut(ctx, namespace, judging(c.object, c.evaluate))
			Expect(err).To(MatchError(ContainSubstring(c.refused)), c.evaluate)
		}
		Expect(tryOut(ctx, namespace, judging(deployment, `healthy: "object.status.readyReplicas >= object.spec.replicas && object.spec.strategy.rollingUpdate.maxSurge == '25%' && object.spec.template.spec.containers[0].resources.limits.cpu == '1'"`))).
			NotTo(ContainElement(SatisfyAny(ContainSubstring("type-error"), ContainSubstring("undefined-field"))))

		By("a field that is in no schema, which may come")
		Expect(tryOut(ctx, namespace, judging(deployment, "healthy: has(object.status.ready) && object.status.ready || target.status.phase == 'Up'"))).To(SatisfyAll(
			warns("undefined-field", "check a: cel.healthy: apps/v1 Deployment.status has no field ready"),
			warns("undefined-field", "example.org/v1 Gadget.status has no field phase"),
		))
		Expect(tryOut(ctx, namespace, judging(unserved, "healthy: object.status.ready == 3"))).NotTo(ContainElement(ContainSubstring("undefined-field")))
	}, NodeTimeout(specTime))

	It("is refused where it would fight over a condition", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		target := putTarget(ctx, gadget, namespace)
		entry := map[string]any{"type": "Dialled", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
		target.Object["status"] = map[string]any{"conditions": []any{entry}}
		Expect(h.Client.Status().Update(ctx, target)).To(Succeed())
		foreign := about(gadget, namespace, "checks: ["+checkOf("Dialled", "dial")+"]")
		_, err := tryOut(ctx, namespace, foreign)
		Expect(err).To(MatchError(ContainSubstring("healthcheckregistration/foreign-condition: somebody else wrote conditions of this type already, and they are never touched: Dialled of " + namespace + "/w")))
		Expect(tryOut(ctx, namespace, "mode: Observe\n"+foreign)).To(warns("foreign-condition", "Dialled of "+namespace+"/w"), "it writes nothing")

		By("with itself")
		ring := about(gadget, namespace, `checks: [{name: other, conditionType: Other, object: {apiVersion: example.org/v1, kind: Gadget, name: "'w'"}, evaluate: {status: {}}}]`)
		_, err = tryOut(ctx, namespace, ring)
		Expect(err).To(MatchError(ContainSubstring("healthcheckregistration/cycle: conditions would depend on themselves: Gadget → Gadget")))

		By("with another in another shape")
		register(ctx, namespace, "output: Conditions\n"+about(gadget, namespace, "checks: ["+checkOf("Told", "dial")+"]"))
		Eventually(func() error {
			_, err := tryOut(ctx, namespace+"-2", "output: Gardener\n"+about(gadget, namespace, "checks: ["+checkOf("Told", "dial")+"]"))
			return err
		}).Should(MatchError(ContainSubstring(fmt.Sprintf("healthcheckregistration/other-shape: another registration writes the same condition to the same kind in another shape: Told (%s: Conditions)", namespace))))
	}, NodeTimeout(specTime))
})

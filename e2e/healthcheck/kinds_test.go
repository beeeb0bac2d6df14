package healthcheck

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/resourcestack/autohealer/pkg/healthcheck"
)

// definition of a kind of example.org with a schema of its status, and what else its version has.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: %[2]s, listKind: %[2]sList, plural: %[1]s, singular: %[1]s}
  versions: [{name: v1, served: true, storage: true, %[3]s schema: {openAPIV3Schema: {type: object, properties: {status: {type: object, %[4]s}}}}}]
`

// define makes such a kind, with one object w in a namespace.
func define(ctx context.Context, namespace, kind, more, status string) schema.GroupVersionKind {
	put(ctx, seedClient, "", definition, strings.ToLower(kind), kind, more, status)
	_, err := seed.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", strings.ToLower(kind)+".example.org")
	Expect(err).NotTo(HaveOccurred())
	put(ctx, seedClient, namespace, "apiVersion: example.org/v1\nkind: %s\nmetadata: {name: w}", kind)
	return schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: kind}
}

// errorsOf counts the looks of a controller that ended with an error.
func errorsOf(controller string) func() float64 {
	return func() (n float64) {
		families, err := metrics.Registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "controller_runtime_reconcile_errors_total" && m.GetLabel()[0].GetValue() == controller {
					n += m.GetCounter().GetValue()
				}
			}
		}
		return n
	}
}

var _ = Describe("kinds that take less than Gardener's", func() {
	It("gives an error for those that take no conditions, and writes without codes where the schema has none", func(ctx SpecContext) {
		namespace := place(ctx)
		const status, conditions = "subresources: {status: {}},", "properties: {conditions: {type: array, items: {type: object, properties: " +
			"{type: {type: string}, status: {type: string}, reason: {type: string}, message: {type: string}}}}}"
		statusless := define(ctx, namespace, "Statusless", "", conditions)
		conditionless := define(ctx, namespace, "Conditionless", status, "properties: {phase: {type: string}}")
		codeless := define(ctx, namespace, "Codeless", status, conditions)
		check := newDial("False")
		for _, kind := range []schema.GroupVersionKind{statusless, conditionless} {
			run(healthcheck.For(kind).Check("X", "dial", check.new))
			Eventually(errorsOf("healthcheck-"+strings.ToLower(kind.Kind)+".example.org")).Should(BeNumerically(">", 1), kind.Kind)
		}

		p := run(healthcheck.For(codeless, healthcheck.WithSyncPeriod(5*time.Second)).Check("X", "dial", check.new))
		c := condition(ctx, codeless, namespace, "X")
		Eventually(c).Should(SatisfyAll(is("False", "HealthCheckUnsuccessful", ""), Not(HaveKey("codes"))))
		Consistently(p.writes.Load, 12*time.Second).Should(BeEquivalentTo(1))
		Expect(errorsOf("healthcheck-codeless.example.org")()).To(BeZero())
	}, NodeTimeout(2*time.Minute))
})

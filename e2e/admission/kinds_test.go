package admission

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/internal/guard"
)

// specimen is what holds for every kind is shown with: specs as YAML flow mappings.
type specimen struct {
	kind, resource, namespace string
	// doubtful is admitted with warnings; the policy refuses portable, and the webhook too; factual is for the webhook alone.
	doubtful, portable, factual string
	// changed is portable, and as bad, in other words.
	changed string
}

var specimens = []specimen{
	{
		kind: "ConditionSet", resource: "conditionsets",
		doubtful: `{type: Kinds, effect: NoSchedule, taintKey: example.com/kinds, conditions: {NobodyReportsThis: {status: true}}}`,
		portable: `{type: Kinds, effect: NoSchedule, taintKey: karpenter.sh/kinds, conditions: {KernelDeadlock: {status: true}}}`,
		changed:  `{type: Kinds, effect: NoSchedule, taintKey: karpenter.sh/others, conditions: {KernelDeadlock: {status: true}}}`,
		factual:  `{type: Kinds, effect: NoSchedule, taintKey: example.com/kinds, nodeSelector: {matchLabels: {zone: "a b"}}, conditions: {KernelDeadlock: {status: true}}}`,
	},
	{
		kind: "WeederConfig", resource: "weederconfigs", namespace: harness.Namespace,
		doubtful: `{servicesAndDependantSelectors: {nobody-runs-this: {podSelectors: [{matchLabels: {app: a}}]}}}`,
		portable: `{servicesAndDependantSelectors: {etcd: {podSelectors: [{matchExpressions: [{key: app, operator: DoesNotExist}]}]}}}`,
		changed:  `{servicesAndDependantSelectors: {etcd: {podSelectors: [{matchExpressions: [{key: role, operator: DoesNotExist}]}]}}}`,
		factual:  `{servicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: "a b"}}]}}}`,
	},
	{
		kind: "ProbeConfig", resource: "probeconfigs", namespace: harness.Namespace,
		doubtful: probes("apps/v1", "kcm", "failureThreshold: 1"),
		portable: probes("apps/v1", "kube-apiserver", "mode: Enforce"),
		changed:  probes("apps/v1", "etcd-main", "mode: Enforce"),
		factual:  probes("a/b/c", "kcm", "mode: Enforce"),
	},
	{
		kind: "OutlierPolicy", resource: "outlierpolicies", namespace: harness.Namespace,
		doubtful: `{targetRefs: [{group: "", kind: Service, name: nobody-runs-this}], outlierDetection: {consecutiveServerErrors: 5}}`,
		portable: `{targetRefs: [{group: "", kind: Service, name: a}], outlierDetection: {consecutiveServerErrors: 1, maxEjectionPercent: 50}}`,
		changed:  `{targetRefs: [{group: "", kind: Service, name: a}], outlierDetection: {consecutiveServerErrors: 1, maxEjectionPercent: 60}}`,
		factual:  `{targetRefs: [{group: "", kind: Service, name: a}], outlierDetection: {consecutiveServerErrors: 1, maxEjectionPercent: 50}, mode: Enforce}`,
	},
	{
		kind: "HealthCheckRegistration", resource: "healthcheckregistrations",
		doubtful: checks("type: nobodys", "X", "'p'", "onMissing: Skip"),
		portable: checks("type: nobodys", "Ready", "'p'", "onMissing: Skip"),
		changed:  checks("type: nobodys", "Stalled", "'p'", "onMissing: Skip"),
		factual:  checks("type: nobodys", "X", "'p", "onMissing: Skip"),
	},
	{
		kind: "Guardrail", resource: "guardrails",
		doubtful: `{paused: true}`,
		portable: `{rules: [{name: r, kinds: [Node], expression: has(object.metadata.labels)}]}`,
		changed:  `{rules: [{name: r, kinds: [Pod], expression: has(object.metadata.labels)}]}`,
		factual:  `{rules: [{name: r, kinds: [ConditionSet], expression: object.spec.efect == ''}]}`,
	},
	{
		kind: "GuardrailException", resource: "guardrailexceptions",
		doubtful: exception("ConditionSet", "conditionset/matches-healthy-nodes"),
		portable: exception("Node", "conditionset/matches-healthy-nodes"),
		changed:  exception("Pod", "conditionset/matches-healthy-nodes"),
		factual:  exception("ConditionSet", "conditionset/reserved-taint-key"),
	},
}

func exception(kind, rule string) string {
	return fmt.Sprintf(`{ruleIDs: [%s], targetRef: {kind: %s, name: nobody}, specHash: "%s", reason: it is a test, expiresAt: "%s"}`,
		rule, kind, strings.Repeat("0", 64), time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

// checks is a spec with one check.
func checks(target, conditionType, name, more string) string {
	return fmt.Sprintf(`{target: {apiVersion: example.com/v1, kind: Nothing, %s}, checks: [{name: a, conditionType: %s, object: {apiVersion: v1, kind: Pod, name: "%s"}, evaluate: {builtin: {}}, %s}]}`,
		target, conditionType, name, more)
}

// probes is a spec with one dependent.
func probes(apiVersion, dependent, more string) string {
	return fmt.Sprintf(`{internalKubeConfigSecretName: in, externalKubeConfigSecretName: out, %s, dependentResourceInfos: [`+
		`{ref: {apiVersion: %s, kind: Deployment, name: %s}, scaleUp: {level: 0}, scaleDown: {level: 0}}]}`, more, apiVersion, dependent)
}

// each runs f for every kind.
func each(f func(s *specimen)) {
	GinkgoHelper()
	for i := range specimens {
		By(specimens[i].kind)
		f(&specimens[i])
	}
}

// manifest is an object of the kind, as a user writes it.
func (s *specimen) manifest(name, spec string) string {
	metadata := "{name: " + name + "}"
	if s.namespace != "" {
		metadata = "{name: " + name + ", namespace: " + s.namespace + "}"
	}
	return fmt.Sprintf("apiVersion: autohealer.resourcestack.com/v1alpha1\nkind: %s\nmetadata: %s\nspec: %s\n", s.kind, metadata, spec)
}

func (s *specimen) client() dynamic.ResourceInterface {
	GinkgoHelper()
	client, err := dynamic.NewForConfig(h.Config)
	Expect(err).NotTo(HaveOccurred())
	resource := client.Resource(v1alpha1.GroupVersion.WithResource(s.resource))
	if s.namespace != "" {
		return resource.Namespace(s.namespace)
	}
	return resource
}

// in are kubectl's arguments for where the object is.
func (s *specimen) in(args ...string) []string {
	if s.namespace != "" {
		args = append(args, "--namespace="+s.namespace)
	}
	return args
}

const gitOps = "argocd-controller"

// apply are kubectl's arguments as GitOps tools have them.
func apply(path string, more ...string) []string {
	return append([]string{"apply", "--server-side", "--force-conflicts", "--field-manager=" + gitOps, "-f", path}, more...)
}

// storeBad stores an object that a rule refuses, as if from before there was that rule, with a finalizer of somebody else.
func (s *specimen) storeBad(ctx context.Context, name string) {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(s.manifest(name, s.portable)), &object.Object)).To(Succeed())
	object.SetFinalizers([]string{"example.com/hold"})
	removedForGood(s, name)
	Eventually(ctx, func(ctx context.Context) error { // a policy may be there for a moment after its deletion
		_, err := s.client().Apply(ctx, name, object, metav1.ApplyOptions{FieldManager: gitOps})
		return err
	}).Should(Succeed())
}

// removedForGood deletes an object when the spec ends, whatever finalizers it has.
func removedForGood(s *specimen, name string) {
	DeferCleanup(func(ctx context.Context) {
		_ = s.client().Delete(ctx, name, metav1.DeleteOptions{})
		Eventually(ctx, func(ctx context.Context) bool {
			_, _ = kubectl(ctx, s.in("patch", s.resource, name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)...)
			return s.gone(ctx, name)
		}).Should(BeTrue(), "%s %s stays", s.kind, name)
	})
}

func (s *specimen) gone(ctx context.Context, name string) bool {
	_, err := s.client().Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

var _ = Describe("Of every kind,", Label("versions"), func() {
	It("there is a specimen", func() {
		rules, err := guard.New(guard.Options{})
		Expect(err).NotTo(HaveOccurred())
		kinds := make([]string, len(specimens))
		for i, s := range specimens {
			kinds[i] = s.kind
		}
		Expect(kinds).To(ConsistOf(rules.Kinds()))
	})

	It("an object gets in a dry run, word for word, what it gets in earnest", func(ctx SpecContext) {
		each(func(s *specimen) {
			for _, spec := range []string{s.portable, s.factual} {
				path := file(s.manifest("wet-and-dry", spec))
				for _, verb := range [][]string{{"create", "-f", path}, apply(path)} {
					wet := refused(ctx, verb...)
					Expect(wet).To(MatchRegexp(`\b%s/[a-z-]+: `, strings.ToLower(s.kind)))
					Expect(refused(ctx, append(verb, "--dry-run=server")...)).To(Equal(wet))
					Expect(s.gone(ctx, "wet-and-dry")).To(BeTrue())
				}
			}
			path := file(s.manifest("wet-and-dry", s.doubtful))
			dry := accepted(ctx, "create", "--dry-run=server", "-f", path)
			Expect(s.gone(ctx, "wet-and-dry")).To(BeTrue(), "a dry run stores nothing")
			removedForGood(s, "wet-and-dry")
			wet := accepted(ctx, "create", "-f", path)
			Expect(warnings(wet)).NotTo(BeEmpty())
			Expect(dry).To(Equal(wet + " (server dry run)"))
		})
	}, NodeTimeout(specTime))

	It("what is stored and refused meanwhile passes the dry run of a GitOps tool as long as nobody changes it", func(ctx SpecContext) {
		withoutGates(ctx, func() { each(func(s *specimen) { s.storeBad(ctx, "unchanged") }) })
		unchanged := func(s *specimen) {
			path := file(s.manifest("unchanged", s.portable))
			Expect(accepted(ctx, apply(path, "--dry-run=server")...)).To(HaveSuffix("serverside-applied (server dry run)"))
			Expect(accepted(ctx, apply(path)...)).To(HaveSuffix("serverside-applied"))
		}
		each(func(s *specimen) {
			fresh := file(s.manifest("fresh", s.portable))
			Eventually(ctx, func(ctx context.Context) error { // the policies are in force again
				_, err := kubectl(ctx, apply(fresh, "--dry-run=server")...)
				return err
			}).ShouldNot(Succeed())
			unchanged(s)
			Expect(refused(ctx, apply(file(s.manifest("unchanged", s.changed)), "--dry-run=server")...)).To(ContainSubstring("denied"))
		})
		By("asking while no manager serves the webhook")
		withoutManager(ctx, func() { each(unchanged) })
	}, NodeTimeout(specTime))

	It("what is bad can be deleted and let go while no manager serves the webhook", func(ctx SpecContext) {
		withoutGates(ctx, func() { each(func(s *specimen) { s.storeBad(ctx, "bad") }) })
		withoutManager(ctx, func() {
			each(func(s *specimen) {
				accepted(ctx, s.in("delete", s.resource, "bad", "--wait=false")...)
				Expect(s.gone(ctx, "bad")).To(BeFalse(), "a finalizer holds it")
				accepted(ctx, s.in("patch", s.resource, "bad", "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)...)
				Expect(s.gone(ctx, "bad")).To(BeTrue())
			})
		})
	}, NodeTimeout(specTime))
})

var _ = Describe("A rule that refuses everything", func() {
	const spec = `{rules: [{name: r, kinds: [ConditionSet, WeederConfig, ProbeConfig, OutlierPolicy, HealthCheckRegistration, Guardrail, GuardrailException], expression: object.metadata.name == 'nobody'}]}`
	rail := &specimens[5]

	It("can be mended, and deleted with the manager and without", func(ctx SpecContext) {
		path := file(rail.manifest("refuses-all", spec))
		store := func() {
			GinkgoHelper()
			removedForGood(rail, "refuses-all")
			accepted(ctx, "apply", "-f", path)
			each(func(s *specimen) { // Guardrails too: this rule is about itself
				Eventually(ctx, func(ctx context.Context) string {
					output, _ := kubectl(ctx, "create", "--dry-run=server", "-f", file(s.manifest("any", s.doubtful)))
					return output
				}).Should(ContainSubstring("refuses-all/r: "))
			})
		}
		store()
		accepted(ctx, "patch", "guardrail", "refuses-all", "--type=merge", "-p", `{"spec":{"rules":[]}}`)
		Eventually(ctx, tryingOut(factual)).Should(HaveSuffix("created"))
		accepted(ctx, "delete", "guardrail", "refuses-all")

		store()
		accepted(ctx, "delete", "guardrail", "refuses-all")
		Eventually(ctx, tryingOut(factual)).Should(HaveSuffix("created"))

		store()
		withoutManager(ctx, func() { accepted(ctx, "delete", "guardrail", "refuses-all") })
	}, NodeTimeout(specTime))
})

package admission

import (
	"context"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// What the samples must say, whatever their files look like.
var samples = map[string]string{
	"conditionset-1": `
type: KubeletContainerRuntimeUnhealthy
effect: NoExecute
taintKey: node.stakater.com/KubeletContainerRuntimeUnhealthy
conditions:
  KubeletUnhealthy: {status: true}
  ContainerRuntimeUnhealthy: {status: unknown}`,
	"conditionset-2": `
type: KernelDeadlock
effect: NoExecute
taintKey: node.stakater.com/KernelDeadlock
conditions:
  KernelDeadlock: {status: true}`,
}

func sample(path ...string) string {
	return filepath.Join(append([]string{h.Root(), "config", "samples"}, path...)...)
}

var _ = Describe("The samples", Label("versions"), func() {
	for name, spec := range samples {
		for way, flags := range map[string][]string{"client-side": nil, "server-side": {"--server-side"}} {
			It("apply "+way+" and show no drift: "+name, func(ctx SpecContext) {
				path := sample(name + ".yaml")
				apply := append([]string{"apply", "-f", path}, flags...)
				diff := append([]string{"diff", "-f", path}, flags...)
				removedAfterwards(name)
				accepted(ctx, apply...)

				By("waiting for finalizer and status")
				Eventually(ctx, conditionOf(name, "Ready")).Should(HavePrefix("True"))
				before := settled(ctx, name)
				Expect(before.Finalizers).To(ConsistOf("autohealer.resourcestack.com/undo"))

				By("applying it again")
				output := accepted(ctx, apply...)
				if flags == nil { // kubectl says it of client-side apply only
					Expect(output).To(HaveSuffix(name + " unchanged"))
				}
				Expect(accepted(ctx, diff...)).To(BeEmpty())
				after := settled(ctx, name)
				Expect(after.ResourceVersion).To(Equal(before.ResourceVersion), "nothing may have been written")
				Expect(after.Generation).To(Equal(int64(1)))

				By("comparing what is stored with what was written")
				stored, err := get(ctx, name)
				Expect(err).NotTo(HaveOccurred())
				want := map[string]any{}
				Expect(yaml.Unmarshal([]byte(spec), &want)).To(Succeed())
				Expect(apiequality.Semantic.DeepEqual(stored.Object["spec"], want)).To(BeTrue(), "stored: %v", stored.Object["spec"])
			}, NodeTimeout(specTime))
		}
	}

	It("change from client-side to server-side apply without drift", func(ctx SpecContext) {
		path := sample("conditionset-1.yaml")
		removedAfterwards("conditionset-1")
		accepted(ctx, "apply", "-f", path)
		Eventually(ctx, conditionOf("conditionset-1", "Ready")).Should(HavePrefix("True"))
		accepted(ctx, "apply", "--server-side", "-f", path)
		before := settled(ctx, "conditionset-1")
		accepted(ctx, "apply", "--server-side", "-f", path)
		Expect(accepted(ctx, "diff", "--server-side", "-f", path)).To(BeEmpty())
		after := settled(ctx, "conditionset-1")
		Expect(after.ResourceVersion).To(Equal(before.ResourceVersion))
		Expect(after.Generation).To(Equal(int64(1)))
	}, NodeTimeout(specTime))

	It("apply for node-problem-detector, every one without a warning", func(ctx SpecContext) {
		for _, name := range npdSamples(ctx) {
			removedAfterwards(name)
		}
		output := accepted(ctx, "apply", "-k", sample("npd"))
		Expect(strings.Split(output, "\n")).To(HaveEach(HaveSuffix(" created")))
		for _, name := range npdSamples(ctx) {
			Eventually(ctx, conditionOf(name, "Ready")).Should(HavePrefix("True Operative"), name)
		}
		Expect(strings.Split(accepted(ctx, "apply", "-k", sample("npd")), "\n")).To(HaveEach(HaveSuffix(" unchanged")))
		Expect(accepted(ctx, "diff", "-k", sample("npd"))).To(BeEmpty())
	}, NodeTimeout(specTime))

	It("are what kustomize users get too, and the refused one is not among them", func(ctx SpecContext) {
		Expect(names(accepted(ctx, "kustomize", sample()))).To(ConsistOf("autohealer-health-checks-worker", "conditionset-1", "conditionset-2", "outlierpolicy-1", "provider-aws-worker", "weederconfig-1"))
	}, NodeTimeout(specTime))
})

// settled is the object once the controller has said all it has to say: no write of it is due any more.
func settled(ctx context.Context, name string) metav1.ObjectMeta {
	GinkgoHelper()
	var last metav1.ObjectMeta
	Eventually(ctx, func(g Gomega) {
		before, err := typed(ctx, name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(before.Status.Nodes).NotTo(BeNil())
		counts := *before.Status.Nodes
		fromNodes, err := selectable(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(counts.Selected).To(BeEquivalentTo(fromNodes), "status doesn't know all nodes yet")
		last = before.ObjectMeta
	}).Should(Succeed())
	return last
}

// names of the objects in a stream of YAML documents.
func names(documents string) []string {
	GinkgoHelper()
	var all []string
	for _, document := range strings.Split(documents, "\n---\n") {
		var meta metav1.PartialObjectMetadata
		Expect(yaml.Unmarshal([]byte(document), &meta)).To(Succeed())
		all = append(all, meta.Name)
	}
	return all
}

func npdSamples(ctx context.Context) []string {
	GinkgoHelper()
	all := names(accepted(ctx, "kustomize", sample("npd")))
	Expect(len(all)).To(BeNumerically(">=", 10), "one a condition of node-problem-detector")
	return all
}

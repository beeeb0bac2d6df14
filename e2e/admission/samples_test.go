package admission

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
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

	// -k of npd is above; a tenant's need their account before them.
	for _, folder := range []string{"", "gardener", "npd"} {
		It("are accepted, each alone: "+filepath.Join("config/samples", folder), func(ctx SpecContext) {
			for _, file := range files(folder) {
				accepted(ctx, "apply", "-f", file)
				DeferCleanup(func(ctx SpecContext) { accepted(ctx, "delete", "-f", file, "--ignore-not-found") })
				expectInForce(ctx, "-f", file)
				accepted(ctx, "delete", "-f", file)
			}
		}, NodeTimeout(specTime))
	}

	It("are accepted, all verdicts together, while nothing of their kinds is installed", func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) { accepted(ctx, "delete", "-f", sample("verdicts")) })
		accepted(ctx, "apply", "-f", sample("verdicts"))
		expectInForce(ctx, "-f", sample("verdicts"))
	}, NodeTimeout(specTime))

	for _, folder := range []string{"", "gardener", "tenant"} {
		It("are accepted in the folder's order: "+filepath.Join("config/samples", folder), func(ctx SpecContext) {
			for _, file := range files(folder) {
				DeferCleanup(func(ctx SpecContext) { accepted(ctx, "delete", "-f", file) })
				Eventually(func() error { // the API server takes a moment to read an account's binding
					_, err := kubectl(ctx, "apply", "-f", file)
					return err
				}).WithContext(ctx).Should(Succeed(), file)
			}
			for _, file := range files(folder) {
				expectInForce(ctx, "-f", file)
			}
		}, NodeTimeout(specTime))

		It("are accepted by -k: "+filepath.Join("config/samples", folder), func(ctx SpecContext) {
			DeferCleanup(func(ctx SpecContext) { accepted(ctx, "delete", "-k", sample(folder)) })
			Eventually(func() error {
				_, err := kubectl(ctx, "apply", "-k", sample(folder))
				return err
			}).WithContext(ctx).Should(Succeed())
			expectInForce(ctx, "-k", sample(folder))
		}, NodeTimeout(specTime))
	}

	It("are all in the kustomization, or their README says why not", func(ctx SpecContext) {
		built := accepted(ctx, "kustomize", sample())
		readme, err := os.ReadFile(sample("README.md"))
		Expect(err).NotTo(HaveOccurred())
		for _, s := range specimens {
			said := "\n| " + s.kind + " | "
			_, row, found := strings.Cut(string(readme), said)
			Expect(found).To(BeTrue(), "README.md has no row %q", said)
			row, _, _ = strings.Cut(row, "\n")
			cells := strings.Split(row, " | ")
			Expect(cells).To(HaveLen(2), row)
			if strings.Contains(built, "\nkind: "+s.kind+"\n") {
				Expect(cells[1]).To(HavePrefix("yes"), row)
			} else {
				Expect(cells[1]).To(HavePrefix("no"), row)
				Expect(row).To(Or(ContainSubstring("no: "), ContainSubstring("none: ")), "why")
			}
		}
	}, NodeTimeout(specTime))
})

// files are those of a folder of samples, in its order.
func files(folder string) (all []string) {
	GinkgoHelper()
	found, err := filepath.Glob(sample(folder, "*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	for _, file := range found {
		if filepath.Base(file) != "kustomization.yaml" {
			all = append(all, file)
		}
	}
	Expect(all).NotTo(BeEmpty())
	return all
}

// expectInForce waits until each policy of a sample is accepted; one that is over as it is made isn't.
func expectInForce(ctx context.Context, by, path string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		output, err := kubectl(ctx, "get", by, path, "--no-headers", "-o",
			`custom-columns=GROUP:.apiVersion,NAME:.metadata.name,ACCEPTED:.status.conditions[?(@.type=="Accepted")].status,READY:.status.conditions[?(@.type=="Ready")].reason`)
		g.Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(output) {
			if strings.HasPrefix(line, v1alpha1.GroupVersion.Group) {
				g.Expect(line).To(MatchRegexp(` True +\w+\n?$`))
				g.Expect(line).NotTo(ContainSubstring("Expired"))
			}
		}
	}).WithContext(ctx).Should(Succeed(), path)
}

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

package uninstall

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/operations/world"
)

// versions are the resource versions of what an uninstall changes first.
func versions(ctx context.Context) string {
	GinkgoHelper()
	out, err := h.Kubectl(ctx, "get", "guardrails,conditionsets,probeconfigs,deployments,statefulsets,validatingwebhookconfigurations,crds", "-A", "-o", "jsonpath={.items[*].metadata.name}")
	Expect(err).NotTo(HaveOccurred())
	return out
}

var _ = Describe("kubectl autohealer uninstall that can't", Ordered, func() {
	var repelled string
	BeforeAll(func(ctx SpecContext) {
		installAndBreak(ctx)
		repelled, _ = h.Sick()
	}, NodeTimeout(specTime))

	It("only tells with a dry run, and when somebody declines", func(ctx SpecContext) {
		before := versions(ctx)
		told := And(ContainSubstring("Freeze: nothing new is done while this works\n  guardrail/autohealer-freeze\nUndo\n"), ContainSubstring("Delete the namespace\n  namespace/autohealer-system\n"))
		Expect(uninstall(ctx, "--dry-run")).To(SatisfyAll(HaveField("Code", 0), HaveField("Out", And(told, HaveSuffix("Nothing was done (dry run).\n")))))
		Expect(uninstall(ctx, "--dry-run=server")).To(SatisfyAll(HaveField("Code", 0), HaveField("Err", BeEmpty()), HaveField("Out", And(told,
			ContainSubstring("node/"+repelled+": taint "+world.RepelKey+":NoSchedule removed, which ConditionSet repelling set "),
			ContainSubstring("\nclusterrole/autohealer-manager deleted (server dry run)\n"),
			HaveSuffix("Nothing was done, and all of it can be (server dry run).\n")))))
		for _, answer := range []string{"n\n", "", "yes please\n"} {
			Expect(h.PluginWithInput(ctx, h.Kubeconfig, answer, "uninstall")).To(SatisfyAll(HaveField("Code", 1), HaveField("Out", And(told,
				ContainSubstring("Do you want to continue? (y/N): "), HaveSuffix("uninstall is cancelled\n")))))
		}
		Expect(uninstall(ctx, "--yes", "-n", "default")).To(HaveField("Code", 2))
		Expect(versions(ctx)).To(Equal(before))
		Expect(h.Done(ctx)).To(Equal(h.Everything()))
	}, NodeTimeout(specTime))

	It("names the rights that are missing before it does anything", func(ctx SpecContext) {
		before := versions(ctx)
		operator := h.Account(ctx, "uninstaller", "autohealer-operator", "autohealer-workload-operator", "view")
		Eventually(func() said { return h.Plugin(ctx, operator, "uninstall", "--yes") }).Should(SatisfyAll(HaveField("Code", 2), HaveField("Err", ContainSubstring("customresourcedefinitions.apiextensions.k8s.io is forbidden"))))
		reader := h.Account(ctx, "reader", "uninstall-reader", "autohealer-operator")
		_, err := h.Kubectl(ctx, "create", "clusterrole", "uninstall-reader", "--verb=get,list", "--resource=*.*")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() said { return h.Plugin(ctx, reader, "uninstall", "--yes") }).Should(SatisfyAll(HaveField("Code", 2), HaveField("Out", BeEmpty()), HaveField("Err", And(
			ContainSubstring("nothing was done, since not all of it can be:\n"),
			ContainSubstring("\n  You may not delete customresourcedefinitions.apiextensions.k8s.io\n"),
			ContainSubstring("\n  You may not patch deployments.apps in namespace shoot\n"),
			Not(ContainSubstring("You may not patch nodes\n")), // the operator's role has that
			HaveSuffix("\nIt takes the ClusterRole cluster-admin.\n")))))
		_, err = h.Kubectl(ctx, "delete", "clusterrole", "uninstall-reader")
		Expect(err).NotTo(HaveOccurred())
		Expect(versions(ctx)).To(Equal(before))
	}, NodeTimeout(specTime))

	It("names a record that can't be read before it does anything", func(ctx SpecContext) {
		spare := h.Nodes[9]
		_, err := h.Kubectl(ctx, "annotate", "node", spare, "autohealer.resourcestack.com/owned-taints={")
		Expect(err).NotTo(HaveOccurred())
		Expect(uninstall(ctx, "--yes")).To(SatisfyAll(HaveField("Code", 2), HaveField("Err", ContainSubstring("\n  node/"+spare+" can't be undone: its annotation autohealer.resourcestack.com/owned-taints can't be read: look at it, untaint the node by hand, and remove it\n"))))
		_, err = h.Kubectl(ctx, "annotate", "node", spare, "autohealer.resourcestack.com/owned-taints-")
		Expect(err).NotTo(HaveOccurred())
		Expect(h.Done(ctx)).To(Equal(h.Everything()))
	}, NodeTimeout(specTime))

	It("names a policy that somebody else's finalizer keeps, and a manager that isn't its own, and goes on afterwards", func(ctx SpecContext) {
		patch := func(finalizers string) {
			_, err := h.Kubectl(ctx, "patch", "conditionset", "repelling", "--type=merge", "-p", `{"metadata":{"finalizers":`+finalizers+`}}`)
			Expect(err).NotTo(HaveOccurred())
		}
		stop()
		patch(`["autohealer.resourcestack.com/undo","example.com/keep"]`)
		held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: "autohealer-manager"}}
		renew := func(lasts int32) { // by a clock that is ahead as far as is believed: it lasts for longer then
			_, err := controllerutil.CreateOrUpdate(ctx, h.Client, held, func() error {
				held.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("elsewhere"), LeaseDurationSeconds: &lasts, RenewTime: &metav1.MicroTime{Time: time.Now().Add(14 * time.Second)}}
				return nil
			})
			Expect(err).NotTo(HaveOccurred())
		}
		renew(15)
		Expect(uninstall(ctx, "--yes", "--timeout=10s")).To(SatisfyAll(HaveField("Code", 1), HaveField("Err", And(
			HavePrefix("error: uninstall stopped at: stop what acts: a manager leads still that the Deployment autohealer-manager in namespace autohealer-system doesn't run: stop it, then run this again\n"),
			HaveSuffix("To go on, run it again; to let Autohealer go on instead, if it is there still: kubectl autohealer thaw\n")))))
		Expect(h.Done(ctx)).To(Equal(h.Everything()), "nothing is undone while somebody may do it again")
		before := versions(ctx)
		for _, how := range []string{"--dry-run=server", "--yes"} {
			renew(15)
			Expect(uninstall(ctx, how)).To(SatisfyAll(HaveField("Code", 2), HaveField("Err", ContainSubstring(
				"\n  A manager leads, and there is no Deployment autohealer-manager in namespace autohealer-system that could run it: stop it, or if there is none, kubectl -n autohealer-system delete lease autohealer-manager."))))
			renew(3600)
			Expect(uninstall(ctx, how)).To(SatisfyAll(HaveField("Code", 2), HaveField("Err", MatchRegexp(
				`\n  It isn't known whether a manager leads, .*: the Lease autohealer-manager lasts 3600 seconds, and a manager writes 15: .* When none does, kubectl -n autohealer-system delete lease autohealer-manager`))))
		}
		Expect(versions(ctx)).To(Equal(before), "that it can't end is seen before it begins, now that its Deployment is gone")
		Expect(h.Client.Delete(ctx, held)).To(Succeed())

		Expect(uninstall(ctx, "--yes", "--timeout=3s")).To(SatisfyAll(HaveField("Code", 1), HaveField("Err", HavePrefix(
			"error: uninstall stopped at: delete policies: conditionset/repelling is deleted and still there: it waits for the finalizers example.com/keep. See to who set them, then run this again\n"))))
		Expect(h.Done(ctx)).To(Equal(h.Nothing()), "what it did until then holds")
		patch("null")

		By("what others have in its namespace stays")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: "somebodys"}}
		Expect(h.Client.Create(ctx, secret)).To(Succeed())
		const left = "namespace/autohealer-system holds what isn't Autohealer's: secret/somebodys. If nobody needs it: kubectl delete namespace autohealer-system\n"
		Expect(uninstall(ctx, "--yes")).To(SatisfyAll(HaveField("Code", 0), HaveField("Out", ContainSubstring(left))))
		expectTraces(ctx, ConsistOf("rolebinding/autohealer-probe-target has our name", "namespace/autohealer-system has our name"))
		Expect(h.Client.Delete(ctx, secret)).To(Succeed())
		Expect(uninstall(ctx, "--yes")).To(succeeds)
		expectNothingLeft(ctx)
	}, NodeTimeout(specTime))
})

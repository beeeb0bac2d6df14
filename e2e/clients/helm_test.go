package clients

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
)

const (
	release = "healing" // whatever it is called, objects are called autohealer
	key     = "e2e.example.com/broken"
)

var _ = Describe("The chart", func() {
	for _, h := range []*helmClient{{binary: "helm", namespace: "healing-4"}, {binary: "helm3", namespace: "healing-3"}} {
		Context("with "+h.binary, Ordered, ContinueOnFailure, func() { lifeOfARelease(h) })
	}
})

// everything switches on what has no kinds of others.
const everything = `
podLabels: {team: core}
podAnnotations: {team: core}
imagePullSecrets: [{name: regcred}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
hostNetwork: true
ports: {webhook: 10250, metrics: 10251, probes: 10252}
certProvider: files
certFiles: {secretName: tls}
webhook: {failurePolicy: Ignore, timeoutSeconds: 10, caBundle: Cg==}
xds: {enabled: true, clientCASecret: envoys, clients: {spiffe://edge: ["*"]}, ejectionsFrom: [edge/envoys/ejections]}
networkPolicy: {enabled: true}
dashboards: {enabled: true}
extraArgs: [--v=1]
extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Release.Name }}'}}]
`

func lifeOfARelease(h *helmClient) {
	BeforeAll(func() {
		var err error
		h.port, err = cluster.FreePort()
		Expect(err).NotTo(HaveOccurred())
	})
	AfterAll(func(ctx SpecContext) { h.tidy(ctx) })

	It("is found good", func(ctx SpecContext) {
		Expect(h.must(ctx, "lint", "--strict", chart)).To(ContainSubstring("1 chart(s) linted, 0 chart(s) failed"))
		for value, named := range map[string]string{"image.digest=sha256:0": "digest", "webhook.url=http://a/validate": "url", "webhook.url=https://u:p@a/validate": "url"} {
			for _, args := range [][]string{{"lint", "--strict", chart}, {"template", release, chart}} {
				said, err := h.run(ctx, append(args, "--set="+value)...)
				Expect(err).To(HaveOccurred(), value)
				Expect(said).To(MatchRegexp(`%s['"]?: .*does not match pattern`, named))
			}
		}
	}, NodeTimeout(time.Minute))

	It("is made of objects that an API server takes, with every value set", func(ctx SpecContext) {
		values := filepath.Join(GinkgoT().TempDir(), "values.yaml")
		Expect(os.WriteFile(values, []byte(everything), 0o600)).To(Succeed())
		_, err := c.Kubectl(ctx, "create", "namespace", h.namespace)
		Expect(err).NotTo(HaveOccurred())
		for _, args := range [][]string{nil, {"--values=" + values}} {
			manifests := h.must(ctx, append([]string{"template", release, chart}, args...)...)
			_, err = c.KubectlWithInput(ctx, strings.NewReader(manifests), "apply", "--dry-run=server", "--server-side", "--validate=strict", "-f", "-")
			Expect(err).NotTo(HaveOccurred())
		}
	}, NodeTimeout(time.Minute))

	It("is installed, and its manager works", func(ctx SpecContext) {
		notes := h.must(ctx, append([]string{"install", release, chart, "--create-namespace"}, h.values()...)...)
		Expect(notes).To(And(ContainSubstring("kubectl label namespace "+h.namespace), Not(ContainSubstring("WARNING: "))))
		_, err := c.Kubectl(ctx, "label", "namespace", h.namespace, "pod-security.kubernetes.io/enforce=restricted")
		Expect(err).NotTo(HaveOccurred(), "as the notes say; pods of later steps keep to it")
		h.startManager(ctx)
		check := exec.CommandContext(ctx, filepath.Join(c.BinDir, "kubectl-autohealer"), "check", "--wait", "--timeout=30s", "--kubeconfig="+c.Kubeconfig)
		said, err := check.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(said))
		Expect(admin.Create(ctx, fixture.NewSet("broken", key, corev1.TaintEffectNoSchedule, "Broken"))).To(Succeed())
		Expect(c.SetCondition(ctx, nodes[0], "Broken", corev1.ConditionTrue, cluster.ConditionOptions{})).To(Succeed())
		Eventually(ctx, tainted).Should(BeTrue())
	}, NodeTimeout(3*time.Minute))

	It("is upgraded and rolled back, and no policy is refused but by a rule meanwhile", func(ctx SpecContext) {
		load := startLoad(ctx)
		h.must(ctx, append([]string{"upgrade", release, chart}, h.values("--set=replicas=3", "--set=resources.limits.memory=2Gi", "--set=webhook.timeoutSeconds=10")...)...)
		Expect(deployment(ctx, h.namespace)).To(Equal(shape{3, "1843MiB", 10}))
		h.must(ctx, "rollback", release, "1", "--wait", "--timeout=90s")
		Expect(deployment(ctx, h.namespace)).To(Equal(shape{2, "921MiB", 5}))
		created, failures := load()
		AddReportEntry("policies created during upgrade and rollback", created)
		Expect(failures).To(BeEmpty())
		Expect(created).To(BeNumerically(">", 20))
		Expect(tainted(ctx)).To(BeTrue())
	}, NodeTimeout(4*time.Minute))

	It("isn't uninstalled while something is left to undo", func(ctx SpecContext) {
		said := h.playJob(ctx)
		output, err := h.run(ctx, "uninstall", release, "--timeout=60s")
		Expect(err).To(HaveOccurred(), output)
		Expect(output).To(ContainSubstring(job))
		Eventually(ctx, said).Should(Receive(And(
			HavePrefix("Autohealer isn't uninstalled: 1 policy is stored."), ContainSubstring("\n  ConditionSet broken\n"), ContainSubstring("\n  kubectl autohealer uninstall\n"),
		)))
		Expect(deployment(ctx, h.namespace)).To(Equal(shape{2, "921MiB", 5}), "the manager stays")
		Expect(tainted(ctx)).To(BeTrue())

		By("going on with the release")
		output, err = h.run(ctx, append([]string{"upgrade", release, chart}, h.values()...)...)
		Expect(err).To(HaveOccurred())
		Expect(output).To(ContainSubstring("has no deployed releases"))
		h.must(ctx, "rollback", release, "3", "--wait", "--timeout=90s")
		h.must(ctx, append([]string{"upgrade", release, chart}, h.values()...)...)
	}, NodeTimeout(4*time.Minute))

	It("is uninstalled when all is undone, and leaves the kinds", func(ctx SpecContext) {
		Expect(admin.Delete(ctx, &v1alpha1.ConditionSet{ObjectMeta: fixture.NewSet("broken", key, "").ObjectMeta})).To(Succeed())
		Eventually(ctx, tainted).Should(BeFalse())
		Eventually(ctx, func() error {
			return admin.Get(ctx, client.ObjectKey{Name: "broken"}, &v1alpha1.ConditionSet{})
		}).Should(Satisfy(apierrors.IsNotFound))
		said := h.playJob(ctx)
		h.must(ctx, "uninstall", release, "--timeout=60s", "--wait")
		Eventually(ctx, said).Should(Receive(Equal("No policy keeps a record of what it did: the manager may go.\n")))

		Expect(c.Kubectl(ctx, "get", "crd", "-o", "name")).To(ContainSubstring("conditionsets.autohealer.resourcestack.com"))
		for _, kind := range []string{
			"validatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings", "clusterroles", "clusterrolebindings", "deployments", "jobs",
			"services", "serviceaccounts", "roles", "rolebindings", "resourcequotas", "poddisruptionbudgets",
		} {
			left, err := c.Kubectl(ctx, "get", kind, "-A", "-l", "app.kubernetes.io/name=autohealer", "-o", "name")
			Expect(err).NotTo(HaveOccurred())
			Expect(left).To(BeEmpty())
		}

		By("another release, which takes the kinds over where it is told to")
		another := append([]string{"install", "another", chart, "--dry-run=server"}, h.values()...)
		output, err := h.run(ctx, another...)
		Expect(err).To(HaveOccurred())
		Expect(output).To(ContainSubstring("invalid ownership metadata"))
		h.must(ctx, append(another, "--take-ownership")...)
	}, NodeTimeout(4*time.Minute))
}

// tidy leaves nothing to the next Helm, whatever failed.
func (h *helmClient) tidy(ctx context.Context) {
	_ = c.StopComponent(manager) // which may not have been started
	_, _ = h.run(ctx, "uninstall", release, "--no-hooks")
	for _, args := range [][]string{
		{"patch", "conditionset", "broken", "--type=merge", `-p={"metadata":{"finalizers":null}}`},
		{"delete", "crd", "-l", "app.kubernetes.io/name=autohealer"},
		{"delete", "namespace", h.namespace, "--ignore-not-found"},
	} {
		if _, err := c.Kubectl(ctx, args...); err != nil {
			GinkgoWriter.Println(err)
		}
	}
	Expect(c.SetCondition(ctx, nodes[0], "Broken", corev1.ConditionFalse, cluster.ConditionOptions{})).To(Succeed())
}

func tainted(ctx context.Context) (bool, error) {
	var node corev1.Node
	err := admin.Get(ctx, client.ObjectKey{Name: nodes[0]}, &node)
	for _, taint := range node.Spec.Taints {
		if taint.Key == key {
			return true, err
		}
	}
	return false, err
}

// shape is what the values change.
type shape struct {
	replicas int32
	memory   string
	timeout  int32
}

func deployment(ctx context.Context, namespace string) (shape, error) {
	var d appsv1.Deployment
	if err := admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: harness.ServiceAccount}, &d); err != nil {
		return shape{}, err
	}
	var hooks admissionregistrationv1.ValidatingWebhookConfiguration
	if err := admin.Get(ctx, client.ObjectKey{Name: "autohealer"}, &hooks); err != nil {
		return shape{}, err
	}
	s := shape{replicas: *d.Spec.Replicas, timeout: *hooks.Webhooks[0].TimeoutSeconds}
	for _, env := range d.Spec.Template.Spec.Containers[0].Env {
		if env.Name == "GOMEMLIMIT" {
			s.memory = env.Value
		}
	}
	return s, nil
}

// startLoad has policies created all the while, of which every second breaks a rule; nothing is stored. The
// function ends it, and gives how many were admitted, and what was wrong.
func startLoad(ctx context.Context) func() (admitted int, failures []string) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	admitted, failures := 0, []string{}
	group.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			good := fixture.NewSet(fmt.Sprintf("load-%d", i), fmt.Sprintf("e2e.example.com/load-%d", i), corev1.TaintEffectNoSchedule, "Other")
			bad := fixture.NewSet("load", key+"-load", corev1.TaintEffectNoSchedule, corev1.NodeReady) // of every healthy node
			errGood, errBad := admin.Create(ctx, good, client.DryRunAll), admin.Create(ctx, bad, client.DryRunAll)
			switch {
			case ctx.Err() != nil:
				return
			case errGood != nil:
				failures = append(failures, errGood.Error())
			case errBad == nil || !apierrors.IsForbidden(errBad) && !apierrors.IsInvalid(errBad):
				failures = append(failures, fmt.Sprintf("admitted against a rule, or refused by none: %v", errBad))
			default:
				admitted++
			}
		}
	})
	return func() (int, []string) {
		cancel()
		group.Wait()
		return admitted, failures
	}
}

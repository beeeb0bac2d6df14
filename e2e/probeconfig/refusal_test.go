package probeconfig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("a ProbeConfig is judged by what it names", func() {
	var s shoot
	BeforeEach(func(ctx SpecContext) {
		s = newShoot(ctx)
		s.deploy(ctx, "kcm", 1)
	}, NodeTimeout(specTime))

	// refusal of a config that would be created; nil when it is admitted.
	refusal := func(ctx SpecContext, pc *v1alpha1.ProbeConfig) error {
		return h.Client.Create(ctx, pc, client.DryRunAll)
	}

	It("and admitted when nothing is amiss", func(ctx SpecContext) {
		Expect(refusal(ctx, s.prober("good", dependent("kcm", 0, 0)))).To(Succeed())
	}, SpecTimeout(specTime))

	It("refused when both kubeconfigs lead to one server", func(ctx SpecContext) {
		s.put(ctx, "external", kubeconfigOf(s.internal.Addr()))
		Expect(refusal(ctx, s.prober("same", dependent("kcm", 0, 0)))).To(MatchError(And(
			ContainSubstring("probeconfig/same-server"), ContainSubstring(s.namespace+" ("+s.internal.Addr()+")"))))
	}, SpecTimeout(specTime))

	It("refused where Autohealer wasn't let, with what to do", func(ctx SpecContext) {
		Expect(h.Client.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: named(s.namespace, "autohealer-probe-target")})).To(Succeed())
		Eventually(refusal).WithContext(ctx).WithArguments(s.prober("unlet", dependent("kcm", 0, 0))).Should(MatchError(And(
			ContainSubstring("read Secret "+s.namespace+"/internal"), ContainSubstring("bind the ClusterRole autohealer-probe-target"))))
	}, SpecTimeout(specTime))

	It("refused for a kubeconfig that would run a command, without telling what is in it", func(ctx SpecContext) {
		s.put(ctx, "external", kubeconfigOf(s.external.Addr(), func(c *api.Config) {
			for _, user := range c.AuthInfos {
				user.Exec = &api.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "keep-me-here", InteractiveMode: api.NeverExecInteractiveMode}
			}
		}))
		Expect(refusal(ctx, s.prober("unsafe", dependent("kcm", 0, 0)))).To(MatchError(And(
			ContainSubstring("probeconfig/unsafe-kubeconfig"), ContainSubstring("exec plugin"), Not(ContainSubstring("keep-me-here")))))
	}, SpecTimeout(specTime))

	It("refused for kinds without a scale, and for those that aren't there", func(ctx SpecContext) {
		Expect(refusal(ctx, s.prober("unscalable", dependent("kcm", 0, 0), dependentOf("apps/v1", "DaemonSet", "agent", 0, 0),
			dependentOf("autohealer.resourcestack.com/v1alpha1", "ProbeConfig", "other", 0, 0), dependentOf("example.com/v1", "Nothing", "such", 0, 0)))).
			To(MatchError(And(ContainSubstring("probeconfig/unscalable-dependent"), ContainSubstring(s.namespace+"/DaemonSet/agent, "+s.namespace+"/Nothing/such, "+s.namespace+"/ProbeConfig/other"))))
	}, SpecTimeout(specTime))

	It("refused when a dependent is behind the probed Service", func(ctx SpecContext) {
		Expect(h.Client.Create(ctx, &corev1.Service{ObjectMeta: named(s.namespace, "api"), Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "kcm"}, Ports: []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromInt32(443)}},
		}})).To(Succeed())
		s.put(ctx, "internal", kubeconfigOf("api."+s.namespace+".svc"))
		Eventually(refusal).WithContext(ctx).WithArguments(s.prober("behind", dependent("kcm", 0, 0))).Should(MatchError(And(
			ContainSubstring("probeconfig/backs-probed-service"), ContainSubstring(s.namespace+"/Deployment/kcm (api)"))), "once the manager has seen pod and Service")
	}, SpecTimeout(specTime))

	It("not by one that only observes, which is judged when it begins to enforce", func(ctx SpecContext) {
		s.deploy(ctx, "mcm", 1)
		acting, watching := s.prober("acting", dependent("kcm", 0, 0)), s.prober("watching", dependent("kcm", 0, 0), dependent("mcm", 0, 0))
		watching.Spec.Mode = v1alpha1.Observe
		Expect(h.Client.Create(ctx, acting)).To(Succeed())
		Expect(h.Client.Create(ctx, watching)).To(Succeed())
		refused := MatchError(And(ContainSubstring("probeconfig/shared-dependent"), ContainSubstring(s.namespace+"/acting")))
		Eventually(update).WithContext(ctx).WithArguments(watching, mode(v1alpha1.Enforce), client.DryRunAll).Should(refused, "once the manager has seen the first")

		wider := s.prober("acting", dependent("kcm", 0, 0), dependent("mcm", 0, 0)).Spec
		Expect(update(ctx, acting, func(spec *v1alpha1.ProbeConfigSpec) { *spec = wider })).To(Succeed())
		Expect(update(ctx, watching, mode(v1alpha1.Enforce))).To(refused)
	}, SpecTimeout(specTime))

	It("refused when another config has the dependent, also by way of a selector", func(ctx SpecContext) {
		first := s.prober("first", dependent("kcm", 0, 0))
		Expect(h.Client.Create(ctx, first)).To(Succeed())
		Eventually(refusal).WithContext(ctx).WithArguments(s.prober("second", dependent("kcm", 0, 0))).Should(MatchError(And(
			ContainSubstring("probeconfig/shared-dependent"), ContainSubstring(s.namespace+"/Deployment/kcm ("+s.namespace+"/first)"))), "once the manager has seen the first")
		everywhere := s.prober("everywhere", dependent("kcm", 0, 0))
		everywhere.Namespace = harness.Namespace
		everywhere.Spec.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}}
		Expect(refusal(ctx, everywhere)).To(MatchError(ContainSubstring("probeconfig/shared-dependent")))
	}, SpecTimeout(specTime))

	It("warned of for what is missing, and for what else scales", func(ctx SpecContext) {
		Expect(h.Client.Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: named(s.namespace, "kcm"), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MaxReplicas: 3, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "kcm"},
		}})).To(Succeed())
		pc := s.prober("warned", dependent("kcm", 0, 0), dependent("gone", 0, 0))
		pc.Spec.ExternalKubeConfigSecretName = "nowhere"
		Eventually(func(ctx context.Context) (string, error) {
			return warnings(ctx, pc.DeepCopy())
		}).WithContext(ctx).Should(And(
			ContainSubstring("probeconfig/secret-missing"), ContainSubstring(s.namespace+"/nowhere"),
			ContainSubstring("probeconfig/dependent-missing"), ContainSubstring(s.namespace+"/Deployment/gone"),
			ContainSubstring("probeconfig/autoscaled-dependent"), ContainSubstring("HorizontalPodAutoscaler/kcm"),
		), "once the manager has seen the autoscaler")
	}, SpecTimeout(specTime))

	It("refused when a dependent runs Autohealer, whatever it is called", func(ctx SpecContext) {
		Expect(h.LetProbe(ctx, harness.Namespace)).To(Succeed())
		own := shoot{namespace: harness.Namespace}
		healer := &appsv1.Deployment{ObjectMeta: named(harness.Namespace, "healer"), Spec: appsv1.DeploymentSpec{
			Selector: selector("healer"), Template: template("healer"),
		}}
		healer.Spec.Template.Labels["app.kubernetes.io/name"] = "autohealer"
		restrict(&healer.Spec.Template.Spec)
		Expect(h.Client.Create(ctx, healer)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(h.Client.Delete(ctx, healer)).To(Succeed()) })
		Eventually(refusal).WithContext(ctx).WithArguments(own.prober("suicidal", dependent("healer", 0, 0))).Should(MatchError(And(
			ContainSubstring("probeconfig/runs-autohealer"), ContainSubstring(harness.Namespace+"/Deployment/healer"))), "once the manager has seen the pod")
	}, SpecTimeout(specTime))

	It("warned of where nothing tells whether the probed API server needs a dependent", func(ctx SpecContext) {
		defineMachines(ctx)
		machine := machineFleet(s.namespace)
		Eventually(func(ctx context.Context) error { return h.Client.Create(ctx, machine.DeepCopy()) }).WithContext(ctx).Should(Succeed(), "once the kind is served")
		Expect(h.Client.Create(ctx, &corev1.Service{ObjectMeta: named(s.namespace, "api"), Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "api"}, Ports: []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromInt32(443)}},
		}})).To(Succeed())
		s.put(ctx, "internal", kubeconfigOf("api."+s.namespace+".svc"))
		pc := s.prober("unclear", dependentOf(machine.GetAPIVersion(), machine.GetKind(), machine.GetName(), 0, 0), dependent("kcm", 0, 0))
		Eventually(func(ctx context.Context) (string, error) { return warnings(ctx, pc.DeepCopy()) }).WithContext(ctx).Should(And(
			ContainSubstring("probeconfig/unclear-dependent"), ContainSubstring(s.namespace+"/MachineFleet/workers;"), ContainSubstring("labelSelectorPath"),
		), "once the manager has seen the Service")
	}, SpecTimeout(specTime))

	It("warned of when it selects more namespaces than a review looks at", func(ctx SpecContext) {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "probe-everywhere"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "autohealer-probe-target"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: harness.Namespace, Name: harness.ServiceAccount}},
		}
		Expect(h.Client.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(h.Client.Delete(ctx, binding)).To(Succeed()) })
		wide := map[string]string{"wide": "true"}
		for i := range 51 {
			Expect(h.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("wide-%d", i), Labels: wide}})).To(Succeed())
		}
		pc := shoot{namespace: harness.Namespace}.prober("wide", dependent("kcm", 0, 0))
		pc.Spec.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: wide}
		Eventually(func(ctx context.Context) (string, error) { return warnings(ctx, pc.DeepCopy()) }).WithContext(ctx).Should(And(
			ContainSubstring("probeconfig/wide-fan-out"), ContainSubstring("selects 51 namespaces"),
		), "once the manager has seen the namespaces")
	}, SpecTimeout(specTime))

	It("and a tenant's Secret is not read when the account may not get it", func(ctx SpecContext) {
		Expect(h.Client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: named(s.namespace, "nobody")})).To(Succeed())
		s.put(ctx, "external", kubeconfigOf(s.internal.Addr()))
		pc := s.prober("curious", dependent("kcm", 0, 0))
		pc.Spec.ServiceAccountName = "nobody"
		Expect(refusal(ctx, pc)).To(MatchError(And(
			ContainSubstring("probeconfig/account-may-not-read"), Not(ContainSubstring(s.internal.Addr())))))
	}, SpecTimeout(specTime))

	It("the plugin says the same, live and from a file, and the file holds nothing secret", func(ctx SpecContext) {
		for _, secret := range []string{"internal", "external"} {
			s.put(ctx, secret, kubeconfigOf("api.example.com", func(c *api.Config) {
				for _, user := range c.AuthInfos {
					*user = api.AuthInfo{Token: "keep-me-here"}
				}
			}))
		}
		pc := s.prober("stored", dependent("kcm", 0, 0))
		pc.APIVersion, pc.Kind = v1alpha1.GroupVersion.String(), "ProbeConfig"
		const violated = "probeconfig/same-server: both kubeconfigs lead to the same server: "
		Expect(refusal(ctx, pc)).To(MatchError(ContainSubstring(violated + s.namespace + " (api.example.com:443)")))
		manifest, err := yaml.Marshal(pc)
		Expect(err).NotTo(HaveOccurred())
		dir := GinkgoT().TempDir()
		file, facts := filepath.Join(dir, "probe.yaml"), filepath.Join(dir, "facts.yaml")
		Expect(os.WriteFile(file, manifest, 0o600)).To(Succeed())

		code, output := plugin(ctx, "validate", "-f", file, "--live")
		Expect(code).To(Equal(1), output)
		Expect(output).To(ContainSubstring(violated + s.namespace + " (api.example.com:443)"))

		code, output = plugin(ctx, "facts", "export")
		Expect(code).To(Equal(0), output)
		Expect(output).NotTo(ContainSubstring("keep-me-here"))
		Expect(os.WriteFile(facts, []byte(output), 0o600)).To(Succeed())
		code, output = plugin(ctx, "validate", "-f", file, "--facts", facts)
		Expect(code).To(Equal(0), output)
		Expect(output).To(ContainSubstring("Skipped(facts)"), "no stored config names these Secrets: %s", output)
	}, SpecTimeout(specTime))
})

// restrict makes a pod what Autohealer's own namespace lets run.
func restrict(pod *corev1.PodSpec) {
	pod.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	pod.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// heard keeps warnings.
type heard []string

func (h *heard) HandleWarningHeader(_ int, _, text string) { *h = append(*h, text) }

// warnings of the API server for a config that would be created.
func warnings(ctx context.Context, pc *v1alpha1.ProbeConfig) (string, error) {
	var all heard
	config := rest.CopyConfig(h.Config)
	config.WarningHandler = &all
	c, err := client.New(config, client.Options{Scheme: harness.Scheme()})
	if err != nil {
		return "", err
	}
	err = c.Create(ctx, pc, client.DryRunAll)
	return strings.Join(all, "\n"), err
}

// plugin runs the kubectl plugin as the admin.
func plugin(ctx context.Context, args ...string) (code int, output string) {
	GinkgoHelper()
	return pluginAlone(ctx, append(args, "--kubeconfig="+h.Kubeconfig)...)
}

// pluginAlone runs the kubectl plugin without a cluster.
func pluginAlone(ctx context.Context, args ...string) (code int, output string) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, filepath.Join(h.BinDir, "kubectl-autohealer"), args...)
	text, err := command.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		Expect(err).NotTo(HaveOccurred(), "run `make build`: %s", text)
	}
	return command.ProcessState.ExitCode(), string(text)
}

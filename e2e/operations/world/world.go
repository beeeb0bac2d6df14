// Package world is what the suites share in which policies have acted: nodes that are tainted and evicted, and what ProbeConfigs
// scale down.
package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

const (
	// RepelKey and EvictKey are the taints' keys of the two ConditionSets.
	RepelKey = "e2e.example.com/repel"
	EvictKey = "e2e.example.com/evict"
	// Unselected is a label of nodes that the first of them isn't about.
	Unselected = "unselected"
	// Namespace is that of the ProbeConfig and its dependents.
	Namespace = "shoot"
)

// World is a cluster with Autohealer in it.
type World struct {
	*harness.Harness
	// Nodes are of zones of their own.
	Nodes []string
	// External is the way from outside to the probed API server, which is the cluster's own.
	External, internal *faultproxy.Proxy
}

// Started is the world's harness; nil before there is one.
func (w *World) Started() *harness.Harness {
	if w == nil {
		return nil
	}
	return w.Harness
}

// Start is for BeforeSuite: a manager that works, and no policies.
func Start(ctx context.Context) *World {
	ginkgo.GinkgoHelper()
	h, err := harness.Start(ctx, harness.Options{Out: ginkgo.GinkgoWriter, ManagerArgs: []string{"--leader-elect=false", "--probe-loopback"}})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(func() { gomega.Expect(h.Stop()).To(gomega.Succeed()) })
	w := On(h)
	for i := range 30 {
		added, err := w.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: fmt.Sprintf("worker-%d", i)})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		w.Nodes = append(w.Nodes, added...)
	}
	gomega.Expect(w.StartManager(ctx)).To(gomega.Succeed())
	return w
}

// On is for suites that start Autohealer themselves, with --probe-loopback.
func On(h *harness.Harness) *World {
	ginkgo.GinkgoHelper()
	w := &World{Harness: h}
	w.internal, w.External = w.proxy(), w.proxy()
	return w
}

// Account makes one with these ClusterRoles, and gives its kubeconfig. It goes with the spec or the suite that made it.
func (w *World) Account(ctx context.Context, name string, roles ...string) string {
	ginkgo.GinkgoHelper()
	meta := metav1.ObjectMeta{Namespace: "default", Name: name}
	create := func(o client.Object) {
		gomega.Expect(w.Client.Create(ctx, o)).To(gomega.Succeed())
		ginkgo.DeferCleanup(func(ctx context.Context) {
			gomega.Expect(client.IgnoreNotFound(w.Client.Delete(ctx, o))).To(gomega.Succeed())
		})
	}
	create(&corev1.ServiceAccount{ObjectMeta: meta})
	for _, role := range roles {
		create(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: name}},
		})
	}
	kubeconfig, err := w.ServiceAccountKubeconfig(ctx, meta.Namespace, name)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return kubeconfig
}

// CreatePolicies makes two ConditionSets, a ProbeConfig with a Deployment of two and a StatefulSet of one, a
// HealthCheckRegistration with its target, and an OutlierPolicy.
func (w *World) CreatePolicies(ctx context.Context) {
	ginkgo.GinkgoHelper()
	repelling := fixture.NewSet("repelling", RepelKey, corev1.TaintEffectNoSchedule, "Broken")
	repelling.Spec.NodeSelector = fixture.Without(Unselected)
	for _, set := range []*v1alpha1.ConditionSet{repelling, fixture.NewSet("evicting", EvictKey, corev1.TaintEffectNoExecute, "Dead")} {
		gomega.Expect(w.Client.Create(ctx, set)).To(gomega.Succeed())
	}
	w.CreateProbed(ctx)
	w.CreateChecked(ctx)
}

// CreateProbed makes the ProbeConfig with its dependents, and returns when it probes.
func (w *World) CreateProbed(ctx context.Context) {
	ginkgo.GinkgoHelper()
	gomega.Expect(client.IgnoreAlreadyExists(w.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}))).To(gomega.Succeed())
	gomega.Expect(w.LetProbe(ctx, Namespace)).To(gomega.Succeed())
	w.allowDefault(ctx)
	for name, p := range map[string]*faultproxy.Proxy{"internal": w.internal, "external": w.External} {
		w.ensure(ctx, &corev1.Secret{ObjectMeta: named(name), Data: map[string][]byte{"kubeconfig": w.kubeconfigBy(p)}})
	}
	two, one := int32(2), int32(1)
	selector := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	template := func(app string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	}
	w.ensure(ctx, &appsv1.Deployment{ObjectMeta: named("kcm"), Spec: appsv1.DeploymentSpec{Replicas: &two, Selector: selector("kcm"), Template: template("kcm")}})
	w.ensure(ctx, &appsv1.StatefulSet{ObjectMeta: named("ca"), Spec: appsv1.StatefulSetSpec{Replicas: &one, Selector: selector("ca"), Template: template("ca"), ServiceName: "ca"}})
	dependent := func(kind, name string) v1alpha1.DependentResourceInfo {
		return v1alpha1.DependentResourceInfo{Ref: v1alpha1.DependentRef{APIVersion: "apps/v1", Kind: kind, Name: name}, ScaleDown: &v1alpha1.ScaleInfo{}, ScaleUp: &v1alpha1.ScaleInfo{}}
	}
	gomega.Expect(w.Client.Create(ctx, &v1alpha1.ProbeConfig{ObjectMeta: named("main"), Spec: v1alpha1.ProbeConfigSpec{
		InternalKubeConfigSecretName: "internal", ExternalKubeConfigSecretName: "external", ProbeInterval: "1s", InitialDelay: "0s", InternalProbeFailureBackoffDuration: "1s",
		DependentResourceInfos: []v1alpha1.DependentResourceInfo{dependent("Deployment", "kcm"), dependent("StatefulSet", "ca")},
	}})).To(gomega.Succeed())
	gomega.Eventually(w.Condition).WithContext(ctx).WithArguments("ExternalHealthy").Should(gomega.HaveField("Status", metav1.ConditionTrue))
}

// ensure makes what may be there already.
func (w *World) ensure(ctx context.Context, object client.Object) {
	ginkgo.GinkgoHelper()
	gomega.Expect(client.IgnoreAlreadyExists(w.Client.Create(ctx, object))).To(gomega.Succeed())
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: Namespace, Name: name} }

func (w *World) allowDefault(ctx context.Context) {
	ginkgo.GinkgoHelper()
	w.ensure(ctx, &corev1.ServiceAccount{ObjectMeta: named("default")})
	w.ensure(ctx, &rbacv1.Role{ObjectMeta: named("prober"), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}, {APIGroups: []string{"*"}, Resources: []string{"*/scale"}, Verbs: []string{"update"}},
	}})
	w.ensure(ctx, &rbacv1.RoleBinding{
		ObjectMeta: named("prober"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "prober"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: "default"}},
	})
}

// Condition of the ProbeConfig's status.
func (w *World) Condition(ctx context.Context, conditionType string) (metav1.Condition, error) {
	var pc v1alpha1.ProbeConfig
	err := w.Client.Get(ctx, types.NamespacedName{Namespace: Namespace, Name: "main"}, &pc)
	for _, c := range pc.Status.Conditions {
		if c.Type == conditionType {
			return c, err
		}
	}
	return metav1.Condition{}, err
}

// Said is what a run of the plugin said.
type Said struct {
	Code     int
	Out, Err string
}

// Plugin runs the kubectl plugin with a kubeconfig.
func (w *World) Plugin(ctx context.Context, kubeconfig string, args ...string) Said {
	ginkgo.GinkgoHelper()
	return w.PluginWithInput(ctx, kubeconfig, "", args...)
}

// PluginWithInput runs the kubectl plugin with a kubeconfig and standard input.
func (w *World) PluginWithInput(ctx context.Context, kubeconfig, input string, args ...string) Said {
	ginkgo.GinkgoHelper()
	var out, errOut bytes.Buffer
	command := exec.CommandContext(ctx, filepath.Join(w.BinDir, "kubectl-autohealer"), append(args, "--kubeconfig="+kubeconfig)...)
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &out, &errOut
	err := command.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		gomega.Expect(err).NotTo(gomega.HaveOccurred(), "run `make build`")
	}
	got := Said{command.ProcessState.ExitCode(), out.String(), errOut.String()}
	_, _ = fmt.Fprintf(ginkgo.GinkgoWriter, "$ kubectl autohealer %s\n%s%s", strings.Join(args, " "), got.Out, got.Err)
	return got
}

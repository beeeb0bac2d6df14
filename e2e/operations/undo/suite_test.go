// Package undo tests that people can take back what was done, and that nothing stays behind: with the plugin's own binary,
// under the roles that are shipped for it, while the manager works, is stopped, and when Autohealer's kinds are gone.
package undo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

func TestUndo(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Undo")
}

const (
	repelKey  = "e2e.example.com/repel"
	evictKey  = "e2e.example.com/evict"
	namespace = "shoot"
)

var (
	h *harness.Harness
	// nodes are of zones of their own.
	nodes []string
	// external is the way from outside to the probed API server, which is the cluster's own.
	external *faultproxy.Proxy
	// operator is the kubeconfig of an account with the roles for undo and nothing else.
	operator string
)

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(harness.Within)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	log.SetLogger(GinkgoLogr) // takes the API server's warnings
	var err error
	h, err = harness.Start(ctx, harness.Options{Out: GinkgoWriter, ManagerArgs: []string{"--leader-elect=false", "--probe-loopback"}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(h.Stop()).To(Succeed()) })
	for i := range 30 {
		added, err := h.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: fmt.Sprintf("worker-%d", i)})
		Expect(err).NotTo(HaveOccurred())
		nodes = append(nodes, added...)
	}
	Expect(h.StartManager(ctx)).To(Succeed())
	operator = account(ctx, "operator", "autohealer-operator", "autohealer-workload-operator")
	createPolicies(ctx)
	createProbed(ctx)
})

// account makes one with these ClusterRoles, and gives its kubeconfig.
func account(ctx context.Context, name string, roles ...string) string {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Namespace: "default", Name: name}
	Expect(h.Client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta})).To(Succeed())
	for _, role := range roles {
		Expect(h.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: name}},
		})).To(Succeed())
	}
	kubeconfig, err := h.ServiceAccountKubeconfig(ctx, meta.Namespace, name)
	Expect(err).NotTo(HaveOccurred())
	return kubeconfig
}

func createPolicies(ctx context.Context) {
	GinkgoHelper()
	for _, set := range []*v1alpha1.ConditionSet{
		fixture.NewSet("repelling", repelKey, corev1.TaintEffectNoSchedule, "Broken"),
		fixture.NewSet("evicting", evictKey, corev1.TaintEffectNoExecute, "Dead"),
	} {
		Expect(h.Client.Create(ctx, set)).To(Succeed())
	}
}

// createProbed makes a ProbeConfig with a Deployment of two and a StatefulSet of one.
func createProbed(ctx context.Context) {
	GinkgoHelper()
	Expect(h.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	Expect(h.LetProbe(ctx, namespace)).To(Succeed())
	allowDefault(ctx)
	internal := proxy()
	external = proxy()
	for name, p := range map[string]*faultproxy.Proxy{"internal": internal, "external": external} {
		Expect(h.Client.Create(ctx, &corev1.Secret{ObjectMeta: named(name), Data: map[string][]byte{"kubeconfig": kubeconfigBy(p)}})).To(Succeed())
	}
	two, one := int32(2), int32(1)
	selector := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	template := func(app string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	}
	Expect(h.Client.Create(ctx, &appsv1.Deployment{ObjectMeta: named("kcm"), Spec: appsv1.DeploymentSpec{Replicas: &two, Selector: selector("kcm"), Template: template("kcm")}})).To(Succeed())
	Expect(h.Client.Create(ctx, &appsv1.StatefulSet{ObjectMeta: named("ca"), Spec: appsv1.StatefulSetSpec{Replicas: &one, Selector: selector("ca"), Template: template("ca"), ServiceName: "ca"}})).To(Succeed())
	dependent := func(kind, name string) v1alpha1.DependentResourceInfo {
		return v1alpha1.DependentResourceInfo{Ref: v1alpha1.DependentRef{APIVersion: "apps/v1", Kind: kind, Name: name}, ScaleDown: &v1alpha1.ScaleInfo{}, ScaleUp: &v1alpha1.ScaleInfo{}}
	}
	Expect(h.Client.Create(ctx, &v1alpha1.ProbeConfig{ObjectMeta: named("main"), Spec: v1alpha1.ProbeConfigSpec{
		InternalKubeConfigSecretName: "internal", ExternalKubeConfigSecretName: "external", ProbeInterval: "1s", InitialDelay: "0s", InternalProbeFailureBackoffDuration: "1s",
		DependentResourceInfos: []v1alpha1.DependentResourceInfo{dependent("Deployment", "kcm"), dependent("StatefulSet", "ca")},
	}})).To(Succeed())
	Eventually(condition).WithContext(ctx).WithArguments("ExternalHealthy").Should(HaveField("Status", metav1.ConditionTrue))
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }

func allowDefault(ctx context.Context) {
	GinkgoHelper()
	Expect(client.IgnoreAlreadyExists(h.Client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: named("default")}))).To(Succeed())
	Expect(h.Client.Create(ctx, &rbacv1.Role{ObjectMeta: named("prober"), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}, {APIGroups: []string{"*"}, Resources: []string{"*/scale"}, Verbs: []string{"update"}},
	}})).To(Succeed())
	Expect(h.Client.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: named("prober"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "prober"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "default"}},
	})).To(Succeed())
}

func proxy() *faultproxy.Proxy {
	GinkgoHelper()
	p, err := faultproxy.Start(strings.TrimPrefix(h.URL, "https://"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(p.Stop()).To(Succeed()) })
	return p
}

func kubeconfigBy(p *faultproxy.Proxy) []byte {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(h.Kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	for _, c := range config.Clusters {
		c.Server = "https://" + p.Addr()
	}
	text, err := clientcmd.Write(*config)
	Expect(err).NotTo(HaveOccurred())
	return text
}

// condition of the ProbeConfig's status.
func condition(ctx context.Context, conditionType string) (metav1.Condition, error) {
	var pc v1alpha1.ProbeConfig
	err := h.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "main"}, &pc)
	for _, c := range pc.Status.Conditions {
		if c.Type == conditionType {
			return c, err
		}
	}
	return metav1.Condition{}, err
}

// said is what a run of the plugin said.
type said struct {
	Code     int
	Out, Err string
}

// plugin runs the kubectl plugin with a kubeconfig.
func plugin(ctx context.Context, kubeconfig string, args ...string) said {
	GinkgoHelper()
	var out, errOut bytes.Buffer
	command := exec.CommandContext(ctx, filepath.Join(h.BinDir, "kubectl-autohealer"), append(args, "--kubeconfig="+kubeconfig)...)
	command.Stdout, command.Stderr = &out, &errOut
	err := command.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		Expect(err).NotTo(HaveOccurred(), "run `make build`")
	}
	got := said{command.ProcessState.ExitCode(), out.String(), errOut.String()}
	_, _ = fmt.Fprintf(GinkgoWriter, "$ kubectl autohealer %s\n%s%s", strings.Join(args, " "), got.Out, got.Err)
	return got
}

package probeconfig

import (
	"context"
	"fmt"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
)

// shoot is a namespace with the Secrets, and later the dependents, of one probed cluster. The two ways there are its own.
type shoot struct {
	namespace          string
	internal, external *faultproxy.Proxy
}

var shoots int

func newShoot(ctx context.Context) shoot {
	GinkgoHelper()
	return newShoots(ctx, 1)[0]
}

// newShoots makes several, all at once.
func newShoots(ctx context.Context, n int) []shoot {
	GinkgoHelper()
	var all []shoot
	for range n {
		shoots++
		s := shoot{namespace: fmt.Sprintf("shoot-%d", shoots), internal: newProxy(), external: newProxy()}
		all = append(all, s)
		DeferCleanup(func(ctx context.Context) {
			Expect(h.Client.DeleteAllOf(ctx, &v1alpha1.ProbeConfig{}, client.InNamespace(s.namespace))).To(Succeed())
		})
	}
	atOnce(all, func(s shoot) {
		Expect(h.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})).To(Succeed())
		Expect(h.LetProbe(ctx, s.namespace)).To(Succeed())
		s.allow(ctx, readSecrets, scaleAll)
		s.put(ctx, "internal", kubeconfigOf(s.internal.Addr()))
		s.put(ctx, "external", kubeconfigOf(s.external.Addr()))
	})
	return all
}

// What the account of a config must be allowed.
var (
	readSecrets = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}
	scaleAll    = rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*/scale"}, Verbs: []string{"update"}}
)

// atOnce does something with all of them at once, a few at a time.
func atOnce[T any](all []T, do func(T)) {
	GinkgoHelper()
	var working sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, one := range all {
		working.Go(func() {
			defer GinkgoRecover()
			slots <- struct{}{}
			defer func() { <-slots }()
			do(one)
		})
	}
	working.Wait()
}

func newProxy() *faultproxy.Proxy {
	GinkgoHelper()
	p, err := faultproxy.Start(strings.TrimPrefix(probed.URL, "https://"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(p.Stop()).To(Succeed()) })
	return p
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// allow lets the namespace's default account do something there.
func (s shoot) allow(ctx context.Context, rules ...rbacv1.PolicyRule) {
	GinkgoHelper()
	Expect(client.IgnoreAlreadyExists(h.Client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: named(s.namespace, "default")}))).To(Succeed())
	Expect(h.Client.Create(ctx, &rbacv1.Role{ObjectMeta: named(s.namespace, "prober"), Rules: rules})).To(Succeed())
	s.bind(ctx)
}

// bind gives the account its role.
func (s shoot) bind(ctx context.Context) {
	GinkgoHelper()
	Expect(h.Client.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: named(s.namespace, "prober"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "prober"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: "default"}},
	})).To(Succeed())
}

// kubeconfigOf is an admin's of the probed cluster, by another address, with changes.
func kubeconfigOf(address string, changes ...func(*api.Config)) []byte {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(probed.Kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	for _, c := range config.Clusters {
		c.Server = "https://" + address
	}
	for _, change := range changes {
		change(config)
	}
	text, err := clientcmd.Write(*config)
	Expect(err).NotTo(HaveOccurred())
	return text
}

// put creates or replaces a Secret.
func (s shoot) put(ctx context.Context, name string, kubeconfig []byte) {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: named(s.namespace, name), Data: map[string][]byte{"kubeconfig": kubeconfig}}
	err := h.Client.Create(ctx, secret)
	if client.IgnoreAlreadyExists(err) == nil && err != nil {
		err = h.Client.Update(ctx, secret)
	}
	Expect(err).NotTo(HaveOccurred())
}

// deploy makes a Deployment, with pods where replicas are asked for.
func (s shoot) deploy(ctx context.Context, name string, replicas int32) {
	GinkgoHelper()
	Expect(h.Client.Create(ctx, &appsv1.Deployment{ObjectMeta: named(s.namespace, name), Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: selector(name), Template: template(name),
	}})).To(Succeed())
}

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func template(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Image: "none"}},
	}}
}

// dependent names a Deployment with its places in the order.
func dependent(name string, down, up int32) v1alpha1.DependentResourceInfo {
	return dependentOf("apps/v1", "Deployment", name, down, up)
}

func dependentOf(apiVersion, kind, name string, down, up int32) v1alpha1.DependentResourceInfo {
	return v1alpha1.DependentResourceInfo{
		Ref:       v1alpha1.DependentRef{APIVersion: apiVersion, Kind: kind, Name: name},
		ScaleDown: &v1alpha1.ScaleInfo{Level: down}, ScaleUp: &v1alpha1.ScaleInfo{Level: up},
	}
}

// prober probes every second and decides after three. It gives an answer as much of that as it may: a slow machine is no failure.
func (s shoot) prober(name string, dependents ...v1alpha1.DependentResourceInfo) *v1alpha1.ProbeConfig {
	return &v1alpha1.ProbeConfig{ObjectMeta: named(s.namespace, name), Spec: v1alpha1.ProbeConfigSpec{
		InternalKubeConfigSecretName: "internal", ExternalKubeConfigSecretName: "external",
		ProbeInterval: "1s", ProbeTimeout: "900ms", InitialDelay: "0s", InternalProbeFailureBackoffDuration: "1s", DependentResourceInfos: dependents,
	}}
}

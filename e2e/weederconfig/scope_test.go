package weederconfig

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("A config", func() {
	It("with readyPolicy AllReady waits for the last of a Service's pods", func(ctx SpecContext) {
		s := newShop(ctx)
		s.deploy(ctx, "etcd", 2, nil)
		s.deploy(ctx, "api", 1, map[string]string{crash: "true"})
		etcd, before := s.pods(ctx, "etcd"), s.uids(ctx, "api")
		Expect(h.Client.Create(ctx, &corev1.Service{ObjectMeta: named(s.namespace, "etcd"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})).To(Succeed())
		s.write(ctx, "etcd", "etcd-a", false, etcd[0])
		s.write(ctx, "etcd", "etcd-b", false, etcd[1])
		wc := s.weeder("all", "etcd", "api")
		wc.Spec.ReadyPolicy = v1alpha1.AllReady
		create(ctx, wc)
		s.write(ctx, "etcd", "etcd-a", true, etcd[0])
		Consistently(activeWindows(ctx, wc)).WithTimeout(moment).Should(BeZero(), "one of two is ready")
		Expect(s.uids(ctx, "api")).To(Equal(before))
		s.write(ctx, "etcd", "etcd-b", true, etcd[1])
		Eventually(s.uids).WithContext(ctx).WithArguments("api").ShouldNot(Equal(before))
	})

	It("with a namespaceSelector holds in those namespaces, by Autohealer's own rights", func(ctx SpecContext) {
		inside, outside := newShop(ctx), newShop(ctx)
		label := func(s shop, value string) {
			ns := &corev1.Namespace{ObjectMeta: named("", s.namespace)}
			Expect(h.Client.Patch(ctx, ns, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"weed":"`+value+`"}}}`)))).To(Succeed())
		}
		label(inside, "yes")
		for _, s := range []shop{inside, outside} {
			Expect(h.Client.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: named(s.namespace, "default")})).To(Succeed())
			s.upstream(ctx, "etcd", 1)
			s.deploy(ctx, "api", 1, map[string]string{crash: "true"})
		}
		wc := shop{harness.Namespace}.weeder("fan-out", "etcd", "api")
		wc.Spec.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"weed": "yes"}}
		create(ctx, wc)
		DeferCleanup(func(ctx context.Context) { Expect(h.Client.Delete(ctx, wc)).To(Succeed()) })
		in, out := inside.uids(ctx, "api"), outside.uids(ctx, "api")
		for _, s := range []shop{outside, inside} {
			s.down(ctx, "etcd")
			s.up(ctx, "etcd")
		}
		Eventually(inside.uids).WithContext(ctx).WithArguments("api").ShouldNot(Equal(in))
		Expect(outside.uids(ctx, "api")).To(Equal(out))

		By("a namespace that gets the label")
		label(outside, "yes")
		Eventually(func() (int32, error) { st, err := status(ctx, wc); return st.Services, err }).Should(BeEquivalentTo(2))
		outside.down(ctx, "etcd")
		outside.up(ctx, "etcd")
		Eventually(outside.uids).WithContext(ctx).WithArguments("api").ShouldNot(Equal(out))
	})
})

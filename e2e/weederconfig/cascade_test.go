package weederconfig

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// dependencyWatchdogs is a configuration of dependency-watchdog's weeder, as it is.
const dependencyWatchdogs = `
watchDuration: 2m0s
servicesAndDependantSelectors:
  etcd-main-client:
    podSelectors:
      - matchExpressions:
          - key: gardener.cloud/role
            operator: In
            values:
              - controlplane
          - key: role
            operator: In
            values:
              - apiserver
  kube-apiserver:
    podSelectors:
      - matchExpressions:
          - key: gardener.cloud/role
            operator: In
            values:
              - controlplane
          - key: role
            operator: NotIn
            values:
              - main
              - apiserver
`

var _ = Describe("A chain of Services", func() {
	It("recovers link by link, each as soon as the one before is Ready", func(ctx SpecContext) {
		s := newShop(ctx)
		role := func(role string) map[string]string {
			return map[string]string{"gardener.cloud/role": "controlplane", "role": role}
		}
		s.serve(ctx, "etcd-main-client")
		s.serve(ctx, "kube-apiserver")
		s.deploy(ctx, "etcd-main-client", 1, role("main"))
		s.deploy(ctx, "kube-apiserver", 2, role("apiserver"))
		s.deploy(ctx, "controller-manager", 1, role("controller-manager"))

		By("etcd goes down, and with it who needs it, and who needs those")
		s.down(ctx, "etcd-main-client")
		s.fail(ctx, "kube-apiserver")
		Eventually(s.readyEndpoints).WithContext(ctx).WithArguments("kube-apiserver").Should(BeZero())
		s.fail(ctx, "controller-manager")
		wc := s.weeder("chain", "", "")
		wc.Spec = v1alpha1.WeederConfigSpec{}
		Expect(yaml.UnmarshalStrict([]byte(dependencyWatchdogs), &wc.Spec)).To(Succeed())
		create(ctx, wc)
		apiservers, manager := s.uids(ctx, "kube-apiserver"), s.uids(ctx, "controller-manager")
		Consistently(s.uids).WithContext(ctx).WithArguments("kube-apiserver").WithTimeout(moment).Should(Equal(apiservers))

		By("etcd recovers, and nobody touches the others")
		s.up(ctx, "etcd-main-client")
		Eventually(s.uids).WithContext(ctx).WithArguments("kube-apiserver").Should(
			And(HaveLen(2), Not(ContainElement(apiservers[0])), Not(ContainElement(apiservers[1]))))
		Eventually(s.uids).WithContext(ctx).WithArguments("controller-manager").Should(
			And(HaveLen(1), Not(Equal(manager))))
		Eventually(s.ready).WithContext(ctx).WithArguments("controller-manager").Should(Equal(1))
		Eventually(deleted(ctx, wc)).Should(BeEquivalentTo(3))
		Expect(status(ctx, wc)).To(HaveField("LastTriggered", HaveValue(HaveField("Service", "kube-apiserver"))))
	})
})

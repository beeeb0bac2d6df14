package probeconfig

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// settled is longer than a target must be healthy before it is scaled up.
const settled = 2 * time.Minute

// fillers are healthy targets: among so few as these specs break, more than a tenth would open the breaker.
const fillers = 40

var _ = Describe("dependents are scaled", Ordered, func() {
	var broken, killed, deleted, inside, cutOff, flapping shoot

	BeforeAll(func(ctx SpecContext) {
		fill(ctx)
		for _, s := range []*shoot{&broken, &killed, &deleted, &inside, &cutOff, &flapping} {
			*s = newShoot(ctx)
			s.deploy(ctx, "kcm", 2)
			s.deploy(ctx, "idle", 0)
			s.state(ctx, "ca", 1)
			last := dependentOf("apps/v1", "StatefulSet", "ca", 1, 0)
			if s == &killed {
				last.ScaleDown.InitialDelay = "3s"
			}
			pc := s.prober("prober", dependent("kcm", 0, 1), dependent("idle", 0, 1), last)
			if s == &flapping {
				pc.Spec.FailureThreshold = ptr.To[int32](8) // the status, by which the spec goes, may be late
			}
			Expect(h.Client.Create(ctx, pc)).To(Succeed())
			Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionTrue), "the way from outside works")
		}
	}, NodeTimeout(2*time.Minute))

	It("to 0 when only the way from outside is cut, level by level", func(ctx SpecContext) {
		cut(broken.external)
		Eventually(broken.replicas).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 0, "idle": 0, "ca": 0}))
		Expect(broken.scalings(ctx)).To(Equal([]string{"kcm 0", "ca 0"}), "what was at 0 already isn't touched")
		Eventually(broken.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionProtectionActive).Should(Equal(metav1.ConditionTrue))
	}, SpecTimeout(harness.Within))

	It("not at all when the way from inside is cut, or both are, or when it comes and goes", func(ctx SpecContext) {
		cut(inside.internal)
		cut(cutOff.internal, cutOff.external)
		Eventually(inside.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionInternalHealthy).Should(Equal(metav1.ConditionFalse))
		Eventually(cutOff.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionInternalHealthy).Should(Equal(metav1.ConditionFalse))
		for range 3 { // each time it fails once at least, and never often enough in a row
			cut(flapping.external)
			Eventually(flapping.errors).WithContext(ctx).Should(BeNumerically(">", 0))
			mend(flapping.external)
			Eventually(flapping.errors).WithContext(ctx).Should(BeZero())
		}
		for _, s := range []shoot{inside, cutOff, flapping} {
			Expect(s.replicas(ctx)).To(Equal(map[string]int32{"kcm": 2, "idle": 0, "ca": 1}))
			Expect(s.scalings(ctx)).To(BeEmpty())
		}
	}, SpecTimeout(2*time.Minute))

	It("to the end also when the manager is killed between two levels", func(ctx SpecContext) {
		cut(killed.external)
		Eventually(func(ctx context.Context) []string { return killed.scalings(ctx) }).WithContext(ctx).Should(Equal([]string{"kcm 0"}))
		Expect(h.Kill(harness.Manager, syscall.SIGKILL)).To(Succeed())
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		Expect(killed.scalings(ctx)).To(Equal([]string{"kcm 0"}), "it died in between")
		Expect(h.StartComponent(ctx, harness.Manager)).To(Succeed())
		Eventually(killed.scalings).WithContext(ctx).Should(Equal([]string{"kcm 0", "ca 0"}))
	}, SpecTimeout(time.Minute))

	It("back at once when the config is deleted", func(ctx SpecContext) {
		cut(deleted.external)
		Eventually(deleted.replicas).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 0, "idle": 0, "ca": 0}))
		Expect(h.Client.Delete(ctx, deleted.prober("prober"))).To(Succeed())
		Eventually(deleted.replicas).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 2, "idle": 0, "ca": 1}))
		Eventually(deleted.records).WithContext(ctx).Should(BeEmpty())
	}, SpecTimeout(time.Minute))

	It("back to what they had a minute after it recovers, and nothing else is", func(ctx SpecContext) {
		Expect(h.Client.Patch(ctx, &appsv1.Deployment{ObjectMeta: named(killed.namespace, "kcm")},
			client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":5}}`)))).To(Succeed())
		mend(broken.external, killed.external, inside.internal, cutOff.internal, cutOff.external)
		Eventually(broken.replicas, settled).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 2, "idle": 0, "ca": 1}))
		Expect(broken.scalings(ctx)).To(Equal([]string{"kcm 0", "ca 0", "ca 1", "kcm 2"}), "in the order of scaleUp")
		Eventually(broken.records).WithContext(ctx).Should(BeEmpty())
		Eventually(killed.replicas, settled).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 5, "idle": 0, "ca": 1}), "what someone else scaled meanwhile is left alone")
		for _, s := range []shoot{inside, cutOff, flapping} {
			Expect(s.scalings(ctx)).To(BeEmpty())
		}
	}, SpecTimeout(2*settled))

	It("by no config whose targets fail with a tenth of all, until someone looks", func(ctx SpecContext) {
		cut(fillersExternal)
		Eventually(func(ctx context.Context) (metav1.ConditionStatus, error) {
			return conditionOf(ctx, &v1alpha1.ProbeConfig{ObjectMeta: named(harness.Namespace, "fillers")}, "BreakerOpen")
		}).WithContext(ctx).Should(Equal(metav1.ConditionTrue))
		var all appsv1.DeploymentList
		Expect(h.Client.List(ctx, &all, client.MatchingLabels{"filler": "true"})).To(Succeed())
		down := 0
		for _, d := range all.Items {
			if *d.Spec.Replicas == 0 {
				down++
			}
		}
		Expect(all.Items).To(HaveLen(fillers))
		Expect(down).To(BeNumerically("<=", fillers/10+1), "targets that were scaled down before so many had turned")
	}, SpecTimeout(2*time.Minute))
})

// fillersExternal is the way from outside of all fillers.
var fillersExternal *faultproxy.Proxy

// fill makes many targets of one config, each with a Deployment whose pods nobody schedules.
func fill(ctx context.Context) {
	GinkgoHelper()
	internal := newProxy()
	fillersExternal = newProxy()
	one := int32(1)
	for i := range fillers {
		s := shoot{namespace: fmt.Sprintf("filler-%d", i)}
		Expect(h.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace, Labels: map[string]string{"filler": "true"}}})).To(Succeed())
		Expect(h.LetProbe(ctx, s.namespace)).To(Succeed())
		s.put(ctx, "internal", kubeconfigOf(internal.Addr()))
		s.put(ctx, "external", kubeconfigOf(fillersExternal.Addr()))
		Expect(h.Client.Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "kcm", Labels: map[string]string{"filler": "true"}},
			Spec:       appsv1.DeploymentSpec{Replicas: &one, Paused: true, Selector: selector("kcm"), Template: template("kcm")},
		})).To(Succeed())
	}
	pc := shoot{namespace: harness.Namespace}.prober("fillers", dependent("kcm", 0, 0))
	pc.Spec.ProbeInterval = "5s"
	pc.Spec.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"filler": "true"}}
	Expect(h.Client.Create(ctx, pc)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(h.Client.Delete(ctx, pc)).To(Succeed()) })
	Eventually(func(ctx context.Context) (int32, error) {
		err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc)
		if pc.Status.Targets == nil {
			return 0, err
		}
		return pc.Status.Targets.Probed, err
	}, "1m").WithContext(ctx).Should(BeEquivalentTo(fillers), "the config probes every namespace that it selects")
}

// cut breaks ways for good, open connections included; mend lets new ones through.
func cut(ways ...*faultproxy.Proxy) {
	for _, p := range ways {
		p.BreakNew(faultproxy.Reset)
		p.BreakOpen(faultproxy.Reset)
	}
}

func mend(ways ...*faultproxy.Proxy) {
	for _, p := range ways {
		p.BreakNew(faultproxy.None)
	}
}

// state makes a StatefulSet.
func (s shoot) state(ctx context.Context, name string, replicas int32) {
	GinkgoHelper()
	Expect(h.Client.Create(ctx, &appsv1.StatefulSet{ObjectMeta: named(s.namespace, name), Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: selector(name), Template: template(name), ServiceName: name,
	}})).To(Succeed())
}

// replicas that are asked for, by name.
func (s shoot) replicas(ctx context.Context) (map[string]int32, error) {
	all := map[string]int32{}
	err := s.each(ctx, func(name string, replicas int32, _ map[string]string) { all[name] = replicas })
	return all, err
}

// records are the names of what carries a record of ours.
func (s shoot) records(ctx context.Context) (names []string, err error) {
	err = s.each(ctx, func(name string, _ int32, annotations map[string]string) {
		if annotations["autohealer.resourcestack.com/original-replicas"] != "" {
			names = append(names, name)
		}
	})
	return names, err
}

func (s shoot) each(ctx context.Context, do func(name string, replicas int32, annotations map[string]string)) error {
	var deployments appsv1.DeploymentList
	if err := h.Client.List(ctx, &deployments, client.InNamespace(s.namespace)); err != nil {
		return err
	}
	for _, d := range deployments.Items {
		do(d.Name, *d.Spec.Replicas, d.Annotations)
	}
	var sets appsv1.StatefulSetList
	if err := h.Client.List(ctx, &sets, client.InNamespace(s.namespace)); err != nil {
		return err
	}
	for _, set := range sets.Items {
		do(set.Name, *set.Spec.Replicas, set.Annotations)
	}
	return nil
}

// scalings are the manager's writes of scales in the namespace that succeeded, in their order.
func (s shoot) scalings(context.Context) (writes []string) {
	GinkgoHelper()
	file, err := os.Open(h.AuditLog)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var event auditv1.Event
		if json.Unmarshal(lines.Bytes(), &event) != nil { // the last line may be half written
			continue
		}
		ref := event.ObjectRef
		if event.User.Username != harness.Username || ref == nil || ref.Subresource != "scale" || ref.Namespace != s.namespace || event.ResponseStatus.Code != 200 {
			continue
		}
		var scale struct{ Spec struct{ Replicas int32 } }
		Expect(json.Unmarshal(event.RequestObject.Raw, &scale)).To(Succeed())
		writes = append(writes, fmt.Sprintf("%s %d", ref.Name, scale.Spec.Replicas))
	}
	return writes
}

func (s shoot) condition(ctx context.Context, conditionType string) (metav1.ConditionStatus, error) {
	return conditionOf(ctx, &v1alpha1.ProbeConfig{ObjectMeta: named(s.namespace, "prober")}, conditionType)
}

func conditionOf(ctx context.Context, pc *v1alpha1.ProbeConfig, conditionType string) (metav1.ConditionStatus, error) {
	if err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
		return "", err
	}
	if c := meta.FindStatusCondition(pc.Status.Conditions, conditionType); c != nil {
		return c.Status, nil
	}
	return "", nil
}

// errors in a row of the external probe, as the status tells.
func (s shoot) errors(ctx context.Context) (int32, error) {
	pc := s.prober("prober")
	if err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil || pc.Status.External == nil {
		return 0, err
	}
	return pc.Status.External.ErrorCount, nil
}

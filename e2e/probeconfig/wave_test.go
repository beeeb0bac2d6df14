package probeconfig

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// waveSize is many: among so many targets the few that other specs break don't open the breaker.
const waveSize = 200

// wave is many targets of one config, which fail together.
type wave struct {
	config             *v1alpha1.ProbeConfig
	internal, external *faultproxy.Proxy
	said               sayings
}

// newWave makes the targets, each with a Deployment whose pods nobody schedules.
func newWave(ctx context.Context) *wave {
	GinkgoHelper()
	w := &wave{internal: newProxy(), external: newProxy()}
	label := map[string]string{"wave": "true"}
	var namespaces []shoot
	for i := range waveSize {
		namespaces = append(namespaces, shoot{namespace: fmt.Sprintf("wave-%d", i)})
	}
	atOnce(namespaces, func(s shoot) {
		Expect(h.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace, Labels: label}})).To(Succeed())
		Expect(h.LetProbe(ctx, s.namespace)).To(Succeed())
		s.put(ctx, "internal", kubeconfigOf(w.internal.Addr()))
		s.put(ctx, "external", kubeconfigOf(w.external.Addr()))
		s.deployPaused(ctx, "kcm", label)
	})
	w.config = shoot{namespace: harness.Namespace}.prober("wave", dependent("kcm", 0, 0))
	// On a busy machine some of so many are answered late. A few that are so three times in a row would open the breaker, and no
	// spec's targets would be scaled down any more.
	w.config.Spec.ProbeInterval, w.config.Spec.ProbeTimeout = "10s", "9900ms"
	w.config.Spec.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: label}
	Expect(h.Client.Create(ctx, w.config.DeepCopy())).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(h.Client.Delete(ctx, w.config)).To(Succeed()) })
	Eventually(w.status).WithContext(ctx).Should(HaveField("ProvenKubeconfigs", HaveLen(waveSize)), "the config has reached what is probed in every namespace that it selects")
	w.hear(ctx)
	return w
}

// deployPaused makes a Deployment with a replica that nobody makes a pod of.
func (s shoot) deployPaused(ctx context.Context, name string, label map[string]string) {
	GinkgoHelper()
	Expect(h.Client.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: label},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Paused: true, Selector: selector(name), Template: template(name)},
	})).To(Succeed())
}

// targets as the status counts them.
func (w *wave) targets(ctx context.Context) (v1alpha1.TargetCounts, error) {
	status, err := w.status(ctx)
	return ptr.Deref(status.Targets, v1alpha1.TargetCounts{}), err
}

func (w *wave) status(ctx context.Context) (v1alpha1.ProbeConfigStatus, error) {
	err := h.Client.Get(ctx, client.ObjectKeyFromObject(w.config), w.config)
	return w.config.Status, err
}

// says is what a condition of the config says; "" when there is none.
func (w *wave) says(ctx context.Context, condition string) (string, error) {
	status, err := w.status(ctx)
	if c := meta.FindStatusCondition(status.Conditions, condition); c != nil {
		return c.Message, err
	}
	return "", err
}

// sayings are what a config's Ready said, one after the other.
type sayings struct {
	mu    sync.Mutex
	texts []string
}

// hear keeps what the config's Ready says from now on, until the container ends: it may have passed when a busy machine's spec
// comes to ask.
func (w *wave) hear(ctx context.Context) {
	GinkgoHelper()
	c, err := client.NewWithWatch(h.Config, client.Options{Scheme: harness.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	Expect(c.Get(ctx, client.ObjectKeyFromObject(w.config), w.config)).To(Succeed())
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	events, err := toolswatch.NewRetryWatcherWithContext(watching, w.config.ResourceVersion, &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, &v1alpha1.ProbeConfigList{}, client.InNamespace(w.config.Namespace), &client.ListOptions{Raw: &o})
		},
	})
	Expect(err).NotTo(HaveOccurred())
	name := w.config.Name
	var running sync.WaitGroup
	running.Go(func() {
		for event := range events.ResultChan() {
			if config, ok := event.Object.(*v1alpha1.ProbeConfig); ok && config.Name == name {
				w.said.note(config)
			}
		}
	})
	DeferCleanup(func() {
		stop()
		events.Stop()
		running.Wait()
	})
}

func (l *sayings) note(config *v1alpha1.ProbeConfig) {
	if c := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		l.mu.Lock()
		l.texts = append(l.texts, c.Message)
		l.mu.Unlock()
	}
}

func (l *sayings) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Compact(slices.Clone(l.texts))
}

// down are the targets whose Deployment asks for no replicas.
func (w *wave) down(ctx context.Context) (n int, err error) {
	var all appsv1.DeploymentList
	err = h.Client.List(ctx, &all, client.MatchingLabels{"wave": "true"})
	for _, d := range all.Items {
		if *d.Spec.Replicas == 0 {
			n++
		}
	}
	return n, err
}

// told are the reasons of the Events on the config.
func (w *wave) told(ctx context.Context) ([]string, error) {
	var all eventsv1.EventList
	err := h.Client.List(ctx, &all, client.InNamespace(harness.Namespace))
	var reasons []string
	for _, e := range all.Items {
		if e.Regarding.Kind == "ProbeConfig" && e.Regarding.Name == w.config.Name {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons, err
}

// noCap lets all targets be scaled down at once.
var noCap = intstr.FromString("100%")

// capTargets lets so many targets be scaled down at once, until the container ends.
func capTargets(ctx context.Context, most intstr.IntOrString) *v1alpha1.Guardrail {
	GinkgoHelper()
	rail := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "wave"}, Spec: v1alpha1.GuardrailSpec{
		Limits: &v1alpha1.GuardrailLimits{MaxScaledDownTargets: &most},
	}}
	Expect(h.Client.Create(ctx, rail)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(h.Client.Delete(ctx, rail)).To(Succeed()) })
	inForce(ctx, rail)
	return rail
}

// recap lets another number be.
func recap(ctx context.Context, rail *v1alpha1.Guardrail, most intstr.IntOrString) {
	GinkgoHelper()
	rail.Spec.Limits.MaxScaledDownTargets = &most
	Expect(h.Client.Update(ctx, rail)).To(Succeed())
	inForce(ctx, rail)
}

// inForce waits until a Guardrail is, as it is stored now.
func inForce(ctx context.Context, rail *v1alpha1.Guardrail) {
	GinkgoHelper()
	generation := rail.Generation
	Eventually(func(ctx context.Context) (bool, error) {
		err := h.Client.Get(ctx, client.ObjectKeyFromObject(rail), rail)
		c := meta.FindStatusCondition(rail.Status.Conditions, v1alpha1.ConditionReady)
		return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration >= generation, err
	}).WithContext(ctx).Should(BeTrue(), "the Guardrail is in force")
}

// breakTogether breaks all of the wave. What other specs have scaled down counts as well, as long as it is.
func (s *story) breakTogether() {
	const most = 30

	It("by no config of which 200 targets fail together, until someone looked; then as many as the cap allows, and the rest wait", func(ctx SpecContext) {
		world := s.wave
		recap(ctx, s.rail, intstr.FromInt32(most))
		DeferCleanup(func(ctx context.Context) { recap(ctx, s.rail, noCap) })
		cut(world.external)
		DeferCleanup(func() { mend(world.external) })
		Eventually(world.says).WithContext(ctx).WithArguments(v1alpha1.ConditionBreakerOpen).Should(ContainSubstring("Too many targets turned unhealthy together"))
		Eventually(world.targets).WithContext(ctx).Should(HaveField("ExternalUnhealthy", BeEquivalentTo(waveSize)))
		before, err := world.down(ctx)
		Expect(err).NotTo(HaveOccurred())
		recap(ctx, s.rail, noCap) // nothing but the breaker is in the way
		Consistently(world.down, "5s").WithContext(ctx).Should(Equal(before), "those that were scaled down before so many had turned")
		Expect(before).To(BeNumerically("<=", most))
		recap(ctx, s.rail, intstr.FromInt32(most))

		By("resetting the breaker")
		status, err := world.status(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(status.WorstTargets).To(HaveLen(20), "it stays bounded")
		code, output := plugin(ctx, "reset", "-n", harness.Namespace, "probeconfig/wave", "--timeout="+settled.String())
		Expect(code).To(Equal(0), output)
		Expect(output).To(MatchRegexp(`^probeconfig.autohealer.resourcestack.com/wave: the breaker of all ProbeConfigs that opened .* ago is reset. 200 of its 200 targets fail the external probe: wave-0, .*, ….`))
		_, output = plugin(ctx, "reset", "-n", harness.Namespace, "probeconfig/wave")
		Expect(output).To(Equal("The breaker of probeconfig/wave is not open.\n"))
		Eventually(targetsDown).WithContext(ctx).Should(Equal(most), "of all configs")
		Eventually(world.says).WithContext(ctx).WithArguments(v1alpha1.ConditionLimitReached).Should(MatchRegexp(
			"^1[0-9]+ targets held back: %d of 2.. targets are scaled down, and maxScaledDownTargets %d allows %d.$", most, most, most))
		Eventually(world.told).WithContext(ctx).Should(ContainElements("TooManyFailTogether", "BreakerClosed", "TooManyScaledDown"))
		Consistently(targetsDown, "3s").WithContext(ctx).Should(BeNumerically("<=", most))
		atMost := s.mostDown()
		Expect(len(atMost)).To(BeNumerically("<=", most), "at any time, by the audit log: %s", strings.Join(atMost, " "))

		s.mended = time.Now()
		mend(world.external)
		Eventually(world.targets).WithContext(ctx).Should(HaveField("ExternalUnhealthy", BeZero()))
		Expect(world.downAt(s.mended)).To(BeNumerically(">", 10), "more than go up in a minute")
	}, SpecTimeout(specTime))
}

// targetsDown are the namespaces in which something is scaled down.
func targetsDown(ctx context.Context) (int, error) {
	namespaces := map[string]bool{}
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &appsv1.StatefulSetList{}} {
		if err := h.Client.List(ctx, list, client.HasLabels{"autohealer.resourcestack.com/scaled-down"}); err != nil {
			return 0, err
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			namespaces[o.(client.Object).GetNamespace()] = true
			return nil
		}); err != nil {
			return 0, err
		}
	}
	return len(namespaces), nil
}

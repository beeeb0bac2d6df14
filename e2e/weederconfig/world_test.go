package weederconfig

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Labels that kwok's pods obey.
const (
	crash   = "autohealer.test/crash"
	unready = "autohealer.test/unready"
)

// shop is a namespace of a tenant, with an account that may delete pods.
type shop struct{ namespace string }

var shops int

func newShop(ctx context.Context) shop {
	GinkgoHelper()
	shops++
	s := shop{fmt.Sprintf("shop-%d", shops)}
	Expect(h.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})).To(Succeed())
	s.allow(ctx, "default", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete"}})
	DeferCleanup(s.clear)
	return s
}

// clear ends what a spec would leave at work.
func (s shop) clear(ctx context.Context) {
	GinkgoHelper()
	for _, kind := range []client.Object{&v1alpha1.WeederConfig{}, &appsv1.Deployment{}} {
		Expect(h.Client.DeleteAllOf(ctx, kind, client.InNamespace(s.namespace))).To(Succeed())
	}
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// allow lets an account do something in the namespace, and nothing else by the same name.
func (s shop) allow(ctx context.Context, account string, rules ...rbacv1.PolicyRule) {
	GinkgoHelper()
	Expect(client.IgnoreAlreadyExists(h.Client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: named(s.namespace, account)}))).To(Succeed())
	Expect(h.Client.Create(ctx, &rbacv1.Role{ObjectMeta: named(s.namespace, account), Rules: rules})).To(Succeed())
	Expect(h.Client.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: named(s.namespace, account), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: account}},
	})).To(Succeed())
}

// deploy makes a Deployment of an app and waits for its pods.
func (s shop) deploy(ctx context.Context, app string, replicas int32, labels map[string]string) {
	GinkgoHelper()
	Expect(h.Client.Create(ctx, &appsv1.Deployment{ObjectMeta: named(s.namespace, app), Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Template: podTemplate(app, labels),
	}})).To(Succeed())
	if labels[crash] != "" {
		s.eventuallyCrashes(ctx, app, int(replicas))
		return
	}
	Eventually(s.ready).WithContext(ctx).WithArguments(app).Should(Equal(int(replicas)))
}

// serve makes a Service over an app's pods.
func (s shop) serve(ctx context.Context, app string) {
	GinkgoHelper()
	Expect(h.Client.Create(ctx, &corev1.Service{ObjectMeta: named(s.namespace, app), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": app}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}},
	}})).To(Succeed())
}

// recovered is an app with a Service that turned Ready just now: a config that comes next finds a recovery.
func (s shop) recovered(ctx context.Context, app string) {
	GinkgoHelper()
	s.serve(ctx, app)
	s.deploy(ctx, app, 1, nil)
}

// upstream is an app with a Service that has been Ready for an hour, longer than any watchDuration.
func (s shop) upstream(ctx context.Context, app string, replicas int32) {
	GinkgoHelper()
	s.deploy(ctx, app, replicas, nil)
	for _, pod := range s.pods(ctx, app) {
		before := pod.DeepCopy()
		for i := range pod.Status.Conditions {
			pod.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
		}
		Expect(h.Client.Status().Patch(ctx, &pod, client.MergeFrom(before))).To(Succeed())
	}
	s.serve(ctx, app)
	Eventually(s.readyEndpoints).WithContext(ctx).WithArguments(app).Should(BeEquivalentTo(replicas))
}

func (s shop) pods(ctx context.Context, app string) []corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(h.Client.List(ctx, &pods, client.InNamespace(s.namespace), client.MatchingLabels{"app": app})).To(Succeed())
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return pods.Items
}

func (s shop) uids(ctx context.Context, app string) []types.UID {
	GinkgoHelper()
	var uids []types.UID
	for _, pod := range s.pods(ctx, app) {
		uids = append(uids, pod.UID)
	}
	slices.Sort(uids)
	return uids
}

func (s shop) ready(ctx context.Context, app string) int {
	GinkgoHelper()
	ready := 0
	for _, pod := range s.pods(ctx, app) {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				ready++
			}
		}
	}
	return ready
}

// readySince is when an app's one pod turned Ready, as its kubelet says.
func (s shop) readySince(ctx context.Context, app string) time.Time {
	GinkgoHelper()
	pods := s.pods(ctx, app)
	Expect(pods).To(HaveLen(1))
	for _, c := range pods[0].Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	Fail(app + " isn't Ready")
	return time.Time{}
}

func crashes(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
	})
}

func (s shop) crashing(ctx context.Context, app string) int {
	GinkgoHelper()
	n := 0
	for _, pod := range s.pods(ctx, app) {
		if crashes(&pod) {
			n++
		}
	}
	return n
}

func (s shop) eventuallyCrashes(ctx context.Context, app string, n int) {
	GinkgoHelper()
	Eventually(s.crashing).WithContext(ctx).WithArguments(app).Should(Equal(n), "pods of %s should crash-loop", app)
}

// label puts a label on all of an app's pods, or takes it away.
func (s shop) label(ctx context.Context, app, label string, on bool) {
	GinkgoHelper()
	for _, pod := range s.pods(ctx, app) {
		before := pod.DeepCopy()
		delete(pod.Labels, label)
		if on {
			pod.Labels[label] = "true"
		}
		Expect(client.IgnoreNotFound(h.Client.Patch(ctx, &pod, client.MergeFrom(before)))).To(Succeed())
	}
}

// fail brings all of an app's pods into a crash loop.
func (s shop) fail(ctx context.Context, app string) {
	GinkgoHelper()
	s.label(ctx, app, crash, true)
	s.eventuallyCrashes(ctx, app, len(s.pods(ctx, app)))
}

// failLast brings the app's latest pod into a crash loop.
func (s shop) failLast(ctx context.Context, app string) {
	GinkgoHelper()
	pods := s.pods(ctx, app)
	last := &pods[len(pods)-1]
	before := last.DeepCopy()
	last.Labels[crash] = "true"
	Expect(h.Client.Patch(ctx, last, client.MergeFrom(before))).To(Succeed())
}

// down makes an app's Service notReady, up Ready again.
func (s shop) down(ctx context.Context, app string) {
	GinkgoHelper()
	s.label(ctx, app, unready, true)
	Eventually(s.readyEndpoints).WithContext(ctx).WithArguments(app).Should(BeZero())
}

func (s shop) up(ctx context.Context, app string) {
	GinkgoHelper()
	s.label(ctx, app, unready, false)
	Eventually(s.readyEndpoints).WithContext(ctx).WithArguments(app).ShouldNot(BeZero())
}

// weeder is a config that deletes the pods of each app when the Service recovers. Its windows last longer than a spec takes, since
// they count from when the Service's pods turned Ready.
func (s shop) weeder(name, service string, apps ...string) *v1alpha1.WeederConfig {
	selectors := v1alpha1.DependantSelectors{}
	for _, app := range apps {
		selectors.PodSelectors = append(selectors.PodSelectors, v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": app}})
	}
	return &v1alpha1.WeederConfig{ObjectMeta: named(s.namespace, name), Spec: v1alpha1.WeederConfigSpec{
		WatchDuration: "5m", ServicesAndDependantSelectors: map[string]v1alpha1.DependantSelectors{service: selectors},
	}}
}

// create stores a config and waits until it is in force.
func create(ctx context.Context, wc *v1alpha1.WeederConfig) {
	GinkgoHelper()
	Expect(h.Client.Create(ctx, wc)).To(Succeed())
	Eventually(func() (int64, error) { st, err := status(ctx, wc); return st.ObservedGeneration, err }).Should(Equal(wc.Generation))
	Expect(condition(ctx, wc, "Ready")).To(HaveField("Status", metav1.ConditionTrue))
}

func edit(ctx context.Context, wc *v1alpha1.WeederConfig, change func(*v1alpha1.WeederConfig)) {
	GinkgoHelper()
	Expect(update(ctx, wc, change)).To(Succeed())
	Eventually(func() (int64, error) { st, err := status(ctx, wc); return st.ObservedGeneration, err }).Should(Equal(wc.Generation))
}

// update asks for a change of a stored config, and reads it.
func update(ctx context.Context, wc *v1alpha1.WeederConfig, change func(*v1alpha1.WeederConfig), options ...client.UpdateOption) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := h.Client.Get(ctx, client.ObjectKeyFromObject(wc), wc); err != nil {
			return err
		}
		change(wc)
		return h.Client.Update(ctx, wc, options...)
	})
}

func status(ctx context.Context, wc *v1alpha1.WeederConfig) (v1alpha1.WeederConfigStatus, error) {
	var now v1alpha1.WeederConfig
	err := h.Client.Get(ctx, client.ObjectKeyFromObject(wc), &now)
	return now.Status, err
}

func condition(ctx context.Context, wc *v1alpha1.WeederConfig, conditionType string) metav1.Condition {
	GinkgoHelper()
	st, err := status(ctx, wc)
	Expect(err).NotTo(HaveOccurred())
	if c := meta.FindStatusCondition(st.Conditions, conditionType); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// deleted is how many pods a config's status counts as deleted.
func deleted(ctx context.Context, wc *v1alpha1.WeederConfig) func() (int64, error) {
	return func() (int64, error) { st, err := status(ctx, wc); return st.Deleted, err }
}

func activeWindows(ctx context.Context, wc *v1alpha1.WeederConfig) func() (int32, error) {
	return func() (int32, error) { st, err := status(ctx, wc); return st.ActiveWindows, err }
}

func skipped(ctx context.Context, wc *v1alpha1.WeederConfig, reason string) func() (int64, error) {
	return func() (int64, error) {
		st, err := status(ctx, wc)
		for _, s := range st.Skipped {
			if s.Reason == reason {
				return s.Count, err
			}
		}
		return 0, err
	}
}

// moment is long enough for the manager to do what it does at once.
const moment = time.Second

//go:build linux

package kubelet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
)

// outage is an upstream that isn't there until some moment of its dependents' back-off. Two Deployments need it: one of the
// outage's name, which a WeederConfig selects, and one that is left alone.
type outage struct {
	name string
	// restarts before the back-off in which the outage shall end: the kubelet backs off for 10 s after the first, then for
	// 20 s, 40 s, … up to 300 s.
	restarts int32
	// after is how long into that back-off the Service's pod is started. The Service is Ready a moment later, and how much
	// later is the machine's matter: it may be in a later back-off.
	after time.Duration
	// beside a container that runs a kubelet reports most of the first back-off as `waiting`.
	beside   bool
	upstream *upstream
}

// outages end early, in the middle and late in the back-offs of 20 and 40 s, and once while a kubelet says `waiting`; longer
// back-offs differ in nothing but the wait.
func outages() []*outage {
	return []*outage{
		{name: "10s-waiting", restarts: 1, after: 3 * time.Second, beside: true},
		{name: "20s-early", restarts: 2, after: 0},
		{name: "20s-middle", restarts: 2, after: 8 * time.Second},
		{name: "20s-late", restarts: 2, after: 14 * time.Second},
		{name: "40s-early", restarts: 3, after: 0},
		{name: "40s-middle", restarts: 3, after: 18 * time.Second},
		{name: "40s-late", restarts: 3, after: 33 * time.Second},
	}
}

func (o *outage) service() string { return "upstream-" + o.name }
func (o *outage) alone() string   { return o.name + "-alone" }

// prepare makes the Service, behind which nothing is yet, and those that need it.
func (o *outage) prepare(ctx context.Context, namespace string) {
	GinkgoHelper()
	o.upstream = newUpstream()
	_, err := core.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: o.service()},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": o.service()}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	containers := []corev1.Container{container("main", "need", o.upstream.address)}
	if o.beside {
		containers = append(containers, container("quiet", "pause"))
	}
	for _, app := range []string{o.name, o.alone()} {
		run(ctx, namespace, app, corev1.PodSpec{Containers: containers})
	}
}

// end turns the Service Ready. The upstream is opened later, by follow.
func (o *outage) end(ctx context.Context, namespace string) {
	GinkgoHelper()
	run(ctx, namespace, o.service(), corev1.PodSpec{Containers: []corev1.Container{container("main", "pause")}})
}

// restart is what became of an outage.
type restart struct {
	*outage
	// victim is the pod that crash-looped when the Service turned Ready, and how.
	victim backOff
	// into the victim's back-off its deletion was due: when a watch told that the Service is Ready or, if the pod was being
	// restarted just then, that it failed again. From there it took asked until the API server received the manager's DELETE,
	// and ran and alone until the successor ran, and the pod that nobody deleted.
	into, asked, ran, alone time.Duration
	// inTime: the pod was told to go before the kubelet reported anything else of it.
	inTime bool
}

func (r restart) String() string {
	return fmt.Sprintf("Service Ready %.1f s into the back-off after %d restarts, %s: DELETE received after %d ms, successor runs after %.1f s; left alone %.1f s, saved %.1f s",
		r.into.Seconds(), r.victim.restarts, r.victim.state, r.asked.Milliseconds(), r.ran.Seconds(), r.alone.Seconds(), (r.alone - r.ran).Seconds())
}

// follow ends the outage at its moment, and tells what follows. Other than a real upstream, this one answers only when the
// pod has been told to go: so that pod can't run before, however slow the machine is, and there is always one to delete.
func (o *outage) follow(ctx context.Context, namespace string, reported *recording, ready *readiness) restart {
	GinkgoHelper()
	began := reported.await(o.name, fmt.Sprintf("should back off after %d restarts", o.restarts), func(r revision) bool {
		status := statusOf(r.pod, "main")
		return status != nil && status.RestartCount == o.restarts && status.State.Running == nil
	})
	moment := time.NewTimer(time.Until(began.at.Add(o.after)))
	defer moment.Stop()
	select {
	case <-moment.C:
	case <-ctx.Done():
	}
	o.end(ctx, namespace)
	recovered := ready.await(o.service())
	gone := reported.await(o.name, "should be deleted", func(r revision) bool { return r.pod.DeletionTimestamp != nil })
	o.upstream.open()

	due := reported.failing(recovered, o.name)
	runs := func(app string) time.Duration {
		return reported.await(app, "should run", func(r revision) bool {
			status := statusOf(r.pod, "main")
			return r.at.After(gone.at) && r.pod.DeletionTimestamp == nil && status != nil && status.State.Running != nil
		}).at.Sub(due)
	}
	Expect(gone.pod.UID).To(Equal(began.pod.UID), "%s: the pod that crash-looped should go, and none before it", o.name)
	victim, last := reported.backOffAt(due, o.name), statusOf(gone.pod, "main")
	return restart{
		outage: o, victim: victim, inTime: last.RestartCount == victim.restarts && stateOf(last) == victim.state,
		into: due.Sub(victim.since), asked: weededAt(namespace, gone.pod.UID).Sub(due), ran: runs(o.name), alone: runs(o.alone()),
	}
}

// failing is when an app's pod was first reported not to run, from a time on; that time itself when it wasn't running then.
func (r *recording) failing(from time.Time, app string) time.Time {
	GinkgoHelper()
	runs := true
	for _, r := range r.of(app) {
		status := statusOf(r.pod, "main")
		if r.at.After(from) && !runs {
			return from
		}
		runs = status == nil || status.State.Running != nil
		if r.at.After(from) && !runs {
			return r.at
		}
	}
	return from
}

// backOff is a pod that waits to be restarted.
type backOff struct {
	pod      types.UID
	restarts int32
	since    time.Time
	// state that the kubelet reported last.
	state string
}

// backOffAt is the back-off that an app's pod was in at a time.
func (r *recording) backOffAt(at time.Time, app string) (found backOff) {
	GinkgoHelper()
	for _, r := range r.of(app) {
		status := statusOf(r.pod, "main")
		if r.at.After(at) || status == nil {
			continue
		}
		if found.pod != r.pod.UID || found.restarts != status.RestartCount || status.State.Running != nil {
			found = backOff{pod: r.pod.UID, restarts: status.RestartCount, since: r.at}
		}
		found.state = stateOf(status)
	}
	return found
}

// readiness is when each Service was first seen to have a ready endpoint.
type readiness struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// watchReadiness begins to watch a namespace's Services; it ends with the spec or the container that it is begun in.
func watchReadiness(ctx context.Context, namespace string) *readiness {
	GinkgoHelper()
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	events, err := core.DiscoveryV1().EndpointSlices(namespace).Watch(watching, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	r := &readiness{since: map[string]time.Time{}}
	var running sync.WaitGroup
	running.Go(func() {
		for event := range events.ResultChan() {
			now := time.Now()
			slice, ok := event.Object.(*discoveryv1.EndpointSlice)
			if !ok || !slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, false) }) {
				continue
			}
			r.mu.Lock()
			if service := slice.Labels[discoveryv1.LabelServiceName]; r.since[service].IsZero() {
				r.since[service] = now
			}
			r.mu.Unlock()
		}
	})
	DeferCleanup(func() {
		stop()
		events.Stop()
		running.Wait()
	})
	return r
}

func (r *readiness) await(service string) (since time.Time) {
	GinkgoHelper()
	Eventually(func() time.Time {
		r.mu.Lock()
		defer r.mu.Unlock()
		since = r.since[service]
		return since
	}).WithTimeout(2*time.Minute).WithPolling(20*time.Millisecond).ShouldNot(BeZero(), "Service %s should have a ready endpoint", service)
	return since
}

// tenantWeeder is a tenant's config for all outages, with an account that may delete pods.
func tenantWeeder(ctx context.Context, namespace string, all []*outage) *v1alpha1.WeederConfig {
	GinkgoHelper()
	account := metav1.ObjectMeta{Namespace: namespace, Name: "weeder"}
	wc := &v1alpha1.WeederConfig{ObjectMeta: account, Spec: v1alpha1.WeederConfigSpec{
		ServiceAccountName: account.Name, ServicesAndDependantSelectors: map[string]v1alpha1.DependantSelectors{},
	}}
	for _, o := range all {
		wc.Spec.ServicesAndDependantSelectors[o.service()] = v1alpha1.DependantSelectors{
			PodSelectors: []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"app": o.name}}},
		}
	}
	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: account},
		&rbacv1.Role{ObjectMeta: account, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: account, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account.Name}},
		},
	} {
		Expect(h.Client.Create(ctx, object)).To(Succeed())
	}
	Eventually(func() error { return h.Client.Create(ctx, wc) }).Should(Succeed(), "the API server's authorizer should have read the binding")
	return wc
}

// soon is far from the back-offs of 10 s and more that a deletion saves, and leaves a busy machine time; on a quiet one it takes a tenth of a
// second.
const soon = 5 * time.Second

// expectRestarts checks what follows from all outages' ends, and tells it. How long restarts took is told only; so is what the
// pods left alone took: their back-offs began at other moments, and one may end just then.
func expectRestarts(ctx context.Context, wc *v1alpha1.WeederConfig, all []restart) {
	GinkgoHelper()
	terminated, late := 0, 0
	var slowest, saved time.Duration
	for _, r := range all {
		suite.Measured("%s", r)
		slowest, saved = max(slowest, r.asked), saved+r.alone-r.ran
		if strings.HasPrefix(r.victim.state, "terminated") {
			terminated++
		}
		if !r.inTime {
			late++
		}
	}
	suite.Measured("crash loops of a real kubelet: %d restarts, each DELETE at most %d ms after the Service was Ready; against no weeder %.0f s saved", len(all), slowest.Milliseconds(), saved.Seconds())
	for _, r := range all {
		Expect(r.asked).To(BeNumerically("<", soon), "%s: from the watch's news to the DELETE in the audit log. %s", r.name, r)
	}
	Expect(late).To(BeNumerically("<", len(all)/2), "a kubelet may report something else of a pod just when the Service turns Ready, but not of half of them")
	Expect(terminated).To(BeNumerically(">", 0), "a kubelet reports `terminated` for most of a back-off")
	Eventually(func(g Gomega) {
		g.Expect(h.Client.Get(ctx, client.ObjectKeyFromObject(wc), wc)).To(Succeed())
		g.Expect(wc.Status.Deleted).To(BeEquivalentTo(len(weeded(wc.Namespace))))
	}).Should(Succeed(), "the status should count each deletion once")
}

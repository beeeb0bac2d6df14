//go:build linux

package kubelet

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
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
	"k8s.io/apimachinery/pkg/util/intstr"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// outage is an upstream that isn't there until some moment of its dependents' back-off. Two Deployments need it: one of the
// outage's name, which a WeederConfig selects, and one that is left alone.
type outage struct {
	name string
	// restarts before the back-off in which the upstream comes up: the kubelet backs off for 10 s after the first, then for
	// 20 s, 40 s, … up to 300 s.
	restarts int32
	// after is how long into the back-off the upstream is started. It is Ready a second or two later.
	after   time.Duration
	address string
}

// outages end early, in the middle and late in the back-offs of 20 and 40 s; longer ones differ in nothing but the wait.
func outages() []*outage {
	return []*outage{
		{name: "20s-early", restarts: 2, after: 0},
		{name: "20s-middle", restarts: 2, after: 8 * time.Second},
		{name: "20s-late", restarts: 2, after: 12 * time.Second},
		{name: "40s-early", restarts: 3, after: 0},
		{name: "40s-middle", restarts: 3, after: 18 * time.Second},
		{name: "40s-late", restarts: 3, after: 30 * time.Second},
	}
}

func (o *outage) service() string { return "upstream-" + o.name }
func (o *outage) alone() string   { return o.name + "-alone" }

// prepare makes the Service, behind which nothing is yet, and those that need it.
func (o *outage) prepare(ctx context.Context, namespace string) {
	GinkgoHelper()
	o.address = freeAddress()
	_, err := core.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: o.service()},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": o.service()}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, app := range []string{o.name, o.alone()} {
		run(ctx, namespace, app, corev1.PodSpec{Containers: []corev1.Container{container("main", "need", o.address)}})
	}
}

func freeAddress() string {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(listener.Close()).To(Succeed()) }()
	return listener.Addr().String()
}

// end starts the upstream.
func (o *outage) end(ctx context.Context, namespace string) {
	GinkgoHelper()
	endpoint, err := net.ResolveTCPAddr("tcp", o.address)
	Expect(err).NotTo(HaveOccurred())
	listening := container("main", "listen", o.address)
	listening.ReadinessProbe = &corev1.Probe{
		PeriodSeconds: 1,
		ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1", Port: intstr.FromInt(endpoint.Port)}},
	}
	run(ctx, namespace, o.service(), corev1.PodSpec{Containers: []corev1.Container{listening}})
}

// restart is what became of an outage.
type restart struct {
	*outage
	// victim is the pod that crash-looped, and state what the kubelet reported of it when the Service turned Ready.
	victim corev1.Pod
	state  string
	// into the back-off the Service turned Ready; from there it took deleted, ran and alone until the pod was told to go,
	// its successor ran, and the pod ran that nobody deleted.
	into, deleted, ran, alone time.Duration
}

func (r restart) String() string {
	return fmt.Sprintf("%-10s  Ready %4.1f s into the back-off, %-27s → deleted after %3d ms, runs after %4.1f s; left alone: %4.1f s; saved %4.1f s",
		r.name, r.into.Seconds(), r.state+",", r.deleted.Milliseconds(), r.ran.Seconds(), r.alone.Seconds(), (r.alone - r.ran).Seconds())
}

// follow brings the upstream up at its moment, and tells what follows.
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
	// A back-off may end between the upstream's start and its Service's turn, and a pod that runs since then isn't told of again.
	untilRuns := func(app string) time.Duration {
		running := reported.await(app, "should run", func(r revision) bool { return !r.until.Before(recovered) && runs(r.pod) })
		return max(0, running.at.Sub(recovered))
	}
	result := restart{
		outage: o, victim: *began.pod, into: recovered.Sub(began.at), deleted: gone.at.Sub(recovered), ran: untilRuns(o.name), alone: untilRuns(o.alone()),
	}
	Expect(gone.pod.UID).To(Equal(result.victim.UID), "%s: the pod that crash-looped should go, and none before it", o.name)
	for _, r := range reported.of(o.name) {
		if status := statusOf(r.pod, "main"); status != nil && r.pod.UID == result.victim.UID && !r.at.After(recovered) {
			result.state = stateOf(status)
		}
	}
	return result
}

func runs(pod *corev1.Pod) bool {
	status := statusOf(pod, "main")
	return pod.DeletionTimestamp == nil && status != nil && status.State.Running != nil
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
	}).WithPolling(20*time.Millisecond).ShouldNot(BeZero(), "Service %s should have a ready endpoint", service)
	return since
}

// weeder is a tenant's config for all outages, with an account that may delete pods.
func weeder(ctx context.Context, namespace string, all []*outage) *v1alpha1.WeederConfig {
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

// deleters are who asked first to delete each pod of a namespace, by the API server's audit log.
func deleters(namespace string) map[types.UID]string {
	GinkgoHelper()
	file, err := os.Open(h.AuditLog)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(file.Close()).To(Succeed()) }()
	first := map[types.UID]string{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event auditv1.Event
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			continue // the last line may be half written
		}
		if event.Verb != "delete" || event.ObjectRef.Resource != "pods" || event.ObjectRef.Namespace != namespace || event.Stage != auditv1.StageResponseComplete {
			continue
		}
		var pod corev1.Pod
		Expect(json.Unmarshal(event.ResponseObject.Raw, &pod)).To(Succeed())
		if _, known := first[pod.UID]; !known {
			first[pod.UID] = event.User.Username
		}
	}
	Expect(lines.Err()).NotTo(HaveOccurred())
	return first
}

// expectRestarts checks what follows from all outages' ends, and tells it. What the pods left alone take is told only: their
// back-offs began at other moments, and one may end just then.
func expectRestarts(ctx context.Context, wc *v1alpha1.WeederConfig, all []restart) {
	GinkgoHelper()
	var lines []string
	by, terminated := deleters(wc.Namespace), 0
	for _, r := range all {
		lines = append(lines, r.String())
		Expect(r.deleted).To(BeNumerically("<", time.Second), r.String())
		Expect(by).To(HaveKeyWithValue(r.victim.UID, harness.Username), "%s: the manager should have deleted it", r.name)
		if strings.HasPrefix(r.state, "terminated") {
			terminated++
		}
	}
	AddReportEntry("Service Ready → dependents run", "\n"+strings.Join(lines, "\n"))
	Expect(terminated).To(BeNumerically(">", 0), "a kubelet reports `terminated` for most of a back-off")
	Eventually(func() (int64, error) {
		err := h.Client.Get(ctx, client.ObjectKeyFromObject(wc), wc)
		return wc.Status.Deleted, err
	}).Should(BeEquivalentTo(len(all)), "the status should count each deletion once")
}

// Package healthcheck runs programs of extension authors, which use pkg/healthcheck, on two real API servers: a seed with
// Gardener's kinds, and a shoot.
package healthcheck

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/gardener"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/pkg/healthcheck"
)

func TestHealthChecks(t *testing.T) {
	suite.Run(t, "Health checks of extension authors")
}

var (
	seed, shoot             *cluster.Cluster
	seedClient, shootClient client.Client

	worker  = schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Worker"}
	gadget  = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gadget"}
	passing = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Passing"}
)

var _ = BeforeSuite(func(ctx SpecContext) {
	seed, seedClient = start(ctx)
	shoot, shootClient = start(ctx)
	_, err := seed.KubectlWithInput(ctx, strings.NewReader(gardener.Definitions), "apply", "--server-side", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
	_, err = seed.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(5*time.Minute))

func start(ctx context.Context) (*cluster.Cluster, client.Client) {
	c, err := cluster.Start(ctx, cluster.Options{Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(c.Stop()).To(Succeed()) })
	direct, err := client.New(c.Config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	return c, direct
}

// program is an extension author's, while it runs.
type program struct {
	// reads, writes and questions about rights are its requests to the seed so far; watches, and the lists that begin them, aren't counted.
	reads, writes, questions atomic.Int64
	stop                     func()

	mu      sync.Mutex
	watches []context.CancelFunc // needs mu
}

// cut ends the watches that are open, as a network does, and any API server within ten minutes.
func (p *program) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, end := range p.watches {
		end()
	}
	p.watches = nil
}

// cuttable has a watch end when the program's are cut.
func (p *program) cuttable(watch *http.Request) *http.Request {
	ctx, cancel := context.WithCancel(watch.Context())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches = append(p.watches, cancel)
	return watch.WithContext(ctx)
}

// count wraps the transport of a program.
func (p *program) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		switch {
		case strings.HasSuffix(request.URL.Path, "/selfsubjectaccessreviews"):
			p.questions.Add(1)
		case request.Method != http.MethodGet:
			p.writes.Add(1)
		case request.URL.Query().Has("watch"):
			request = p.cuttable(request)
		case !request.URL.Query().Has("resourceVersion"):
			p.reads.Add(1)
		}
		return next.RoundTrip(request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// run starts an admin's program with these registrations. It ends with the spec, or by stop.
func run(registrations ...*healthcheck.Registration) *program {
	return runAs("", registrations...)
}

// runAs starts a program with the rights of a user.
func runAs(user string, registrations ...*healthcheck.Registration) *program {
	p := &program{}
	access := rest.CopyConfig(seed.Config)
	access.Impersonate.UserName = user
	access.Wrap(p.count)
	mgr, err := ctrl.NewManager(access, ctrl.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // each spec runs programs of its own
	})
	Expect(err).NotTo(HaveOccurred())
	for _, r := range registrations {
		Expect(r.AddToManager(mgr)).To(Succeed())
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stopped := false
	p.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			Eventually(done).Should(Receive(BeNil()), "the program ends")
		}
	}
	DeferCleanup(p.stop)
	return p
}

// place makes a namespace for one spec.
func place(ctx context.Context) string {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shoot--"}}
	Expect(seedClient.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

// put creates what the manifest says, and its status.
func put(ctx context.Context, c client.Client, namespace, manifest string, values ...any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal(fmt.Appendf(nil, manifest, values...), &o.Object)).To(Succeed())
	o.SetNamespace(namespace)
	wanted := o.DeepCopy()
	Expect(c.Create(ctx, o)).To(Succeed())
	if status, ok := wanted.Object["status"]; ok {
		o.Object["status"] = status
		Expect(c.Status().Update(ctx, o)).To(Succeed())
	}
	return o
}

// putWorker creates a Worker w whose type is its namespace, so that the programs of other specs don't see it. It wants two machines.
func putWorker(ctx context.Context, namespace string) *unstructured.Unstructured {
	put(ctx, seedClient, namespace, "{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineDeployment, metadata: {name: pool}, spec: {replicas: 2}}")
	return put(ctx, seedClient, namespace, "apiVersion: extensions.gardener.cloud/v1alpha1\nkind: Worker\nmetadata: {name: w}\nspec: {type: %s, pools: [{minimum: 1}, {minimum: 1}]}", namespace)
}

func putDeployment(ctx context.Context, c client.Client, namespace, name string, available bool) {
	one := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: one},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: one}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}
	Expect(c.Create(ctx, d)).To(Succeed())
	setAvailable(ctx, c, namespace, name, available)
}

func setAvailable(ctx context.Context, c client.Client, namespace, name string, available bool) {
	d := &appsv1.Deployment{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d)).To(Succeed())
	status := corev1.ConditionFalse
	if available {
		status = corev1.ConditionTrue
	}
	d.Status.ObservedGeneration = d.Generation
	d.Status.Conditions = []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Status: status, Reason: "MinimumReplicas"}, {Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
	}
	Expect(c.Status().Update(ctx, d)).To(Succeed())
}

func putNode(ctx context.Context, name string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(shootClient.Create(ctx, n)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(shootClient.Delete(ctx, n)).To(Succeed()) }, NodeTimeout(harness.Within))
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	Expect(shootClient.Status().Update(ctx, n)).To(Succeed())
}

// putKubeconfig lets checks of the namespace's targets reach a cluster.
func putKubeconfig(ctx context.Context, namespace string, of *cluster.Cluster) {
	content, err := os.ReadFile(of.Kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	putSecret(ctx, namespace, content)
}

// putSecret stores a kubeconfig, in place of another.
func putSecret(ctx context.Context, namespace string, kubeconfig []byte) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gardener"}}
	err := seedClient.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	secret.Data = map[string][]byte{"kubeconfig": kubeconfig}
	if err != nil {
		Expect(seedClient.Create(ctx, secret)).To(Succeed())
		return
	}
	Expect(seedClient.Update(ctx, secret)).To(Succeed())
}

// grant lets a user do everything with a resource of the seed, and its status.
func grant(ctx context.Context, user, group, resource string) {
	name := metav1.ObjectMeta{Name: user + "-" + resource}
	Expect(seedClient.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{resource, resource + "/status"}, Verbs: []string{"get", "list", "watch", "patch"}},
	}})).To(Succeed())
	Expect(seedClient.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})).To(Succeed())
}

// revoke takes back what grant gave.
func revoke(ctx context.Context, user, resource string) {
	name := metav1.ObjectMeta{Name: user + "-" + resource}
	Expect(seedClient.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: name})).To(Succeed())
	Expect(seedClient.Delete(ctx, &rbacv1.ClusterRole{ObjectMeta: name})).To(Succeed())
}

// stored gives a target as it is.
func stored(ctx context.Context, kind schema.GroupVersionKind, namespace string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	Expect(seedClient.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "w"}, o)).To(Succeed())
	return o
}

// condition gives one condition of a target, to Eventually: nil while there is none.
func condition(ctx context.Context, kind schema.GroupVersionKind, namespace, conditionType string) func() map[string]any {
	return func() map[string]any {
		list, _, _ := unstructured.NestedSlice(stored(ctx, kind, namespace).Object, "status", "conditions")
		for _, item := range list {
			if entry := item.(map[string]any); entry["type"] == conditionType {
				return entry
			}
		}
		return nil
	}
}

func is(status, reason, message string) OmegaMatcher {
	return SatisfyAll(HaveKeyWithValue("status", status), HaveKeyWithValue("reason", reason), HaveKeyWithValue("message", MatchRegexp(message)))
}

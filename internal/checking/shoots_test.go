package checking

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/shoots"
)

// cluster is a real API server.
type cluster struct {
	client.WithWatch
	kubeconfig []byte
}

// startCluster fails, rather than skips, where the binaries are missing, but in a short run.
func startCluster(t *testing.T) cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts an API server")
	}
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		dir = filepath.Join("..", "..", "bin")
	}
	if _, err := os.Stat(filepath.Join(dir, "kube-apiserver")); err != nil {
		t.Fatalf("%v: run make controlplane", err)
	}
	environment := &envtest.Environment{BinaryAssetsDirectory: dir}
	config, err := environment.Start()
	if err != nil {
		t.Fatalf("start API server: %v", err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Errorf("stop API server: %v", err)
		}
	})
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return cluster{c, environment.KubeConfig}
}

func (c cluster) put(t *testing.T, o client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func (c cluster) phase(t *testing.T, name, phase string) {
	t.Helper()
	c.put(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"phase": phase}})
}

// shootCheck looks at a ConfigMap in the shoot that is named as the target's namespace.
func shootCheck(t *testing.T) *registration.Registration { return shootCheckWithin(t, "") }

func shootCheckWithin(t *testing.T, timeout v1alpha1.Duration) *registration.Registration {
	t.Helper()
	hcr := &v1alpha1.HealthCheckRegistration{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	hcr.Spec.Target = v1alpha1.HealthCheckTarget{APIVersion: "e.org/v1", Kind: "Thing"}
	hcr.Spec.CheckTimeout = timeout
	hcr.Spec.ShootKubeconfig = &v1alpha1.SecretKey{SecretName: "gardener", Key: "kubeconfig"}
	hcr.Spec.Checks = []v1alpha1.HealthCheck{{
		Name: "c", ConditionType: "Checked", Cluster: "Shoot",
		Object:   &v1alpha1.HealthCheckObject{APIVersion: "v1", Kind: "ConfigMap", Namespace: "'default'", Name: "target.metadata.namespace"},
		Evaluate: v1alpha1.HealthCheckEvaluator{CEL: &v1alpha1.CELCheck{Healthy: "object.data.phase == 'Up'", Message: "'in ' + object.data.phase"}},
	}}
	reg, problems := registration.Read(hcr)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return reg
}

// told counts which targets something changed for.
type told struct {
	mu sync.Mutex
	n  map[Target]int
}

func (c *told) changed(target Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[target]++
}

// seed is a Checker whose seed is a cluster, with the shoots of some namespaces.
func seed(t *testing.T, of cluster) (*Checker, *told) {
	t.Helper()
	changes := &told{n: map[Target]int{}}
	s := &Shoots{Seed: of.WithWatch, Scheme: of.Scheme(), Dial: kubeconfig.Policy{AllowLoopback: true}, Changed: changes.changed, Clock: clock.RealClock{}}
	return &Checker{Shoots: s, Live: of.WithWatch, Clock: clock.RealClock{}}, changes
}

func (c cluster) shoot(t *testing.T, namespace string, reached cluster) {
	t.Helper()
	c.put(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	c.put(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gardener"}, Data: map[string][]byte{"kubeconfig": reached.kubeconfig}})
}

func thingIn(namespace string) (Target, *unstructured.Unstructured) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "e.org", Version: "v1", Kind: "Thing"})
	o.SetNamespace(namespace)
	o.SetName("t")
	return Target{o.GroupVersionKind().GroupKind(), types.NamespacedName{Namespace: namespace, Name: "t"}}, o
}

// settled gives what the check says once its shoot is read.
func settled(t *testing.T, c *Checker, reg *registration.Registration, object *unstructured.Unstructured, live bool) health.Result {
	t.Helper()
	var by map[string][]health.Result
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		now := sets.New[string]()
		if live {
			now.Insert("Checked")
		}
		results, unread := c.Results(ctx, reg, object, now)
		by = results
		return len(unread) == 0, nil
	})
	if err == nil {
		return by["Checked"][0]
	}
	t.Fatalf("the shoot of %s was never read", object.GetNamespace())
	return health.Result{}
}

func TestShoots(t *testing.T) {
	one, two := startCluster(t), startCluster(t)
	t.Run("no target is judged with another shoot's client", func(t *testing.T) { testManyShoots(t, one, two) })
	t.Run("a shoot is watched", func(t *testing.T) { testAShoot(t, one, two) })
	t.Run("a shoot has as long to answer as each registration says", func(t *testing.T) { testTimeouts(t, one) })
}

func testManyShoots(t *testing.T, one, two cluster) {
	const pairs, evaluations = 20, 100
	reg := shootCheck(t)
	c, _ := seed(t, one)
	shoots := map[string]cluster{}
	for i := range pairs {
		for at, reached := range map[string]cluster{"one": one, "two": two} {
			namespace := fmt.Sprintf("shoot-%s-%d", at, i)
			one.shoot(t, namespace, reached)
			shoots[namespace] = reached
			// The other shoot has an object of that name, too, of which something else is told.
			one.phase(t, namespace, "one")
			two.phase(t, namespace, "two")
		}
	}
	var running sync.WaitGroup
	for namespace, reached := range shoots {
		want := "in one"
		if reached.WithWatch == two.WithWatch {
			want = "in two"
		}
		target, object := thingIn(namespace)
		c.Shoots.Follow(target, []Interest{{reg, object}})
		defer c.Shoots.Follow(target, nil)
		for _, live := range []bool{false, true} {
			running.Go(func() {
				for range evaluations {
					if got := settled(t, c, reg, object, live); got.Detail != want {
						t.Errorf("%s was judged %+v, not %q", namespace, got, want)
						return
					}
				}
			})
		}
		running.Go(func() { // another target comes and goes in the same namespace
			other := target
			other.Key.Name = "other"
			for range evaluations {
				c.Shoots.Follow(other, []Interest{{reg, object}})
				c.Shoots.Follow(other, nil)
			}
		})
	}
	running.Wait()
}

func testAShoot(t *testing.T, one, two cluster) {
	reg := shootCheck(t)
	c, changes := seed(t, one)
	one.shoot(t, "shoot", one)
	one.phase(t, "shoot", "Up")
	two.phase(t, "shoot", "two")
	target, object := thingIn("shoot")
	c.Shoots.Follow(target, []Interest{{reg, object}})
	defer c.Shoots.Follow(target, nil) // an open watch keeps an API server from stopping
	if got := settled(t, c, reg, object, false); got.Status != health.True {
		t.Fatalf("at first: %+v", got)
	}
	eventually := func(what, want string) {
		t.Helper()
		var got health.Result
		err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
			got = settled(t, c, reg, object, false)
			return got.Detail == want, nil
		})
		if err == nil {
			return
		}
		t.Fatalf("%s: %+v, not %q", what, got, want)
	}
	changes.mu.Lock()
	before := changes.n[target]
	changes.mu.Unlock()
	patch := func(in client.Client, of client.Object, text string) {
		t.Helper()
		if err := in.Patch(t.Context(), of, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	patch(one, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shoot"}}, `{"data":{"phase":"ruins"}}`)
	eventually("what changed is seen", "in ruins")
	changes.mu.Lock()
	if changes.n[target] == before {
		t.Error("the target wasn't told of")
	}
	changes.mu.Unlock()

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: "gardener"}}
	if err := one.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	secret.Data["kubeconfig"] = two.kubeconfig
	if err := one.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	eventually("another kubeconfig leads to another shoot", "in two")
	if err := one.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	eventually("without a kubeconfig", "read ConfigMap default/shoot: read the shoot's kubeconfig: there is no Secret shoot/gardener")
	c.Shoots.Follow(target, nil)
	if n := len(c.Shoots.groups); n != 0 {
		t.Errorf("%d groups are left behind", n)
	}
}

func testTimeouts(t *testing.T, one cluster) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // the test's own
	silent := cluster{kubeconfig: fmt.Appendf(nil, `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "https://%s"}}],
users: [{name: u, user: {token: t}}], contexts: [{name: c, context: {cluster: c, user: u}}], current-context: c}`, listener.Addr())}
	one.shoot(t, "silent", silent)
	c, _ := seed(t, one)
	target, object := thingIn("silent")
	for _, within := range []v1alpha1.Duration{"200ms", "700ms"} { // as of one that is edited
		reg := shootCheckWithin(t, within)
		c.Shoots.Follow(target, []Interest{{reg, object}})
		if got := settled(t, c, reg, object, false); got.Status != health.Unknown || !strings.Contains(got.Detail, string(within)) {
			t.Errorf("within %s: %+v", within, got)
		}
	}
	c.Shoots.Follow(target, nil)
}

// Two targets share a shoot; for one of them its kubeconfig turned unusable while the other looked.
func TestAShootWhoseKubeconfigJustBecameUnusableIsUnread(t *testing.T) {
	of := &shoot{mirrors: map[query]*shoots.Mirror{}}
	if m := (&Shoots{}).mirrorOf(of, everyNode, 0); m != nil {
		t.Error("watched without a connection")
	}
}

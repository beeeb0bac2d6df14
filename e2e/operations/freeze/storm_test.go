package freeze

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/operations/world"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// weeded is a Service that isn't Ready, and a dependent of which all pods crash-loop.
const weeded = `
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: shop, name: default}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {namespace: shop, name: weeder}, rules: [{apiGroups: [""], resources: [pods], verbs: [delete]}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: shop, name: weeder}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: weeder}
subjects: [{kind: ServiceAccount, namespace: shop, name: default}]
---
{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: etcd}, spec: {selector: {app: etcd}, ports: [{port: 80}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: shop, name: etcd}
spec:
  selector: {matchLabels: {app: etcd}}
  template: {metadata: {labels: {app: etcd, autohealer.test/unready: "true"}}, spec: {containers: [{name: main, image: none}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: shop, name: api}
spec:
  replicas: 5
  selector: {matchLabels: {app: api}}
  template: {metadata: {labels: {app: api, autohealer.test/crash: "true"}}, spec: {containers: [{name: main, image: none}]}}
`

// inGit is what a GitOps tool keeps as it is there.
const inGit = `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: WeederConfig
metadata: {namespace: shop, name: etcd, labels: {app.kubernetes.io/instance: platform}}
spec: {watchDuration: 5m, servicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: api}}]}}}
---
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: Guardrail
metadata: {name: platform, labels: {app.kubernetes.io/instance: platform}}
spec: {limits: {maxPodDeletionsPerMinute: 2}}
`

// pods of a Deployment in shop, by UID; those that are being deleted are none.
func pods(ctx context.Context, app string) map[types.UID]corev1.Pod {
	GinkgoHelper()
	var list corev1.PodList
	Expect(h.Client.List(ctx, &list, client.InNamespace("shop"), client.MatchingLabels{"app": app})).To(Succeed())
	found := map[types.UID]corev1.Pod{}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			found[list.Items[i].UID] = list.Items[i]
		}
	}
	return found
}

// crashing are those of api that crash-loop.
func crashing(ctx context.Context) []types.UID {
	GinkgoHelper()
	var found []types.UID
	for uid, pod := range pods(ctx, "api") {
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff" {
				found = append(found, uid)
			}
		}
	}
	return found
}

// weededPods is how many the config's status counts.
func weededPods(ctx context.Context) (int64, error) {
	wc := &v1alpha1.WeederConfig{}
	err := h.Client.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "etcd"}, wc)
	return wc.Status.Deleted, err
}

// recoverService makes the Service Ready on which api depends.
func recoverService(ctx context.Context) {
	GinkgoHelper()
	for _, pod := range pods(ctx, "etcd") {
		before := pod.DeepCopy()
		delete(pod.Labels, "autohealer.test/unready")
		Expect(h.Client.Patch(ctx, &pod, client.MergeFrom(before))).To(Succeed())
	}
	Eventually(func(g Gomega) {
		for _, pod := range pods(ctx, "etcd") {
			g.Expect(pod.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))))
		}
	}).WithContext(ctx).Should(Succeed())
}

// startStorm lets the conditions of some nodes flip all the time, and a GitOps tool sync all the time, until the spec's end or stop.
// The tool reverts what others changed, and prunes what isn't in Git.
func startStorm(ctx context.Context, nodes []string) (stop func()) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	Expect(os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(inGit), 0o600)).To(Succeed())
	for _, name := range nodes {
		Expect(h.SetCondition(ctx, name, "Broken", corev1.ConditionTrue, cluster.ConditionOptions{})).To(Succeed())
	}
	blowing, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
	running.Go(func() {
		for blowing.Err() == nil {
			// not their condition, which would be damped as flapping
			_ = h.Label(blowing, nodes[random.IntN(len(nodes))], world.Unselected, []string{"", "yes"}[random.IntN(2)])
		}
	})
	running.Go(func() {
		args := []string{"apply", "-f", dir, "--prune", "-l", "app.kubernetes.io/instance=platform"}
		for _, kind := range kinds.Names(kinds.All) {
			args = append(args, "--prune-allowlist=autohealer.resourcestack.com/v1alpha1/"+kind)
		}
		for blowing.Err() == nil {
			_, _ = h.Kubectl(blowing, args...)
		}
	})
	stop = sync.OnceFunc(func() {
		end()
		running.Wait()
	})
	DeferCleanup(stop)
	return stop
}

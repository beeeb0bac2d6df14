package healthcheckregistration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// rightsToBuiltin lets Autohealer read what the built-in checks are of.
const rightsToBuiltin = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: autohealer-health-checks-builtin
  labels: {autohealer.resourcestack.com/aggregate-to-health-checks: "true"}
rules:
- {apiGroups: [apps], resources: [statefulsets, daemonsets, replicasets], verbs: [get, list, watch]}
- {apiGroups: [batch], resources: [jobs], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods, services, persistentvolumeclaims], verbs: [get, list, watch]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get, list, watch]}
`

// pods are those of a workload: not ready with unready, and on the spec's own nodes.
func pods(namespace, app string, unready bool) string {
	return fmt.Sprintf("metadata: {labels: {app: %[2]s, autohealer.test/unready: '%[3]t'}}, spec: {nodeSelector: {spec: %[1]s}, containers: [{name: c, image: i}]}", namespace, app, unready)
}

func workload(ctx context.Context, namespace, kind, name string, unready bool, more string) {
	GinkgoHelper()
	apply(ctx, "{apiVersion: apps/v1, kind: %[2]s, metadata: {namespace: %[1]s, name: %[3]s}, spec: {selector: {matchLabels: {app: %[3]s}}, template: {%[4]s}%[5]s}}",
		namespace, kind, name, pods(namespace, name, unready), more)
}

// turnPods turns the pods of an app ready or not, without another template. Kwok plays the kubelet.
func turnPods(ctx context.Context, namespace, app string, unready bool) {
	GinkgoHelper()
	_, err := h.Kubectl(ctx, "label", "pods", "-n", namespace, "-l", "app="+app, "--overwrite", fmt.Sprintf("autohealer.test/unready=%t", unready))
	Expect(err).NotTo(HaveOccurred())
}

// countAnew has the controller look at a DaemonSet, which a taint that lets its pods run on doesn't.
func countAnew(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	_, err := h.Kubectl(ctx, "annotate", "daemonset", "-n", namespace, name, "--overwrite", "spec/looked-at="+time.Now().Format("150405.000"))
	Expect(err).NotTo(HaveOccurred())
}

// looking is a registration with a condition type for each object, as kinds with names.
func looking(namespace string, objects ...string) string {
	checks := "shootKubeconfig: {secretName: gardener}\nchecks:\n"
	for _, o := range objects {
		apiVersion, rest, _ := strings.Cut(o, " ")
		kind, name, _ := strings.Cut(rest, " ")
		where, starts := "", ""
		switch kind {
		case "StatefulSet", "ReplicaSet", "DaemonSet", "Pod": // which don't tell that they had started, and here turn ill right after that
			starts = ", progressingTimeout: 15s"
		}
		if kind == "CustomResourceDefinition" {
			where = `, namespace: "''"`
		}
		checks += fmt.Sprintf("- {name: %[1]s, conditionType: %[2]s-%[1]s, object: {apiVersion: %[3]s, kind: %[2]s, name: \"'%[4]s'\"%[5]s}, evaluate: {builtin: {}}%[6]s}\n",
			strings.ReplaceAll(name, ".", "-"), kind, apiVersion, name, where, starts)
	}
	return about(gadget, namespace, checks)
}

var _ = Describe("objects as Kubernetes' controllers shape them", func() {
	var namespace string
	var nodes []string
	BeforeEach(func(ctx SpecContext) {
		apply(ctx, "%s", rightsToBuiltin)
		DeferCleanup(func(ctx SpecContext) {
			_, err := h.Kubectl(ctx, "delete", "clusterrole", "autohealer-health-checks-builtin")
			Expect(err).NotTo(HaveOccurred())
		}, NodeTimeout(specTime))
		namespace = place(ctx)
		var err error
		nodes, err = h.AddNodes(ctx, 2, cluster.NodeOptions{Prefix: namespace, Labels: map[string]string{"spec": namespace}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			for _, name := range nodes {
				Expect(client.IgnoreNotFound(h.Client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))).To(Succeed())
			}
		}, NodeTimeout(specTime))
		DeferCleanup(func(ctx SpecContext) { // its pods, before the nodes that kwok plays them on
			_, err := h.Kubectl(ctx, "delete", "namespace", namespace, "--timeout=60s")
			Expect(err).NotTo(HaveOccurred())
		}, NodeTimeout(specTime))
		putTarget(ctx, gadget, namespace)
	}, NodeTimeout(specTime))

	is := func(ctx context.Context, object, status, reason, message string) {
		GinkgoHelper()
		Eventually(condition(ctx, gadget, namespace, object), time.Minute).Should(is(status, reason, message), object)
	}
	well := func(ctx context.Context, objects ...string) {
		GinkgoHelper()
		for _, o := range objects {
			is(ctx, o, "True", "HealthCheckSuccessful", `^\(1/1\)`)
		}
	}
	progresses := func(ctx context.Context, object, message string) {
		GinkgoHelper()
		is(ctx, object, "Unknown", "HealthCheckProgressing", message)
	}
	ill := func(ctx context.Context, object, message string) {
		GinkgoHelper()
		is(ctx, object, "False", "HealthCheckUnsuccessful", message)
	}

	It("are judged by the built-in checks of workloads", func(ctx SpecContext) {
		const slowly = ", updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}"
		workload(ctx, namespace, "Deployment", "d", false, ", replicas: 2")
		workload(ctx, namespace, "Deployment", "starting", true, "")
		workload(ctx, namespace, "Deployment", "stuck", true, ", progressDeadlineSeconds: 2")
		workload(ctx, namespace, "StatefulSet", "s", false, ", replicas: 1, serviceName: s")
		workload(ctx, namespace, "ReplicaSet", "r", false, ", replicas: 2")
		workload(ctx, namespace, "DaemonSet", "e", false, slowly)
		register(ctx, namespace, looking(namespace, "apps/v1 Deployment d", "apps/v1 Deployment starting", "apps/v1 Deployment stuck", "apps/v1 StatefulSet s",
			"apps/v1 ReplicaSet r", "apps/v1 DaemonSet e"))
		well(ctx, "Deployment-d", "StatefulSet-s", "ReplicaSet-r", "DaemonSet-e")
		progresses(ctx, "Deployment-starting", `condition Available of Deployment is False \(MinimumReplicasUnavailable\)`)
		ill(ctx, "Deployment-stuck", `condition Progressing of Deployment is False \(ProgressDeadlineExceeded\)`)

		By("pods that turn unready")
		for _, app := range []string{"d", "s", "r", "e"} {
			turnPods(ctx, namespace, app, true)
		}
		ill(ctx, "Deployment-d", `condition Available of Deployment is False \(MinimumReplicasUnavailable\)`)
		ill(ctx, "StatefulSet-s", `0 of 1 replicas of StatefulSet are ready`)
		ill(ctx, "ReplicaSet-r", `0 of 2 replicas of ReplicaSet are ready`)
		ill(ctx, "DaemonSet-e", `2 of 2 pods of DaemonSet are unavailable, and 0 may be`)
		for _, app := range []string{"d", "s", "r", "e"} {
			turnPods(ctx, namespace, app, false)
		}
		well(ctx, "Deployment-d", "StatefulSet-s", "ReplicaSet-r", "DaemonSet-e")

		By("a node on which the DaemonSet's pod runs, and shouldn't")
		_, err := h.Kubectl(ctx, "taint", "node", nodes[0], "spec=here:NoSchedule")
		Expect(err).NotTo(HaveOccurred())
		countAnew(ctx, namespace, "e")
		ill(ctx, "DaemonSet-e", `1 pods of DaemonSet run on nodes where they shouldn't`)
		_, err = h.Kubectl(ctx, "taint", "node", nodes[0], "spec=here:NoSchedule-")
		Expect(err).NotTo(HaveOccurred())
		countAnew(ctx, namespace, "e")
		well(ctx, "DaemonSet-e")

		By("rollouts whose first pods don't get ready")
		workload(ctx, namespace, "StatefulSet", "s", true, ", replicas: 1, serviceName: s")
		workload(ctx, namespace, "DaemonSet", "e", true, slowly)
		progresses(ctx, "StatefulSet-s", `0 of 1 replicas of StatefulSet are ready`)
		Eventually(func() string {
			updated, err := h.Kubectl(ctx, "get", "daemonset", "-n", namespace, "e", "-o", "jsonpath={.status.updatedNumberScheduled} {.status.numberUnavailable}")
			Expect(err).NotTo(HaveOccurred())
			return updated
		}).Should(Equal("1 1"))
		Consistently(condition(ctx, gadget, namespace, "DaemonSet-e"), 6*time.Second).Should(HaveKeyWithValue("status", "True"), "one may be, also at the next look")

		By("a quota that keeps pods from being made")
		apply(ctx, "{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: %s, name: none}, spec: {hard: {pods: '0'}}}", namespace)
		_, err = h.Kubectl(ctx, "scale", "-n", namespace, "deployment/d", "--replicas=3")
		Expect(err).NotTo(HaveOccurred())
		ill(ctx, "Deployment-d", `Deployment can't make pods \(FailedCreate\): .*exceeded quota`)
		_, err = h.Kubectl(ctx, "delete", "pods", "-n", namespace, "-l", "app=e")
		Expect(err).NotTo(HaveOccurred())
		ill(ctx, "DaemonSet-e", `0 of 2 pods of DaemonSet are scheduled`)

		By("a controller that doesn't see a change")
		Expect(h.StopComponent(cluster.ControllerManager)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(h.StartComponent(ctx, cluster.ControllerManager)).To(Succeed()) }, NodeTimeout(specTime))
		_, err = h.Kubectl(ctx, "scale", "-n", namespace, "replicaset/r", "--replicas=3")
		Expect(err).NotTo(HaveOccurred())
		progresses(ctx, "ReplicaSet-r", `ReplicaSet was changed, and its status is of generation 1 instead of 2`)
	}, NodeTimeout(3*specTime))

	It("are judged by the other built-in checks", func(ctx SpecContext) {
		job := "{apiVersion: batch/v1, kind: Job, metadata: {namespace: %[1]s, name: %[2]s}, spec: {template: {metadata: {labels: {app: %[2]s}}, spec: {restartPolicy: Never, nodeSelector: {spec: %[1]s}, containers: [{name: c, image: i}]}}%[3]s}}"
		apply(ctx, job, namespace, "working", "")
		apply(ctx, job, namespace, "late", ", activeDeadlineSeconds: 1")
		apply(ctx, "{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: p, labels: {app: p}}, spec: {nodeSelector: {spec: %[1]s}, containers: [{name: c, image: i}]}}", namespace)
		apply(ctx, "{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: nowhere}, spec: {nodeSelector: {spec: nowhere}, containers: [{name: c, image: i}]}}", namespace)
		volume := "spec: {accessModes: [ReadWriteOnce], storageClassName: %[1]s"
		claim := "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {namespace: %[1]s, name: %[2]s}, " + volume + ", resources: {requests: {storage: 1Gi}}}}"
		apply(ctx, claim, namespace, "bound")
		apply(ctx, "{apiVersion: v1, kind: Service, metadata: {namespace: %s, name: inside}, spec: {ports: [{port: 80}]}}", namespace)
		apply(ctx, "{apiVersion: v1, kind: Service, metadata: {namespace: %s, name: outside}, spec: {type: LoadBalancer, ports: [{port: 80}]}}", namespace)
		group := namespace + ".example.org"
		definition := "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[2]ss.%[1]s}, spec: {group: %[1]s, scope: Namespaced, names: {plural: %[2]ss, kind: %[3]s}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}"
		apply(ctx, definition, group, "first", "Same")
		_, err := h.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd/firsts."+group)
		Expect(err).NotTo(HaveOccurred())
		apply(ctx, definition, group, "second", "Same")
		DeferCleanup(func(ctx SpecContext) {
			_, err := h.Kubectl(ctx, "delete", "crd", "firsts."+group, "seconds."+group)
			Expect(err).NotTo(HaveOccurred())
		}, NodeTimeout(specTime))
		register(ctx, namespace, looking(namespace, "batch/v1 Job working", "batch/v1 Job late", "v1 Pod p", "v1 Pod nowhere", "v1 PersistentVolumeClaim bound",
			"v1 Service inside", "v1 Service outside", "apiextensions.k8s.io/v1 CustomResourceDefinition firsts."+group, "apiextensions.k8s.io/v1 CustomResourceDefinition seconds."+group))
		dashed := strings.ReplaceAll(group, ".", "-")
		well(ctx, "Job-working", "Pod-p", "Service-inside", "CustomResourceDefinition-firsts-"+dashed)
		ill(ctx, "Job-late", `Job failed \(DeadlineExceeded\)`)
		progresses(ctx, "Pod-nowhere", "Pod is Pending")
		progresses(ctx, "PersistentVolumeClaim-bound", "isn't bound yet")
		progresses(ctx, "Service-outside", "has no address")
		ill(ctx, "CustomResourceDefinition-seconds-"+dashed, `condition NamesAccepted of CustomResourceDefinition is False \((List)?KindConflict\)`)

		By("a volume that comes, and goes")
		apply(ctx, "{apiVersion: v1, kind: PersistentVolume, metadata: {name: %[1]s}, "+volume+", capacity: {storage: 1Gi}, hostPath: {path: /nowhere}}}", namespace)
		well(ctx, "PersistentVolumeClaim-bound")
		_, err = h.Kubectl(ctx, "patch", "pv", namespace, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		Expect(err).NotTo(HaveOccurred())
		_, err = h.Kubectl(ctx, "delete", "pv", namespace, "--wait=false")
		Expect(err).NotTo(HaveOccurred())
		_, err = h.Kubectl(ctx, "patch", "pv", namespace, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		if err != nil { // it was gone at once
			Expect(err).To(MatchError(ContainSubstring("not found")))
		}
		ill(ctx, "PersistentVolumeClaim-bound", "has lost its volume")

		By("a pod that isn't ready, and nodes that are cordoned")
		turnPods(ctx, namespace, "p", true)
		ill(ctx, "Pod-p", `condition Ready of Pod is False \(ContainersNotReady\)`)
		content, err := os.ReadFile(h.Kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		Expect(h.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gardener"}, Data: map[string][]byte{"kubeconfig": content}})).To(Succeed())
		all := &corev1.NodeList{}
		Expect(h.Client.List(ctx, all)).To(Succeed())
		register(ctx, namespace+"-nodes", about(gadget, namespace, fmt.Sprintf("shootKubeconfig: {secretName: gardener}\nchecks: [{name: nodes, conditionType: Nodes, evaluate: {nodes: {min: %d}}}]", len(all.Items))))
		well(ctx, "Nodes")
		_, err = h.Kubectl(ctx, "cordon", nodes[0])
		Expect(err).NotTo(HaveOccurred())
		progresses(ctx, "Nodes", "cordoned: "+nodes[0])
	}, NodeTimeout(3*specTime))
})

//go:build linux

// Package pod tests the manager as users run it: in the image that make image makes, installed in each of the ways of
// docs/how-to/install.md, in a Pod on a real kubelet.
package pod

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/node"
)

func TestPod(t *testing.T) {
	if why := node.Unavailable(); why != "" {
		t.Skip(why)
	}
	suite.Run(t, "The manager in a Pod")
}

const (
	// thisTag is that of this checkout's image.
	thisTag    = "v1"
	deployment = "deployment/autohealer-manager"
	// flooded are a fifth of all nodes, whom no policy may taint.
	flooded = corev1.NodeConditionType("Flooded")
)

var (
	root string
	c    *cluster.Cluster
	api  client.Client
	real *node.Node
	// ballast are kwok's nodes: so many that the limits let a few be tainted.
	ballast []string
)

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	root, err = cluster.ModuleRoot()
	Expect(err).NotTo(HaveOccurred())
	c, err = cluster.Start(ctx, cluster.Options{
		ControllerManager: true, Scheduler: true, Kwok: true, Out: GinkgoWriter,
		ExtraArgs: map[cluster.Component][]string{
			cluster.Kwok: node.BesideKwok,
			// There is no kube-proxy: the API server looks up the pods behind the webhook's Service itself.
			cluster.APIServer: {"--enable-aggregator-routing=true"},
		},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(c.Stop()).To(Succeed()) })
	api, err = client.New(c.Config, client.Options{Scheme: harness.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	ballast, err = node.AddBallast(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	report(ctx, corev1.ConditionTrue, flooded, ballast[50:70]...)
	real, err = node.Start(ctx, c, node.Options{Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(real.Stop()).To(Succeed()) })
	program := filepath.Join(c.BinDir, "linux-"+runtime.GOARCH, "manager")
	Expect(program).To(BeAnExistingFile(), "run `make build static`")
	Expect(real.Load(ctx, program, image+":"+thisTag)).To(Succeed())
	suite.Measured("the manager takes %.0f MB, its image %.0f MB to pull", megabytes(program), megabytes(real.Archive()))
}, NodeTimeout(3*time.Minute))

var _ = JustAfterEach(func() {
	if !CurrentSpecReport().Failed() {
		return
	}
	for _, args := range [][]string{{"describe", "pods"}, {"logs", deployment, "--tail=20"}, {"logs", deployment, "--tail=20", "--previous"}} {
		said, err := c.Kubectl(context.Background(), append(args, "-n", harness.Namespace)...)
		AddReportEntry(args[0], fmt.Sprintln(said, err))
	}
	AddReportEntry("the kubelet's log ends with", c.LogTail(real.Kubelet, 30))
})

func megabytes(file string) float64 {
	GinkgoHelper()
	info, err := os.Stat(file)
	Expect(err).NotTo(HaveOccurred())
	return float64(info.Size()) / 1e6
}

// rollOut returns once the version's pod is ready and no other is there.
func (s *story) rollOut(ctx context.Context, tag string) {
	GinkgoHelper()
	kubectl(ctx, "rollout", "status", deployment, "-n", harness.Namespace, "--timeout=60s")
	Eventually(func() (err error) {
		s.pod, err = managerPod(ctx)
		return err
	}).WithTimeout(time.Minute).Should(Succeed())
	Expect(s.pod.Spec.Containers[0].Image).To(Equal(image + ":" + tag))
}

// managerPod is the only one of the manager.
func managerPod(ctx context.Context) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(harness.Namespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"}); err != nil {
		return nil, err
	}
	if len(pods.Items) != 1 {
		return nil, fmt.Errorf("there are %d pods", len(pods.Items))
	}
	return &pods.Items[0], nil
}

// container is the status of the manager's; the kubelet may not have told of it yet.
func container(ctx context.Context) (corev1.ContainerStatus, error) {
	pod, err := managerPod(ctx)
	if err != nil || len(pod.Status.ContainerStatuses) == 0 {
		return corev1.ContainerStatus{}, err
	}
	return pod.Status.ContainerStatuses[0], nil
}

// report writes a condition of nodes as node-problem-detector does.
func report(ctx context.Context, status corev1.ConditionStatus, condition corev1.NodeConditionType, nodes ...string) {
	GinkgoHelper()
	for _, name := range nodes {
		Expect(c.SetCondition(ctx, name, condition, status, cluster.ConditionOptions{Reason: "E2E"})).To(Succeed())
	}
}

func getNode(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	var node corev1.Node
	Expect(api.Get(ctx, client.ObjectKey{Name: name}, &node)).To(Succeed())
	return &node
}

func effect(ctx context.Context, name string) func() (corev1.TaintEffect, error) {
	return func() (corev1.TaintEffect, error) {
		var node corev1.Node
		err := api.Get(ctx, client.ObjectKey{Name: name}, &node)
		return fixture.EffectOn(&node, taintKey), err
	}
}

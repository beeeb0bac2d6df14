//go:build linux

package pod

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/page"
)

const image = "autohealer.test/manager"

// installation is the overlay of the install page, with what it says of nodes' networks, and what this machine takes: one replica on
// the one real node, ports of its own, and an API server that no Service leads to.
type installation struct {
	dir     string
	overlay string
}

func newInstallation() *installation {
	GinkgoHelper()
	root, err := cluster.ModuleRoot()
	Expect(err).NotTo(HaveOccurred())
	dir, err := filepath.EvalSymlinks(c.Dir) // which goes also when this program is killed
	Expect(err).NotTo(HaveOccurred())
	dir = filepath.Join(dir, "overlay")
	Expect(os.Mkdir(dir, 0o700)).To(Succeed())
	base, err := filepath.Rel(dir, filepath.Join(root, "config", "default")) // kustomize takes no absolute path
	Expect(err).NotTo(HaveOccurred())
	p, err := page.Read(root, "docs/how-to/install.md")
	Expect(err).NotTo(HaveOccurred())
	var overlay strings.Builder
	for _, b := range p.Blocks {
		if b.File == "kustomization.yaml" {
			overlay.WriteString(b.Text)
		}
	}
	server, err := url.Parse(c.URL)
	Expect(err).NotTo(HaveOccurred())
	overlay.WriteString("- target: {kind: Deployment, name: autohealer-manager}\n  patch: |\n")
	patch := func(op, path, value string) {
		fmt.Fprintf(&overlay, "    - {op: %s, path: %s, value: %s}\n", op, path, value)
	}
	patch("replace", "/spec/replicas", "1")
	patch("add", "/spec/template/spec/nodeSelector/kubernetes.io~1hostname", real.Name)
	const container = "/spec/template/spec/containers/0"
	for i, flag := range []string{"--webhook-port=%d", "--metrics-bind-address=:%d", "--health-probe-bind-address=:%d"} {
		port, err := cluster.FreePort()
		Expect(err).NotTo(HaveOccurred())
		patch("add", container+"/args/-", fmt.Sprintf(flag, port))
		patch("replace", fmt.Sprintf("%s/ports/%d/containerPort", container, i), fmt.Sprint(port))
	}
	patch("add", container+"/env/-", fmt.Sprintf("{name: KUBERNETES_SERVICE_HOST, value: %s}", server.Hostname()))
	patch("add", container+"/env/-", fmt.Sprintf("{name: KUBERNETES_SERVICE_PORT, value: %q}", server.Port()))
	return &installation{dir, strings.NewReplacer(
		"../autohealer/config/default", base, "images.example.org/platform/autohealer", image, "newTag: v0.1.0", "newTag: TAG",
	).Replace(overlay.String())}
}

// apply installs a version or replaces another by it, and returns once its pod is ready and no other is there.
func (i *installation) apply(ctx context.Context, tag string) *corev1.Pod {
	GinkgoHelper()
	overlay := strings.Replace(i.overlay, "newTag: TAG", "newTag: "+tag, 1)
	Expect(os.WriteFile(filepath.Join(i.dir, "kustomization.yaml"), []byte(overlay), 0o600)).To(Succeed())
	_, err := c.Kubectl(ctx, "apply", "-k", i.dir)
	Expect(err).NotTo(HaveOccurred())
	_, err = c.Kubectl(ctx, "rollout", "status", "deployment/autohealer-manager", "-n", harness.Namespace, "--timeout=60s")
	Expect(err).NotTo(HaveOccurred())
	var pod *corev1.Pod
	Eventually(func() (err error) {
		pod, err = managerPod(ctx)
		return err
	}).WithTimeout(time.Minute).Should(Succeed())
	Expect(pod.Spec.Containers[0].Image).To(Equal(image + ":" + tag))
	return pod
}

// managerPod is the only one of the manager.
func managerPod(ctx context.Context) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(harness.Namespace)); err != nil {
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

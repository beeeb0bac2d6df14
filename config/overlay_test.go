package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/page"
)

// TestTheOverlayOfTheInstallPage makes pods of the image that it names, and on their nodes' network with the patches for that.
func TestTheOverlayOfTheInstallPage(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an API server")
	}
	g := NewWithT(t)
	g.Expect(errors.Join(readAll("."), readAll("../crds"))).To(Succeed())
	parts := overlayParts(t)
	g.Expect(parts).To(HaveLen(2), "the overlay, and the patches for the node's network")
	c, err := cluster.Start(t.Context(), cluster.Options{ControllerManager: true})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(c.Stop()).To(Succeed()) })
	pods := kubernetes.NewForConfigOrDie(c.Config).CoreV1().Pods("autohealer-system")
	places := func() (all []string, err error) {
		list, err := pods.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, pod := range list.Items {
			all = append(all, placeOf(&pod))
		}
		return all, nil
	}

	const image = "images.example.org/platform/autohealer:v0.1.0"
	for _, step := range []struct{ overlay, place string }{
		{parts[0], image + ", of its own"},
		{strings.Join(parts, "\n"), image + ", of the node"},
	} {
		dir := t.TempDir()
		g.Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(step.overlay), 0o600)).To(Succeed())
		_, err = c.Kubectl(t.Context(), "apply", "-k", dir)
		g.Expect(err).NotTo(HaveOccurred())
		g.Eventually(places, "60s", "200ms").Should(ContainElement(step.place), "without kubelets no pod gets ready, and so only the first is replaced")
	}
}

func placeOf(pod *corev1.Pod) string {
	network := "of its own"
	if pod.Spec.HostNetwork {
		network = "of the node"
	}
	return fmt.Sprintf("%s, %s", pod.Spec.Containers[0].Image, network)
}

// overlayParts are the pieces of an overlay that the page has, with the path of this checkout.
func overlayParts(t *testing.T) (parts []string) {
	t.Helper()
	p, err := page.Read("..", "docs/how-to/install.md")
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("default")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range p.Blocks {
		if b.File == "kustomization.yaml" {
			parts = append(parts, strings.Replace(b.Text, "../autohealer/config/default", relative(t, here), 1))
		}
	}
	return parts
}

// relative is the path as kustomize takes it, from a test's directory.
func relative(t *testing.T, path string) string {
	t.Helper()
	from, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Rel(from, path)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

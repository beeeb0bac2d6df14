package installations

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/config"
	"github.com/resourcestack/autohealer/e2e/page"
)

// serviceMonitor is what matters here of Prometheus Operator's.
type serviceMonitor struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port      string `json:"port"`
			TLSConfig struct {
				ServerName string `json:"serverName"`
				CA         struct {
					Secret corev1.SecretKeySelector `json:"secret"`
				} `json:"ca"`
			} `json:"tlsConfig"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// overlaid is the ServiceMonitor that the overlay of docs/reference/metrics.md builds, for the other namespace. It expects that the overlay
// has alerts, too, and that Prometheus finds both, and the metrics' Service.
func overlaid(ctx context.Context) (m serviceMonitor) {
	GinkgoHelper()
	reference, err := page.Read(h.Root(), "docs/reference/metrics.md")
	Expect(err).NotTo(HaveOccurred())
	overlay, err := reference.File("kustomization.yaml")
	Expect(err).NotTo(HaveOccurred())
	folder, err := filepath.EvalSymlinks(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	from, err := filepath.Rel(folder, filepath.Join(h.Root(), "config", "prometheus"))
	Expect(err).NotTo(HaveOccurred())
	overlay = strings.NewReplacer("../autohealer/config/prometheus", from, "namespace: autohealer-system", "namespace: "+other).Replace(overlay)
	Expect(os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(overlay), 0o600)).To(Succeed())
	built, err := h.Kubectl(ctx, "kustomize", folder)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(folder, "built.yaml"), []byte(built), 0o600)).To(Succeed())

	objects, err := config.Objects(os.DirFS(folder), "built.yaml")
	Expect(err).NotTo(HaveOccurred())
	Expect(objects).To(HaveLen(2))
	for _, o := range objects {
		Expect(o.GetNamespace()).To(Equal(other), o.GetKind())
		Expect(o.GetLabels()).To(HaveKeyWithValue("release", "kube-prometheus-stack"), o.GetKind())
		if o.GetKind() == "ServiceMonitor" {
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &m)).To(Succeed())
		}
	}
	Expect(m.Spec.Endpoints).To(HaveLen(1))
	services, err := config.Objects(config.FS, "manager/*.yaml", "Service")
	Expect(err).NotTo(HaveOccurred())
	Expect(services).To(ContainElement(And(
		HaveField("GetLabels()", HaveKeyWithValue("app.kubernetes.io/component", m.Spec.Selector.MatchLabels["app.kubernetes.io/component"])),
		HaveField("Object", HaveKeyWithValue("spec", HaveKeyWithValue("ports", ContainElement(HaveKeyWithValue("name", m.Spec.Endpoints[0].Port))))),
	)))
	return m
}

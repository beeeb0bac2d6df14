package world

import (
	"context"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/gardener"
)

// checked is a Gadget whose condition Dialled says what a ConfigMap says, and an OutlierPolicy.
const checked = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: gadget-checks, labels: {autohealer.resourcestack.com/aggregate-to-health-checks: "true"}}
rules:
- {apiGroups: [example.org], resources: [gadgets], verbs: [get, list, watch, patch]}
- {apiGroups: [example.org], resources: [gadgets/status], verbs: [patch]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shoot, name: dial}, data: {phase: Up}}
---
{apiVersion: example.org/v1, kind: Gadget, metadata: {namespace: shoot, name: gadget}, spec: {type: dialled}}
---
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: HealthCheckRegistration
metadata: {name: dialling}
spec:
  target: {apiVersion: example.org/v1, kind: Gadget, type: dialled}
  syncPeriod: 5s
  checks:
  - {name: dial, conditionType: Dialled, object: {apiVersion: v1, kind: ConfigMap, name: "'dial'"}, evaluate: {cel: {healthy: object.data.phase == 'Up', failed: object.data.phase == 'Down'}}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: shoot, name: backend}, spec: {selector: {app: kcm}, ports: [{port: 80}]}}
---
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: OutlierPolicy
metadata: {namespace: shoot, name: backend}
spec:
  targetRefs: [{group: "", kind: Service, name: backend}]
  outlierDetection: {consecutiveServerErrors: 5}
`

// CreateChecked makes a HealthCheckRegistration with its target, which is well, and an OutlierPolicy; it returns when the target
// has its condition.
func (w *World) CreateChecked(ctx context.Context) {
	ginkgo.GinkgoHelper()
	w.apply(ctx, gardener.Definitions)
	_, err := w.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "gadgets.example.org")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	w.apply(ctx, checked)
	gomega.Eventually(w.dialled).WithContext(ctx).Should(gomega.Equal("True"))
}

func (w *World) apply(ctx context.Context, manifests string) {
	ginkgo.GinkgoHelper()
	_, err := w.KubectlWithInput(ctx, strings.NewReader(manifests), "apply", "--server-side", "--force-conflicts", "-f", "-")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}

// Dial makes the target sick, when it is Down, or well, when it is Up.
func (w *World) Dial(ctx context.Context, phase string) {
	ginkgo.GinkgoHelper()
	w.apply(ctx, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shoot, name: dial}, data: {phase: "+phase+"}}")
}

// dialled is the status of the target's condition, "" when it has none.
func (w *World) dialled(ctx context.Context) (string, error) {
	target := &unstructured.Unstructured{}
	target.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gadget"})
	if err := w.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "gadget"}, target); err != nil {
		return "", err
	}
	list, _, err := unstructured.NestedSlice(target.Object, "status", "conditions")
	for _, item := range list {
		if entry, ok := item.(map[string]any); ok && entry["type"] == "Dialled" {
			status, _ := entry["status"].(string)
			return status, nil
		}
	}
	return "", err
}

package runbooks

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/gardener"
)

// checkRights let Autohealer keep conditions of Gadgets, and read so much more.
const checkRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: checks-of-gadgets, labels: {autohealer.resourcestack.com/aggregate-to-health-checks: "true"}}
rules:
- {apiGroups: [example.org], resources: [gadgets], verbs: [get, list, watch, patch]}
- {apiGroups: [example.org], resources: [gadgets/status], verbs: [patch]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get]}
- {apiGroups: [""], resources: [%s], verbs: [get, list, watch]}
`

const shopChecks = `
apiVersion: example.org/v1
kind: Gadget
metadata: {name: w, namespace: default}
spec: {type: shop}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, storageClassName: none}
---
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: HealthCheckRegistration
metadata: {name: shop}
spec:
  target: {apiVersion: example.org/v1, kind: Gadget, type: shop}
  syncPeriod: 5s
  checks: [{name: disk, conditionType: StorageHealthy, object: {apiVersion: v1, kind: PersistentVolumeClaim, name: "'disk'"}, evaluate: {builtin: {}}}]
`

var _ = Describe("docs/runbooks, of health checks", func() {
	It("checks-unknown.md", func(ctx SpecContext) {
		_, definition, _ := strings.Cut(gardener.Definitions, "metadata: {name: gadgets.example.org}")
		definition, _, _ = strings.Cut(definition, "\n---")
		_, err := h.Apply(ctx, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: gadgets.example.org}"+definition+"\n---"+fmt.Sprintf(checkRights, "configmaps"))
		Expect(err).NotTo(HaveOccurred())
		kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd/gadgets.example.org")
		DeferCleanup(func(ctx SpecContext) {
			kubectl(ctx, "delete", "healthcheckregistration", "shop")
			kubectl(ctx, "delete", "-n", "default", "pvc/disk", "gadget/w")
			kubectl(ctx, "delete", "clusterrole/checks-of-gadgets", "crd/gadgets.example.org")
		})
		_, err = h.Apply(ctx, shopChecks)
		Expect(err).NotTo(HaveOccurred())
		series(ctx, `autohealer_healthcheckregistration_targets{policy="shop",state="unknown"} 1`)
		expectWholePage(ctx, "checks-unknown.md")

		_, err = h.Apply(ctx, fmt.Sprintf(checkRights, "persistentvolumeclaims"))
		Expect(err).NotTo(HaveOccurred())
		series(ctx, `autohealer_healthcheckregistration_targets{policy="shop",state="unknown"} 0`)
		series(ctx, `autohealer_healthcheckregistration_targets{policy="shop",state="progressing"} 1`)
	})
})

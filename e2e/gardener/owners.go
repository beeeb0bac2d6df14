package gardener

// Owners are the kinds of Gardener's that ManagedResources are told of on, as far as checks see them.
const Owners = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: controlplanes.extensions.gardener.cloud}
spec:
  group: extensions.gardener.cloud
  names: {kind: ControlPlane, listKind: ControlPlaneList, plural: controlplanes, singular: controlplane}
  scope: Namespaced
  versions:
  - {name: v1alpha1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: ` + owner + `}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: extensions.extensions.gardener.cloud}
spec:
  group: extensions.gardener.cloud
  names: {kind: Extension, listKind: ExtensionList, plural: extensions, singular: extension}
  scope: Namespaced
  versions:
  - {name: v1alpha1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: ` + owner + `}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gardens.operator.gardener.cloud}
spec:
  group: operator.gardener.cloud
  names: {kind: Garden, listKind: GardenList, plural: gardens, singular: garden}
  scope: Cluster
  versions:
  - {name: v1alpha1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: ` + owner + `}}
`

// owner keeps Gardener's conditions in an atomic list.
const owner = `{type: object, properties: {
      spec: {type: object, x-kubernetes-preserve-unknown-fields: true},
      status: {type: object, properties: {conditions: {type: array, items: {type: object, required: [lastTransitionTime, lastUpdateTime, message, reason, status, type], properties: {
        codes: {type: array, items: {type: string}}, lastTransitionTime: {type: string, format: date-time}, lastUpdateTime: {type: string, format: date-time},
        message: {type: string}, reason: {type: string}, status: {type: string}, type: {type: string}}}}}}}}`

// Package gardener has kinds to try health checks with.
package gardener

// Definitions are Gardener's as far as checks see them: conditions in an atomic list, with codes and lastUpdateTime. Gadget keeps
// metav1.Condition in a map.
const Definitions = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: workers.extensions.gardener.cloud}
spec:
  group: extensions.gardener.cloud
  names: {kind: Worker, listKind: WorkerList, plural: workers, singular: worker}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties:
              observedGeneration: {type: integer}
              conditions:
                type: array
                items:
                  type: object
                  required: [lastTransitionTime, lastUpdateTime, message, reason, status, type]
                  properties:
                    codes: {type: array, items: {type: string}}
                    lastTransitionTime: {type: string, format: date-time}
                    lastUpdateTime: {type: string, format: date-time}
                    message: {type: string}
                    reason: {type: string}
                    status: {type: string}
                    type: {type: string}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: managedresources.resources.gardener.cloud}
spec:
  group: resources.gardener.cloud
  names: {kind: ManagedResource, listKind: ManagedResourceList, plural: managedresources, singular: managedresource}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: machinedeployments.machine.sapcloud.io}
spec:
  group: machine.sapcloud.io
  names: {kind: MachineDeployment, listKind: MachineDeploymentList, plural: machinedeployments, singular: machinedeployment}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.org}
spec:
  group: example.org
  names: {kind: Gadget, listKind: GadgetList, plural: gadgets, singular: gadget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties:
              conditions:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items:
                  type: object
                  required: [lastTransitionTime, message, reason, status, type]
                  properties:
                    lastTransitionTime: {type: string, format: date-time}
                    message: {type: string}
                    observedGeneration: {type: integer, format: int64}
                    reason: {type: string}
                    status: {type: string, enum: ["True", "False", Unknown]}
                    type: {type: string}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: passings.example.org}
spec:
  group: example.org
  names: {kind: Passing, listKind: PassingList, plural: passings, singular: passing}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

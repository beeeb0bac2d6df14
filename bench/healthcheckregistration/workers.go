package healthcheckregistration

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/bench/testbed"
	"github.com/resourcestack/autohealer/e2e/gardener"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

// targetsPerNamespace of the Workers without a shoot; one that has one has a namespace of its own.
const targetsPerNamespace = 100

var (
	workersResource  = schema.GroupVersionResource{Group: "extensions.gardener.cloud", Version: "v1alpha1", Resource: "workers"}
	managedsResource = schema.GroupVersionResource{Group: "resources.gardener.cloud", Version: "v1alpha1", Resource: "managedresources"}
	benchLabels      = map[string]any{"app": "bench"}
	rolledOut        = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"}}
)

// conditionType is the type that all checks decide.
const conditionType = "EveryNodeReady"

// workersRegistration is about all Workers but those with a shoot. A sync period is short enough to have each looked at while
// nothing happens.
const workersRegistration = `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: HealthCheckRegistration
metadata: {name: bench}
spec:
  target: {apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, type: bench}
  syncPeriod: 15s
  checks:
  - {name: mcm, conditionType: EveryNodeReady, object: {apiVersion: apps/v1, kind: Deployment, name: target.metadata.name}, evaluate: {builtin: {}}}
  - {name: resources, conditionType: EveryNodeReady, object: {apiVersion: resources.gardener.cloud/v1alpha1, kind: ManagedResource, name: target.metadata.name}, evaluate: {builtin: {}}}
  - {name: settings, conditionType: EveryNodeReady, object: {apiVersion: v1, kind: ConfigMap, name: target.metadata.name}, evaluate: {cel: {healthy: object.data.state == 'Ready'}}}
`

func (b *Bench) register(ctx context.Context, manifest string) (*v1alpha1.HealthCheckRegistration, error) {
	registration := &v1alpha1.HealthCheckRegistration{}
	if err := yaml.UnmarshalStrict([]byte(manifest), registration); err != nil {
		return nil, fmt.Errorf("read a registration: %w", err)
	}
	if err := b.Client.Create(ctx, registration); err != nil {
		return nil, fmt.Errorf("create a registration: %w", err)
	}
	return registration, nil
}

// workers are the targets, each with the dependents that its checks look at, and a watch of their conditions.
type workers struct {
	*testbed.Watch[*unstructured.Unstructured, health.Status]
	bench   *Bench
	dynamic dynamic.Interface
}

func workerName(i int) string { return fmt.Sprintf("worker-%d", i) }

func workerNamespace(i int) string { return fmt.Sprintf("health-%d", i/targetsPerNamespace) }

// addWorkers creates the kinds, the targets and their dependents, all of them healthy.
func (b *Bench) addWorkers(ctx context.Context) (*workers, error) {
	if _, err := b.Apply(ctx, gardener.Definitions+"---"+rights); err != nil {
		return nil, err
	}
	if _, err := b.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "workers.extensions.gardener.cloud", "managedresources.resources.gardener.cloud"); err != nil {
		return nil, err
	}
	workers, err := b.watchWorkers(ctx, "bench")
	if err != nil {
		return nil, err
	}
	if err := testbed.Each(ctx, (b.Workers+targetsPerNamespace-1)/targetsPerNamespace, func(ctx context.Context, i int) error {
		return b.addNamespace(ctx, workerNamespace(i*targetsPerNamespace))
	}); err != nil {
		return nil, err
	}
	return workers, testbed.Each(ctx, b.Workers, workers.add)
}

// claimed has no condition yet, or any more, and stands in the target's record.
const claimed health.Status = "claimed"

// watchWorkers watches all of a type. The state of one without a condition and without a claim is "".
func (b *Bench) watchWorkers(ctx context.Context, workerType string) (*workers, error) {
	config := rest.CopyConfig(b.Config)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, workersResource, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = "type=" + workerType
	})
	watch, err := testbed.StartWatch(ctx, informer.Informer(), func(worker *unstructured.Unstructured) health.Status {
		if c := health.Find(worker, conditionType); c != nil {
			return c.Status
		}
		if _, ok := worker.GetAnnotations()[v1alpha1.AnnotationOwnedConditions]; ok {
			return claimed
		}
		return ""
	})
	return &workers{watch, b, client}, err
}

// target is a Worker as the watch showed it last.
func (w *workers) target(i int) *unstructured.Unstructured { return w.Get(workerName(i)).Object }

func (b *Bench) addNamespace(ctx context.Context, name string) error {
	if _, err := b.Clients.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a namespace: %w", err)
	}
	return nil
}

// add creates a target's dependents, and then the target.
func (w *workers) add(ctx context.Context, i int) error {
	namespace, meta := workerNamespace(i), metav1.ObjectMeta{Name: workerName(i), Labels: map[string]string{"app": "bench"}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: meta.Labels}, Template: template}}
	if _, err := w.bench.Clients.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a Deployment: %w", err)
	}
	if err := w.setAvailable(ctx, i, true); err != nil {
		return err
	}
	settings := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"state": "Ready"}}
	if _, err := w.bench.Clients.CoreV1().ConfigMaps(namespace).Create(ctx, settings, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a ConfigMap: %w", err)
	}
	managed := dependent("resources.gardener.cloud/v1alpha1", "ManagedResource", workerName(i))
	managed.Object["status"] = map[string]any{"observedGeneration": int64(1), "conditions": []any{
		map[string]any{"type": "ResourcesApplied", "status": "True"}, map[string]any{"type": "ResourcesHealthy", "status": "True"},
	}}
	resources := w.dynamic.Resource(managedsResource).Namespace(namespace)
	created, err := resources.Create(ctx, managed, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a ManagedResource: %w", err)
	}
	managed.SetResourceVersion(created.GetResourceVersion())
	if _, err := resources.UpdateStatus(ctx, managed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the status of a ManagedResource: %w", err)
	}
	return w.addTarget(ctx, namespace, workerName(i), "bench")
}

func (w *workers) addTarget(ctx context.Context, namespace, name, workerType string) error {
	worker := dependent("extensions.gardener.cloud/v1alpha1", "Worker", name)
	worker.SetLabels(map[string]string{"type": workerType})
	worker.Object["spec"] = map[string]any{"type": workerType, "region": "eu-1", "pools": []any{map[string]any{"name": "a", "minimum": int64(1), "maximum": int64(3)}}}
	if _, err := w.dynamic.Resource(workersResource).Namespace(namespace).Create(ctx, worker, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a Worker: %w", err)
	}
	return nil
}

func dependent(apiVersion, kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name, "labels": benchLabels}}}
}

// setAvailable has a target's Deployment available, or not.
func (w *workers) setAvailable(ctx context.Context, i int, healthy bool) error {
	available := appsv1.DeploymentCondition{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"}
	if !healthy {
		available.Status, available.Reason = corev1.ConditionFalse, "MinimumReplicasUnavailable"
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"observedGeneration": 1, "conditions": append([]appsv1.DeploymentCondition{available}, rolledOut...)}})
	if err != nil {
		return fmt.Errorf("encode a Deployment's status: %w", err)
	}
	if _, err := w.bench.Clients.AppsV1().Deployments(workerNamespace(i)).Patch(ctx, workerName(i), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write the status of a Deployment: %w", err)
	}
	return nil
}

// rights gives the manager the rights that registrations need. No controller aggregates ClusterRoles here.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bench-health}
rules:
- {apiGroups: [extensions.gardener.cloud], resources: [workers], verbs: [get, list, watch, patch]}
- {apiGroups: [extensions.gardener.cloud], resources: [workers/status], verbs: [patch]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get]}
- {apiGroups: [resources.gardener.cloud], resources: [managedresources], verbs: [get, list, watch]}
- {apiGroups: [apps], resources: [deployments], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [secrets], resourceNames: [gardener], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bench-health}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bench-health}
subjects: [{kind: ServiceAccount, name: ` + harness.ServiceAccount + `, namespace: ` + harness.Namespace + `}]
`

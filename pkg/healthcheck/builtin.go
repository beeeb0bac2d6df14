package healthcheck

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/shoots"
)

// ProgressingThreshold is how long the checks that come with this package let an object progress.
const ProgressingThreshold = 5 * time.Minute

var (
	deployment      = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	statefulSet     = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}
	daemonSet       = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}
	managedResource = schema.GroupVersionKind{Group: "resources.gardener.cloud", Version: "v1alpha1", Kind: "ManagedResource"}
)

// CheckSeedDeployment checks the Deployment of that name beside the target: its controller has seen its spec, Available is
// True, and where they are there Progressing isn't False and ReplicaFailure isn't True.
func CheckSeedDeployment(name string) func() HealthCheck { return CheckSeedObject(deployment, name) }

// CheckSeedStatefulSet checks the StatefulSet of that name beside the target: its controller has seen its spec, and all
// replicas are ready.
func CheckSeedStatefulSet(name string) func() HealthCheck { return CheckSeedObject(statefulSet, name) }

// CheckSeedDaemonSet checks the DaemonSet of that name beside the target: its controller has seen its spec, its pods are where
// they should be and nowhere else, and available but for maxUnavailable during a rollout.
func CheckSeedDaemonSet(name string) func() HealthCheck { return CheckSeedObject(daemonSet, name) }

// CheckManagedResource checks the ManagedResource of that name beside the target: its controller has seen its spec,
// ResourcesApplied and ResourcesHealthy are True, and ResourcesProgressing isn't for as long as ProgressingThreshold.
func CheckManagedResource(name string) func() HealthCheck {
	return CheckSeedObject(managedResource, name)
}

// CheckShootDeployment is CheckSeedDeployment for one in a namespace of the shoot.
func CheckShootDeployment(namespace, name string) func() HealthCheck {
	return CheckShootObject(deployment, namespace, name)
}

// CheckShootStatefulSet is CheckSeedStatefulSet for one in a namespace of the shoot.
func CheckShootStatefulSet(namespace, name string) func() HealthCheck {
	return CheckShootObject(statefulSet, namespace, name)
}

// CheckShootDaemonSet is CheckSeedDaemonSet for one in a namespace of the shoot.
func CheckShootDaemonSet(namespace, name string) func() HealthCheck {
	return CheckShootObject(daemonSet, namespace, name)
}

// CheckSeedObject checks the object of that kind and name beside the target, or in no namespace where the kind is in none.
// Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, Pod, PersistentVolumeClaim, Service, CustomResourceDefinition and
// ManagedResource have criteria of their own; others go by their generation and conditions, as kstatus does. An object that
// doesn't exist is unhealthy.
func CheckSeedObject(kind schema.GroupVersionKind, name string) func() HealthCheck {
	return func() HealthCheck { return &seedObject{object: object{kind: kind, name: name}} }
}

// CheckShootObject is CheckSeedObject for an object in a namespace of the shoot; "" for one that has none.
func CheckShootObject(kind schema.GroupVersionKind, namespace, name string) func() HealthCheck {
	return func() HealthCheck { return &shootObject{object: object{kind: kind, name: name}, namespace: namespace} }
}

// object is what a check looks at.
type object struct {
	kind schema.GroupVersionKind
	name string
}

// empty gives an object of the kind: typed where the scheme knows it, so that informers are shared with the rest of the
// program.
func empty(kind schema.GroupVersionKind, scheme *runtime.Scheme) client.Object {
	if known, err := scheme.New(kind); err == nil {
		if typed, ok := known.(client.Object); ok {
			return typed
		}
	}
	return untyped(kind)
}

func untyped(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

// asJSON gives an object as JSON has it. It may share memory with the object, and isn't to be changed.
func asJSON(o client.Object, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("convert %s %s: %w", kind.Kind, o.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kind)
	return u, nil
}

func (o object) check(ctx context.Context, reader client.Client, namespace string) (*SingleCheckResult, error) {
	into := empty(o.kind, reader.Scheme())
	key := client.ObjectKey{Namespace: namespace, Name: o.name}
	err := reader.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return resultOf(health.Missing(health.MissingFails, o.kind.Kind, o.named(reader, key), 0)), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", o.kind.Kind, o.name, err)
	}
	u, err := asJSON(into, o.kind)
	if err != nil {
		return nil, err
	}
	if health.HasBuiltin(o.kind.GroupKind()) {
		return resultOf(health.Builtin(u, ProgressingThreshold, clock.RealClock{}.Now())), nil
	}
	return resultOf(health.ByStatus(u, ProgressingThreshold)), nil
}

// named is what people know the object by.
func (o object) named(reader client.Client, key client.ObjectKey) string {
	if inNone, err := clusterScoped(reader.RESTMapper(), o.kind); err == nil && inNone {
		return o.name
	}
	return key.String()
}

func resultOf(r health.Result) *SingleCheckResult {
	single := &SingleCheckResult{Status: ConditionStatus(r.Status), Detail: r.Detail, Codes: r.Codes, note: r.Note}
	if r.Timeout > 0 {
		single.ProgressingThreshold = ptr.To(r.Timeout)
	}
	return single
}

// seedObject checks an object beside the target.
type seedObject struct {
	object
	seed client.Client
}

// InjectSeedClient takes the client that Check reads with.
func (s *seedObject) InjectSeedClient(c client.Client) { s.seed = c }

// Refs is the object.
func (s *seedObject) Refs(target types.NamespacedName) []client.Object {
	u := untyped(s.kind)
	u.SetNamespace(target.Namespace)
	u.SetName(s.name)
	return []client.Object{u}
}

// Check reads the object from the cache.
func (s *seedObject) Check(ctx context.Context, target types.NamespacedName) (*SingleCheckResult, error) {
	return s.check(ctx, s.seed, target.Namespace)
}

// shootObject checks an object of the shoot.
type shootObject struct {
	object
	namespace string
	shoot     client.Client
}

// InjectShootClient takes the client that Check reads with.
func (s *shootObject) InjectShootClient(c client.Client) { s.shoot = c }

// Check reads the object from the shoot.
func (s *shootObject) Check(ctx context.Context, _ types.NamespacedName) (*SingleCheckResult, error) {
	return s.check(ctx, s.shoot, s.namespace)
}

var (
	worker            = schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Worker"}
	machineDeployment = schema.GroupVersionKind{Group: "machine.sapcloud.io", Version: "v1alpha1", Kind: "MachineDeployment"}
)

// SufficientNodesAvailable checks for a Worker of Gardener's that every node of the shoot is Ready, and that as many can be scheduled on
// as the MachineDeployments beside the Worker want. One that was Ready and isn't is unhealthy, however many others are. Too few, of which
// some haven't registered, start, are cordoned or are being removed, are Progressing for ProgressingThreshold, and so are pools without a
// MachineDeployment. Nodes that the machine-controller-manager doesn't manage aren't looked at, and none are where none is wanted: a shoot
// that is hibernated has no API server.
func SufficientNodesAvailable() func() HealthCheck {
	return func() HealthCheck { return &sufficientNodes{} }
}

type sufficientNodes struct{ seed, shoot client.Client }

// InjectSeedClient takes the client that the Worker and its MachineDeployments are read with.
func (s *sufficientNodes) InjectSeedClient(c client.Client) { s.seed = c }

// InjectShootClient takes the client that nodes are listed with.
func (s *sufficientNodes) InjectShootClient(c client.Client) { s.shoot = c }

// Check compares the Worker's pools and their MachineDeployments with the shoot's nodes.
func (s *sufficientNodes) Check(ctx context.Context, target types.NamespacedName) (*SingleCheckResult, error) {
	w := untyped(worker)
	if err := s.seed.Get(ctx, target, w); err != nil {
		return nil, fmt.Errorf("read the Worker: %w", err)
	}
	pools, _, err := unstructured.NestedSlice(w.Object, "spec", "pools")
	if err != nil {
		return nil, fmt.Errorf("read the Worker's pools: %w", err)
	}
	deployments := &unstructured.UnstructuredList{}
	deployments.SetGroupVersionKind(machineDeployment.GroupVersion().WithKind(machineDeployment.Kind + "List"))
	if err := s.seed.List(ctx, deployments, client.InNamespace(target.Namespace)); err != nil {
		return nil, fmt.Errorf("list the MachineDeployments: %w", err)
	}
	staying := slices.DeleteFunc(deployments.Items, func(d unstructured.Unstructured) bool { return d.GetDeletionTimestamp() != nil })
	if len(pools) > 0 && len(staying) == 0 {
		return resultOf(health.NothingFound(health.MissingProgresses, "there is no MachineDeployment beside the Worker that stays", ProgressingThreshold)), nil
	}
	desired, err := desiredNodes(staying)
	if err != nil {
		return nil, err
	}
	if desired == 0 {
		return resultOf(health.Result{Status: health.True}), nil
	}
	nodes, err := shoots.Nodes(ctx, s.shoot)
	if err != nil {
		return nil, err
	}
	r := health.Nodes(nodes, int(desired))
	if r.Status == health.Progressing {
		r.Timeout = ProgressingThreshold
	}
	return resultOf(r), nil
}

// desiredNodes is what MachineDeployments want together. One without replicas wants none: MachineDeployments that are stored
// leave a zero out.
func desiredNodes(deployments []unstructured.Unstructured) (desired int64, err error) {
	for i := range deployments {
		d := &deployments[i]
		replicas, _, err := unstructured.NestedInt64(d.Object, "spec", "replicas")
		if err != nil {
			return 0, fmt.Errorf("read the replicas of MachineDeployment %s: %w", d.GetName(), err)
		}
		desired += replicas
	}
	return desired, nil
}

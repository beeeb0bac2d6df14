package survey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

// Informers is a Cluster as the manager's cache has it, or a file in its place.
type Informers struct {
	Cache  client.Reader
	Weeder *weeder.State

	changes atomic.Int64 // that the watch of ProbeConfigs reported
	counted atomic.Pointer[counted]
}

// byAddress is the index of Services by what Addresses gives.
const byAddress = "address"

var _ Cluster = (*Informers)(nil)

// Follow begins to watch all that is looked at. The cache, which is the one that is read, does so when it starts.
func (i *Informers) Follow(ctx context.Context, c cache.Cache) error {
	for _, object := range []client.Object{&corev1.Namespace{}, &corev1.Service{}, &autoscalingv2.HorizontalPodAutoscaler{}, &v1alpha1.ProbeConfig{}} {
		if _, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	if err := c.IndexField(ctx, &corev1.Service{}, byAddress, func(object client.Object) []string { return Addresses(object.(*corev1.Service)) }); err != nil {
		return fmt.Errorf("index Services: %w", err)
	}
	configs, err := c.GetInformer(ctx, &v1alpha1.ProbeConfig{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch ProbeConfigs: %w", err)
	}
	changed := func() { i.changes.Add(1) }
	_, err = configs.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(_, _ any) { changed() }, DeleteFunc: func(any) { changed() },
	})
	return err
}

// Namespaces that a selector selects.
func (i *Informers) Namespaces(ctx context.Context, selector labels.Selector) ([]string, error) {
	var all corev1.NamespaceList
	if err := i.Cache.List(ctx, &all, client.UnsafeDisableDeepCopy, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list namespaces in the cache: %w", err)
	}
	var names []string
	for _, ns := range all.Items {
		if Probed(&ns) {
			names = append(names, ns.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Holds says whether a selector selects one of those.
func (i *Informers) Holds(ctx context.Context, selector labels.Selector, namespace string) (bool, error) {
	var ns corev1.Namespace
	if err := i.Cache.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return Probed(&ns) && selector.Matches(labels.Set(ns.Labels)), nil
}

// Probed says whether anything is probed in a namespace: not when it is hibernated, nor while it ends.
func Probed(ns *corev1.Namespace) bool {
	hibernated, annotated := ns.Annotations[v1alpha1.AnnotationHibernated]
	return ns.DeletionTimestamp == nil && (!annotated || hibernated == "false")
}

// ServiceAt is the Service of a namespace that has such an address.
func (i *Informers) ServiceAt(ctx context.Context, namespace, host string) (string, error) {
	var all corev1.ServiceList
	if err := i.Cache.List(ctx, &all, client.UnsafeDisableDeepCopy, client.InNamespace(namespace), client.MatchingFields{byAddress: host}); err != nil {
		return "", fmt.Errorf("list Services in the cache: %w", err)
	}
	for n := range all.Items {
		if slices.Contains(Addresses(&all.Items[n]), host) { // a file has no index
			return all.Items[n].Name, nil
		}
	}
	return "", nil
}

// Addresses of a Service: those of the cluster, and of its load balancers.
func Addresses(svc *corev1.Service) []string {
	var addresses []string
	for _, ip := range svc.Spec.ClusterIPs {
		if ip != corev1.ClusterIPNone {
			addresses = append(addresses, ip)
		}
	}
	for _, ingress := range svc.Status.LoadBalancer.Ingress {
		if address := cmp.Or(ingress.IP, ingress.Hostname); address != "" {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// Backs says whether a pod with such labels stands behind a Service.
func (i *Informers) Backs(service types.NamespacedName, pods labels.Selector) bool {
	return i.Weeder.Backs(service, pods)
}

// RunsAutohealer says whether a pod with such labels is one of Autohealer's own.
func (i *Informers) RunsAutohealer(namespace string, pods labels.Selector) bool {
	return i.Weeder.RunsAutohealer(namespace, pods)
}

// Autoscalers of a namespace.
func (i *Informers) Autoscalers(ctx context.Context, namespace string) ([]Autoscaler, error) {
	var all autoscalingv2.HorizontalPodAutoscalerList
	if err := i.Cache.List(ctx, &all, client.UnsafeDisableDeepCopy, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list HorizontalPodAutoscalers in the cache: %w", err)
	}
	var scalers []Autoscaler
	for n := range all.Items {
		scalers = append(scalers, ReadAutoscaler(&all.Items[n]))
	}
	return scalers, nil
}

// ReadAutoscaler reads what a HorizontalPodAutoscaler scales, and for whom: KEDA makes one for each ScaledObject.
func ReadAutoscaler(hpa *autoscalingv2.HorizontalPodAutoscaler) Autoscaler {
	of := hpa.Spec.ScaleTargetRef
	a := Autoscaler{Scales: probe.Ref{APIVersion: of.APIVersion, Kind: of.Kind, Name: of.Name}, Name: "HorizontalPodAutoscaler/" + hpa.Name}
	if owner := metav1.GetControllerOfNoCopy(hpa); owner != nil {
		a.Name = owner.Kind + "/" + owner.Name
	}
	return a
}

// Configs of a namespace.
func (i *Informers) Configs(ctx context.Context, namespace string) ([]v1alpha1.ProbeConfig, error) {
	var all v1alpha1.ProbeConfigList
	if err := i.Cache.List(ctx, &all, client.UnsafeDisableDeepCopy, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list ProbeConfigs in the cache: %w", err)
	}
	return all.Items, nil
}

// KubeconfigKey of a Secret.
const KubeconfigKey = "kubeconfig"

// Live reads objects from the API server.
type Live struct {
	// Reader of Secrets. It must not be a cache: that would list all there are.
	Reader client.Reader
	// Scales reads /scale.
	Scales client.SubResourceReader
	// Kinds tells which can be scaled.
	Kinds discovery.ServerResourcesInterface
	// Policy judges kubeconfigs as the Prober does.
	Policy kubeconfig.Policy
}

var _ Objects = (*Live)(nil)

// Kubeconfig reads a Secret, and keeps of it its server or why it is never used.
func (l *Live) Kubeconfig(ctx context.Context, namespace, secret string) (probe.KubeconfigFacts, error) {
	var read corev1.Secret
	if err := l.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: secret}, &read); err != nil {
		if apierrors.IsNotFound(err) {
			return probe.KubeconfigFacts{Missing: true}, nil
		}
		return probe.KubeconfigFacts{}, fmt.Errorf("read Secret %s/%s: %w", namespace, secret, err)
	}
	return FactsOf(l.Policy.Inspect(&read, KubeconfigKey)), nil
}

// FactsOf says in our own words what a Secret holds.
func FactsOf(found kubeconfig.Inspection) probe.KubeconfigFacts {
	return probe.KubeconfigFacts{Missing: found.Missing, Server: found.Server, Unsafe: found.Refusal.Error(), Expires: found.Expiry.At, ExpiresFor: found.Expiry.Of}
}

// Dependent reads an object's scale.
func (l *Live) Dependent(ctx context.Context, namespace string, ref probe.Ref) (probe.DependentFacts, error) {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(ref.APIVersion)
	object.SetKind(ref.Kind)
	object.SetNamespace(namespace)
	object.SetName(ref.Name)
	scale := &unstructured.Unstructured{} // as the object is
	scale.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
	err := l.Scales.Get(ctx, object, scale)
	switch {
	case err == nil:
		return readScale(scale)
	case meta.IsNoMatchError(err):
		return probe.DependentFacts{Unscalable: true}, nil
	}
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // the object or the subresource: the answers are alike
		switch scalable, unknown := l.scalable(ref); {
		case unknown != nil:
			return probe.DependentFacts{}, unknown
		case !scalable:
			return probe.DependentFacts{Unscalable: true}, nil
		case apierrors.IsNotFound(err):
			return probe.DependentFacts{Missing: true}, nil
		}
	}
	return probe.DependentFacts{}, fmt.Errorf("read the scale of %s in namespace %s: %w", ref, namespace, err)
}

// Annotations reads an object's metadata.
func (l *Live) Annotations(ctx context.Context, namespace string, ref probe.Ref) (map[string]string, error) {
	about := &metav1.PartialObjectMetadata{}
	about.SetGroupVersionKind(ref.GroupVersionKind())
	err := l.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, about)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read what people ask for on %s in namespace %s: %w", ref, namespace, err)
	}
	return about.Annotations, nil
}

// scalable says whether a kind has a scale subresource.
func (l *Live) scalable(ref probe.Ref) (bool, error) {
	served, err := l.Kinds.ServerResourcesForGroupVersion(ref.APIVersion)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask whether %s of %s can be scaled: %w", ref.Kind, ref.APIVersion, err)
	}
	scaled := map[string]bool{}
	for _, r := range served.APIResources {
		resource, subresource, _ := strings.Cut(r.Name, "/")
		scaled[resource] = scaled[resource] || subresource == "scale"
	}
	return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == ref.Kind && scaled[r.Name] }), nil
}

func readScale(object *unstructured.Unstructured) (probe.DependentFacts, error) {
	var scale autoscalingv1.Scale
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &scale); err != nil {
		return probe.DependentFacts{}, fmt.Errorf("read a scale: %w", err)
	}
	return probe.DependentFacts{Replicas: scale.Spec.Replicas, Pods: scale.Status.Selector}, nil
}

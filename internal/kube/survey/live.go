package survey

import (
	"context"
	"fmt"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

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
func (l *Live) Dependent(ctx context.Context, namespace string, ref probe.Ref) (Dependent, error) {
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
		return Dependent{Unscalable: true}, nil
	}
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // the object or the subresource: the answers are alike
		switch scalable, unknown := l.scalable(ref); {
		case unknown != nil:
			return Dependent{}, unknown
		case !scalable:
			return Dependent{Unscalable: true}, nil
		case apierrors.IsNotFound(err):
			return Dependent{Missing: true}, nil
		}
	}
	return Dependent{}, fmt.Errorf("read the scale of %s in namespace %s: %w", ref, namespace, err)
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

func readScale(object *unstructured.Unstructured) (Dependent, error) {
	var scale autoscalingv1.Scale
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &scale); err != nil {
		return Dependent{}, fmt.Errorf("read a scale: %w", err)
	}
	return Dependent{Replicas: scale.Spec.Replicas, Pods: scale.Status.Selector}, nil
}

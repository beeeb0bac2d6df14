package snapshot

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// FindOwn gives the namespace that Autohealer runs in: of the installation that acts, by the mark of it; without a mark its manager's,
// or without a manager, as in the midst of an uninstall, the one that is labelled as its own. It is "" when there is none, when there
// are several, since nobody can tell which is meant, and for who may not look.
func FindOwn(ctx context.Context, c client.Reader) (string, error) {
	if marked, err := findMarked(ctx, c); err != nil || marked != "" {
		return marked, err
	}
	for _, look := range []struct {
		kind   schema.GroupVersionKind
		labels client.MatchingLabels
		where  func(*metav1.PartialObjectMetadata) string
	}{
		{appsv1.SchemeGroupVersion.WithKind("DeploymentList"), client.MatchingLabels{"app.kubernetes.io/name": "autohealer", "app.kubernetes.io/component": "manager"}, (*metav1.PartialObjectMetadata).GetNamespace},
		{corev1.SchemeGroupVersion.WithKind("NamespaceList"), client.MatchingLabels{"app.kubernetes.io/name": "autohealer"}, (*metav1.PartialObjectMetadata).GetName},
	} {
		all := &metav1.PartialObjectMetadataList{}
		all.SetGroupVersionKind(look.kind)
		if err := c.List(ctx, all, look.labels); err != nil && !apierrors.IsForbidden(err) {
			return "", fmt.Errorf("find Autohealer's namespace: %w", err)
		}
		found := sets.New[string]()
		for i := range all.Items {
			found.Insert(look.where(&all.Items[i]))
		}
		if len(found) > 0 {
			namespace, _ := found.PopAny()
			if len(found) > 0 {
				namespace = ""
			}
			return namespace, nil
		}
	}
	return "", nil
}

// findMarked gives the namespace that the cluster is marked with, if that is still there and has a manager: anyone who may annotate the
// webhook's configuration can name another.
func findMarked(ctx context.Context, c client.Reader) (string, error) {
	configuration, namespace := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadata{}
	configuration.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"))
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := c.Get(ctx, client.ObjectKey{Name: "autohealer"}, configuration)
	name, uid, _ := strings.Cut(configuration.Annotations[v1alpha1.AnnotationInstallation], "/")
	marked := len(validation.IsDNS1123Label(name)) == 0 // anything else can't be asked for
	if err == nil && marked {
		err = c.Get(ctx, client.ObjectKey{Name: name}, namespace)
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("find Autohealer's namespace: %w", err)
	case !marked || string(namespace.UID) != uid:
		return "", nil
	}
	for _, kind := range []schema.GroupVersionKind{appsv1.SchemeGroupVersion.WithKind("Deployment"), corev1.SchemeGroupVersion.WithKind("ServiceAccount")} {
		manager := &metav1.PartialObjectMetadata{}
		manager.SetGroupVersionKind(kind)
		err := c.Get(ctx, client.ObjectKey{Namespace: name, Name: "autohealer-manager"}, manager)
		switch {
		case err == nil, apierrors.IsForbidden(err):
			return name, nil
		case !apierrors.IsNotFound(err):
			return "", fmt.Errorf("find Autohealer's namespace: %w", err)
		}
	}
	return "", nil
}

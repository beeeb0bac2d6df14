package actuate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// readConfigMap reads one that all replicas write; where there is none it gives the one to create, without a resource version.
func readConfigMap(ctx context.Context, reader client.Reader, namespace, name string) (*corev1.ConfigMap, error) {
	stored := &corev1.ConfigMap{}
	err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, stored)
	if apierrors.IsNotFound(err) {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": "autohealer"},
		}}, nil
	}
	return stored, err
}

func writeConfigMap(ctx context.Context, writer client.Writer, m *corev1.ConfigMap) error {
	if m.ResourceVersion == "" {
		return writer.Create(ctx, m)
	}
	return writer.Update(ctx, m)
}

// unlessLost does again what reads and writes a ConfigMap, while others write it at the same time.
func unlessLost(do func() error) error {
	lost := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	return retry.OnError(retry.DefaultBackoff, lost, do)
}

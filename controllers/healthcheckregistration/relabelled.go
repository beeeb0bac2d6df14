package healthcheckregistration

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// followNamespaces has targets looked at that a registration selects, or selected, by the labels of their namespace.
func (o *Observer) followNamespaces(ctx context.Context) error {
	informer, err := o.Cache.GetInformer(ctx, &corev1.Namespace{})
	if err != nil {
		return fmt.Errorf("watch Namespaces: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		o.relabelled(ctx, before.(*corev1.Namespace), after.(*corev1.Namespace))
	}})
	return err
}

// relabelled has all targets in a namespace looked at whose labels changed. A namespace that is new has none, or none that were
// looked at without its labels.
func (o *Observer) relabelled(ctx context.Context, before, after *corev1.Namespace) {
	if maps.Equal(before.Labels, after.Labels) || !o.synced.Load() {
		return
	}
	kinds := map[schema.GroupVersionKind][]storedRegistration{}
	for _, key := range o.policies.Keys() {
		if j, ok := o.policies.Get(key); ok && j.Object.Spec.Target.NamespaceSelector != nil {
			kinds[j.Read.kind] = append(kinds[j.Read.kind], j)
		}
	}
	for kind, by := range kinds {
		if o.lookAtTargets(ctx, kind, after.Name) {
			continue
		}
		for _, j := range by { // all of the kind are looked at once it can be read
			o.informed.forget(j.Object.UID)
			o.request(client.ObjectKeyFromObject(j.Object), 0)
		}
	}
}

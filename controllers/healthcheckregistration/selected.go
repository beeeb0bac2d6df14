package healthcheckregistration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// selected are the targets of a registration, as they were seen last; none where they can't be read.
func (o *Observer) selected(ctx context.Context, reg *registration.Registration) []checking.Target {
	objects, err := o.Watches.List(ctx, reg.Kind, "", everything)
	if err != nil {
		return nil
	}
	known := map[string]labels.Set{}
	among := reg.Among(objects, func(namespace string) labels.Set {
		if _, ok := known[namespace]; !ok {
			known[namespace], _ = o.labelsOf(ctx, namespace) // unknown, its objects don't count, and the breaker opens sooner
		}
		return known[namespace]
	})
	targets := make([]checking.Target, len(among))
	for i, object := range among {
		targets[i] = checking.Target{Kind: reg.Kind.GroupKind(), Key: client.ObjectKeyFromObject(object)}
	}
	return targets
}

// labelsOf gives the labels of a namespace; none of "", where objects are that have none.
func (o *Observer) labelsOf(ctx context.Context, name string) (labels.Set, error) {
	if name == "" {
		return nil, nil
	}
	namespace := &corev1.Namespace{}
	if err := o.Cache.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return nil, fmt.Errorf("read the labels of namespace %s: %w", name, err)
	}
	return namespace.Labels, nil
}

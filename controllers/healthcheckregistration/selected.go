package healthcheckregistration

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
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

// countKept is for how long a count of targets is taken as it is: with thousands of them, counting takes as long as a look, and
// when many turn False at once each asks.
const countKept = time.Second

// counts has how many targets registrations have. It is safe for concurrent use; the zero value has none.
type counts struct {
	mu sync.Mutex
	of map[types.UID]counted // needs mu
}

type counted struct {
	generation int64
	targets    int
	at         time.Time
}

// countOf gives how many targets a registration has, or had a moment ago.
func (o *Observer) countOf(ctx context.Context, reg *registration.Registration) int {
	o.counts.mu.Lock()
	defer o.counts.mu.Unlock()
	now := o.Facts.Clock.Now()
	c, known := o.counts.of[reg.UID]
	if age := now.Sub(c.at); known && c.generation == reg.Generation && age >= 0 && age < countKept {
		return c.targets
	}
	if o.counts.of == nil {
		o.counts.of = map[types.UID]counted{}
	}
	c = counted{reg.Generation, len(o.selected(ctx, reg)), now}
	o.counts.of[reg.UID] = c
	return c.targets
}

func (c *counts) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, uid)
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

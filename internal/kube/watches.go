package kube

import (
	"context"
	"errors"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Watch is the watch of one kind of objects, with its handlers.
type Watch struct {
	object client.Object
	// Handlers of the informer's events; lost as for [Handlers].
	Handlers func(lost func(error)) toolscache.ResourceEventHandlerFuncs
}

// On watches objects like this one, which the cache has as a T: seen is called for new and changed ones, gone for deleted
// ones ([Handlers]).
func On[T any](like client.Object, seen, gone func(T)) Watch {
	return Watch{like, func(lost func(error)) toolscache.ResourceEventHandlerFuncs { return Handlers(seen, gone, lost) }}
}

// Watches are the informers' watches of one part of the manager.
type Watches struct {
	cache cache.Cache
	// lost takes the first object that the API server went back with.
	lost chan error
}

// NewWatches gives none yet, by the informers of a cache.
func NewWatches(objects cache.Cache) *Watches {
	return &Watches{cache: objects, lost: make(chan error, 1)}
}

// Run adds the watches, waits until all that is there was seen, and runs until ctx ends. It fails when the API server went back to
// an older state ([ErrHistoryLost]), or when run does.
func (w *Watches) Run(ctx context.Context, run func(context.Context) error, all ...Watch) error {
	synced := make([]toolscache.InformerSynced, 0, len(all))
	for _, one := range all {
		registration, err := w.Add(ctx, one)
		if err != nil {
			return err
		}
		synced = append(synced, registration.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // stopped before it began
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(running) }()
	select {
	case err := <-ended:
		return err
	case err := <-w.lost:
		stop()
		return errors.Join(err, <-ended)
	}
}

// Add adds one more, also while they run.
func (w *Watches) Add(ctx context.Context, one Watch) (toolscache.ResourceEventHandlerRegistration, error) {
	informer, err := w.cache.GetInformer(ctx, one.object)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", one.object, err)
	}
	registration, err := informer.AddEventHandler(one.Handlers(func(err error) {
		select {
		case w.lost <- err:
		default: // the first says enough
		}
	}))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", one.object, err)
	}
	return registration, nil
}

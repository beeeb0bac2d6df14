package testbed

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// writers is how many requests run at once, as many as the manager has workers for nodes.
const writers = 16

// Each does something for 0 to n-1, as many at once as the manager would.
func Each(ctx context.Context, n int, do func(context.Context, int) error) error {
	return EachOf(ctx, writers, n, do)
}

// EachOf does something for 0 to n-1, some at once.
func EachOf(ctx context.Context, atOnce, n int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// Paced begins one call after the other at an even pace, without waiting for those before to end.
func Paced(ctx context.Context, n, perSecond int, do func(context.Context, int) error) error {
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	group, ctx := errgroup.WithContext(ctx)
	for i := range n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return group.Wait()
		}
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// Timed is Paced, and gives when each call ended, and how long it took.
func Timed(ctx context.Context, n, perSecond int, do func(context.Context, int) error) (ended []time.Time, took []time.Duration, err error) {
	ended, took = make([]time.Time, n), make([]time.Duration, n)
	err = Paced(ctx, n, perSecond, func(ctx context.Context, i int) error { // each call has places of its own
		began := time.Now()
		err := do(ctx, i)
		ended[i] = time.Now()
		took[i] = ended[i].Sub(began)
		return err
	})
	return ended, took, err
}

// Pause waits.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

package weederconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/bench/testbed"
)

// watchReady notes when a bare watch shows each Service to have turned Ready, and calls then, unless that is nil, beside.
func (b *Bench) watchReady(ctx context.Context, then func(service string)) (readyAt func(service string) time.Time, stop func(), err error) {
	slices := b.Clients.DiscoveryV1().EndpointSlices(Namespace)
	list, err := slices.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list slices: %w", err)
	}
	events, err := slices.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, nil, fmt.Errorf("watch slices: %w", err)
	}
	var mu sync.Mutex
	seen := map[string]time.Time{}
	var running sync.WaitGroup
	running.Go(func() {
		for event := range events.ResultChan() {
			now := time.Now()
			slice, ok := event.Object.(*discoveryv1.EndpointSlice)
			if !ok || !*slice.Endpoints[0].Conditions.Ready {
				continue
			}
			mu.Lock()
			seen[slice.Name] = now
			mu.Unlock()
			if then != nil {
				running.Go(func() { then(slice.Name) })
			}
		}
	})
	readyAt = func(service string) time.Time {
		mu.Lock()
		defer mu.Unlock()
		return seen[service]
	}
	return readyAt, func() { events.Stop(); running.Wait() }, nil
}

// awaitDeletions waits until the manager has deleted so many pods, and gives what the audit log has of them.
func (b *Bench) awaitDeletions(ctx context.Context, since int64, want int) (*deletionLog, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	writes, err := b.FollowWrites(since)
	if err != nil {
		return nil, err
	}
	log := newDeletionLog(writes)
	return log, errors.Join(log.await(ctx, want), writes.Close())
}

// deletionLog is what the audit log has of deletions, as it grows.
type deletionLog struct {
	writes    *testbed.WriteReader
	deletions map[string]testbed.Write // of pods, by name
	// statusWrites are those of WeederConfigs before deletions, in the order of their ends.
	statusWrites []testbed.Write
}

func newDeletionLog(writes *testbed.WriteReader) *deletionLog {
	return &deletionLog{writes: writes, deletions: map[string]testbed.Write{}}
}

// await reads until there are so many deletions.
func (l *deletionLog) await(ctx context.Context, want int) error {
	for {
		if err := l.read(); err != nil || len(l.deletions) >= want {
			return err
		}
		if err := testbed.Pause(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("only %d of %d pods were deleted: %w", len(l.deletions), want, err)
		}
	}
}

// read takes in what was written since it was last called.
func (l *deletionLog) read() error {
	writes, err := l.writes.Read()
	for _, w := range writes {
		switch {
		case w.Verb == "delete" && w.Resource == "pods":
			l.deletions[w.Name] = w
		case w.Resource == "weederconfigs" && w.Subresource == "status":
			var ok bool
			if w.Body, ok = repeatable(w.Body); ok {
				l.statusWrites = append(l.statusWrites, w)
			}
		}
	}
	return err
}

// statusesOf are the writes of a config's status, in order.
func (l *deletionLog) statusesOf(config string) (of []testbed.Write) {
	for _, w := range l.statusWrites {
		if w.Name == config {
			of = append(of, w)
		}
	}
	return of
}

// statusBefore is the latest write of a config's status that had ended by then.
func (l *deletionLog) statusBefore(config string, then time.Time) (latest testbed.Write) {
	for _, w := range l.statusesOf(config) {
		if !w.Answered.After(then) {
			latest = w
		}
	}
	return latest
}

// repeatable is a write of a status before deletions, without saying which state of the config it replaces; ok is false for one that
// has the whole status, and doesn't name the config's UID.
func repeatable(body []byte) (_ []byte, ok bool) {
	var patch struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
		Status json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(body, &patch); err != nil || patch.Metadata.UID == "" {
		return nil, false
	}
	body, err := json.Marshal(patch)
	return body, err == nil
}

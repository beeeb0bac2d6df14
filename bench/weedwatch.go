package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// watchReady notes when a bare watch tells of each Service that it turned Ready.
func (b *bench) watchReady(ctx context.Context) (told func(service string) time.Time, stop func(), err error) {
	slices := b.clients.DiscoveryV1().EndpointSlices(weedNamespace)
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
			slice, ok := event.Object.(*discoveryv1.EndpointSlice)
			if !ok || !*slice.Endpoints[0].Conditions.Ready {
				continue
			}
			mu.Lock()
			seen[slice.Name] = time.Now()
			mu.Unlock()
		}
	})
	told = func(service string) time.Time {
		mu.Lock()
		defer mu.Unlock()
		return seen[service]
	}
	return told, func() { events.Stop(); running.Wait() }, nil
}

// awaitDeletions waits until the manager has deleted so many pods, and gives when the API server received each DELETE.
func (b *bench) awaitDeletions(ctx context.Context, since int64, want int) (map[string]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		deletions, err := b.deletions(since)
		if err != nil || len(deletions) >= want {
			return deletions, err
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return nil, fmt.Errorf("only %d of %d pods were deleted: %w", len(deletions), want, err)
		}
	}
}

// deletions reads the audit log from an earlier end of it on.
func (b *bench) deletions(since int64) (deletions map[string]time.Time, err error) {
	file, err := os.Open(b.AuditLog)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Seek(since, io.SeekStart); err != nil {
		return nil, fmt.Errorf("go on in the audit log: %w", err)
	}
	deletions = map[string]time.Time{}
	lines := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // half a line will be whole next time
			return deletions, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		w, ok := writeOf(&event)
		if ok && event.Verb == "delete" && w.resource == "pods" && event.User.Username == harness.Username {
			deletions[w.name] = event.RequestReceivedTimestamp.Time
		}
	}
}

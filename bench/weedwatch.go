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
)

// watchReady notes when a bare watch tells of each Service that it turned Ready, and calls then, unless that is nil, beside.
func (b *bench) watchReady(ctx context.Context, then func(service string)) (told func(service string) time.Time, stop func(), err error) {
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
	told = func(service string) time.Time {
		mu.Lock()
		defer mu.Unlock()
		return seen[service]
	}
	return told, func() { events.Stop(); running.Wait() }, nil
}

// awaitDeletions waits until the manager has deleted so many pods, and gives what the audit log tells of them.
func (b *bench) awaitDeletions(ctx context.Context, since int64, want int) (*deletionLog, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	log, err := b.deletionsSince(since)
	if err != nil {
		return nil, err
	}
	return log, errors.Join(log.await(ctx, want), log.file.Close())
}

// await reads until it tells of so many deletions.
func (l *deletionLog) await(ctx context.Context, want int) error {
	for {
		if err := l.read(); err != nil || len(l.deletions) >= want {
			return err
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("only %d of %d pods were deleted: %w", len(l.deletions), want, err)
		}
	}
}

// deletionLog reads the audit log as it grows, each line once: reading takes time from what is measured.
type deletionLog struct {
	file      *os.File
	lines     *bufio.Reader
	half      []byte             // a line of which the rest isn't written yet
	deletions map[string]handled // of pods, by name
	notes     []note             // writes of WeederConfigs' statuses before deletions, in the order of their ends
}

// handled is a request as the API server saw it.
type handled struct{ received, answered time.Time }

func (h handled) took() time.Duration { return h.answered.Sub(h.received) }

type note struct {
	config string
	body   []byte
	handled
}

// notesOf are the writes of a config's status, in order.
func (l *deletionLog) notesOf(config string) (of []note) {
	for _, n := range l.notes {
		if n.config == config {
			of = append(of, n)
		}
	}
	return of
}

// noteBefore is the latest write of a config's status that had ended by then.
func (l *deletionLog) noteBefore(config string, then time.Time) (latest note) {
	for _, n := range l.notesOf(config) {
		if !n.answered.After(then) {
			latest = n
		}
	}
	return latest
}

func (b *bench) deletionsSince(end int64) (*deletionLog, error) {
	file, err := os.Open(b.AuditLog)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	if _, err := file.Seek(end, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("go on in the audit log: %w", err), file.Close())
	}
	return &deletionLog{file: file, lines: bufio.NewReaderSize(file, 1<<20), deletions: map[string]handled{}}, nil
}

// read takes in what was written since it was last called.
func (l *deletionLog) read() error {
	for {
		line, err := l.lines.ReadBytes('\n')
		l.half = append(l.half, line...)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the audit log: %w", err)
		}
		if err := l.take(l.half); err != nil {
			return err
		}
		l.half = l.half[:0]
	}
}

func (l *deletionLog) take(line []byte) error {
	var event auditv1.Event
	if err := json.Unmarshal(line, &event); err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	w, ok := writeOf(&event)
	request := handled{received: event.RequestReceivedTimestamp.Time, answered: event.StageTimestamp.Time}
	switch {
	case !ok:
	case event.Verb == "delete" && w.resource == "pods":
		l.deletions[w.name] = request
	case w.resource == "weederconfigs" && w.subresource == "status":
		if body, ok := noteOf(w.body); ok {
			l.notes = append(l.notes, note{w.name, body, request})
		}
	}
	return nil
}

// noteOf is a write of a status before deletions, without saying which state of the config it replaces; ok is false for one that
// tells of everything, and doesn't name the config's UID.
func noteOf(body []byte) (_ []byte, ok bool) {
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

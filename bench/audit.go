package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// write is one write that the manager made and the API server answered with success, from the audit log.
type write struct {
	resource, subresource, name string
	body                        []byte
}

// auditEnd is how long the audit log is now; managerWrites reads on from there.
func (b *bench) auditEnd() (int64, error) {
	info, err := os.Stat(b.AuditLog)
	if err != nil {
		return 0, fmt.Errorf("look at the audit log: %w", err)
	}
	return info.Size(), nil
}

// quiet waits until the manager has told all there is to tell of what was before, and gives the audit log's end then.
// Status follows within a second or two; a manager that goes on writing for a minute fails the run.
func (b *bench) quiet(ctx context.Context) (int64, error) {
	const silence, patience = 3 * time.Second, 20
	for range patience {
		end, err := b.auditEnd()
		if err != nil {
			return 0, err
		}
		if err := pause(ctx, silence); err != nil {
			return 0, err
		}
		writes, err := b.managerWrites(end)
		if err != nil || len(writes) == 0 {
			return end, err
		}
	}
	return 0, errors.New("the manager never stops writing though nothing changes")
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// managerWrites are the manager's writes to nodes and to our own kinds since an earlier end of the audit log. The API
// server writes the log before it answers, so nothing that was answered is missing.
func (b *bench) managerWrites(since int64) (writes []write, err error) {
	file, err := os.Open(b.AuditLog)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Seek(since, io.SeekStart); err != nil {
		return nil, fmt.Errorf("go on in the audit log: %w", err)
	}
	lines := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return writes, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if w, ok := writeOf(&event); ok {
			writes = append(writes, w)
		}
	}
}

func writeOf(event *auditv1.Event) (write, bool) {
	if event.User.Username != harness.Username || event.Stage != auditv1.StageResponseComplete || event.ObjectRef == nil ||
		event.ResponseStatus == nil || event.ResponseStatus.Code >= 300 {
		return write{}, false
	}
	w := write{resource: event.ObjectRef.Resource, subresource: event.ObjectRef.Subresource, name: event.ObjectRef.Name}
	if event.RequestObject != nil {
		w.body = event.RequestObject.Raw
	}
	return w, true
}

// nodeWrites are those to nodes.
func nodeWrites(writes []write) (nodes []write) {
	for _, w := range writes {
		if w.resource == "nodes" {
			nodes = append(nodes, w)
		}
	}
	return nodes
}

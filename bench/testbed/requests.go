package testbed

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// Write is one that the manager made and the API server answered with success.
type Write struct {
	Verb, Resource, Subresource, Namespace, Name string
	Body                                         []byte
	// Received and Answered are by the API server's clock.
	Received, Answered time.Time
}

// Took is how long the API server took for it.
func (w Write) Took() time.Duration { return w.Answered.Sub(w.Received) }

// AuditEnd is how long the audit log is now; what reads writes goes on from there.
func (b *Bed) AuditEnd() (int64, error) {
	info, err := os.Stat(b.AuditLog)
	if err != nil {
		return 0, fmt.Errorf("look at the audit log: %w", err)
	}
	return info.Size(), nil
}

// Writes are the manager's since an earlier end of the audit log. The API server writes the log before it answers, so nothing that
// was answered is missing.
func (b *Bed) Writes(since int64) ([]Write, error) {
	r, err := b.FollowWrites(since)
	if err != nil {
		return nil, err
	}
	writes, err := r.Read()
	return writes, errors.Join(err, r.Close())
}

// FollowWrites reads the manager's writes as they come.
func (b *Bed) FollowWrites(since int64) (*WriteReader, error) {
	file, err := os.Open(b.AuditLog)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	if _, err := file.Seek(since, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("go on in the audit log: %w", err), file.Close())
	}
	return &WriteReader{file: file, lines: bufio.NewReaderSize(file, 1<<20)}, nil
}

// WriteReader reads each line of the audit log once: reading takes time from what is measured.
type WriteReader struct {
	file  *os.File
	lines *bufio.Reader
	half  []byte // a line of which the rest isn't written yet
}

// Read gives the writes since it was last called.
func (r *WriteReader) Read() (writes []Write, err error) {
	for {
		line, err := r.lines.ReadBytes('\n')
		r.half = append(r.half, line...)
		if errors.Is(err, io.EOF) {
			return writes, nil
		}
		var event auditv1.Event
		if err := errors.Join(err, json.Unmarshal(r.half, &event)); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		r.half = r.half[:0]
		if w, ok := writeOf(&event); ok {
			writes = append(writes, w)
		}
	}
}

// Close ends it.
func (r *WriteReader) Close() error { return r.file.Close() }

func writeOf(event *auditv1.Event) (Write, bool) {
	if event.User.Username != harness.Username || event.Stage != auditv1.StageResponseComplete || event.ObjectRef == nil ||
		event.ResponseStatus == nil || event.ResponseStatus.Code >= 300 {
		return Write{}, false
	}
	w := Write{
		Verb: event.Verb, Resource: event.ObjectRef.Resource, Subresource: event.ObjectRef.Subresource,
		Namespace: event.ObjectRef.Namespace, Name: event.ObjectRef.Name, Received: event.RequestReceivedTimestamp.Time, Answered: event.StageTimestamp.Time,
	}
	if event.RequestObject != nil {
		w.Body = event.RequestObject.Raw
	}
	return w, true
}

// AwaitNoWrites waits until the manager has written all there is to write about what was before, and gives the audit log's end then.
// Status follows within a second or two; a manager that goes on writing for a minute fails the run.
func (b *Bed) AwaitNoWrites(ctx context.Context) (int64, error) {
	const silence, patience = 3 * time.Second, 20
	for range patience {
		end, err := b.AuditEnd()
		if err != nil {
			return 0, err
		}
		if err := Pause(ctx, silence); err != nil {
			return 0, err
		}
		writes, err := b.Writes(end)
		if err != nil || len(writes) == 0 {
			return end, err
		}
	}
	return 0, errors.New("the manager never stops writing though nothing changes")
}

// Sample is a metric's value with one set of labels.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// APIServerMetric reads all samples of one of the API server's metrics.
func (b *Bed) APIServerMetric(ctx context.Context, name string) (samples []Sample, err error) {
	text, err := b.Clients.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		line, ok := strings.CutPrefix(line, name+"{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		sample := Sample{Labels: map[string]string{}}
		if sample.Value, err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("read the API server's metrics: %w", err)
		}
		for label := range strings.SplitSeq(labels, ",") {
			name, value, _ := strings.Cut(label, "=")
			sample.Labels[name] = strings.Trim(value, `"`)
		}
		samples = append(samples, sample)
	}
	return samples, nil
}

package weederconfig

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/resourcestack/autohealer/bench/testbed"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var beginning = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// audited is a line of the audit log, of a request between two milliseconds.
func audited(t *testing.T, verb, resource, subresource, name string, from, to int) []byte {
	t.Helper()
	event := auditv1.Event{
		Verb: verb, Stage: auditv1.StageResponseComplete,
		ObjectRef: &auditv1.ObjectReference{Resource: resource, Subresource: subresource, Name: name}, ResponseStatus: &metav1.Status{Code: 200},
		RequestReceivedTimestamp: metav1.NewMicroTime(millisecond(from)), StageTimestamp: metav1.NewMicroTime(millisecond(to)),
	}
	event.User.Username = harness.Username
	if subresource == "status" {
		event.RequestObject = &runtime.Unknown{Raw: []byte(`{"metadata":{"resourceVersion":"7","uid":"u"},"status":{"deleted":1}}`)}
	}
	line, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	return append(line, '\n')
}

func millisecond(n int) time.Time { return beginning.Add(time.Duration(n) * time.Millisecond) }

func TestADeletionIsFoundWithTheWriteThatItWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	all := bytes.Join([][]byte{
		audited(t, "patch", "weederconfigs", "status", "bench-0", 0, 10),
		audited(t, "patch", "weederconfigs", "status", "bench-1", 12, 18),
		audited(t, "delete", "pods", "", "pod-3", 20, 25),
		audited(t, "patch", "weederconfigs", "status", "bench-0", 15, 30),
	}, nil)
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	b := &testbed.Bed{Harness: &harness.Harness{Cluster: &cluster.Cluster{AuditLog: path}}}
	writes, err := b.FollowWrites(0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writes.Close() }()
	log := newDeletionLog(writes)
	for _, part := range [][]byte{all[:len(all)/2], all[len(all)/2:]} { // the first ends within a line
		if _, err := file.Write(part); err != nil {
			t.Fatal(err)
		}
		if err := log.read(); err != nil {
			t.Fatal(err)
		}
	}
	d, ok := log.deletions["pod-3"]
	if !ok || len(log.deletions) != 1 || len(log.statusWrites) != 3 {
		t.Fatalf("found %d deletions and %d writes of statuses", len(log.deletions), len(log.statusWrites))
	}
	if d.Took() != 5*time.Millisecond || !d.Received.Equal(millisecond(20)) {
		t.Errorf("the deletion was handled from %s on, for %s", d.Received, d.Took())
	}
	if w := log.statusBefore("bench-0", d.Received); w.Took() != 10*time.Millisecond {
		t.Errorf("it waited for %s of %s", w.Took(), w.Name)
	} else if string(w.Body) != `{"metadata":{"uid":"u"},"status":{"deleted":1}}` {
		t.Errorf("it would be sent again as %s", w.Body)
	}
	if _, ok := repeatable([]byte(`{"metadata":{"resourceVersion":"7"},"status":{"deleted":1}}`)); ok {
		t.Error("a write of the whole status counts as one before deletions")
	}
}

package main

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
	b := &bench{Harness: &harness.Harness{Cluster: &cluster.Cluster{AuditLog: path}}}
	log, err := b.deletionsSince(0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.file.Close() }()
	for _, part := range [][]byte{all[:len(all)/2], all[len(all)/2:]} { // the first ends within a line
		if _, err := file.Write(part); err != nil {
			t.Fatal(err)
		}
		if err := log.read(); err != nil {
			t.Fatal(err)
		}
	}
	d, ok := log.deletions["pod-3"]
	if !ok || len(log.deletions) != 1 || len(log.notes) != 3 {
		t.Fatalf("found %d deletions and %d notes", len(log.deletions), len(log.notes))
	}
	if d.took() != 5*time.Millisecond || !d.received.Equal(millisecond(20)) {
		t.Errorf("the deletion was handled from %s on, for %s", d.received, d.took())
	}
	if n := log.noteBefore("bench-0", d.received); n.took() != 10*time.Millisecond {
		t.Errorf("it waited for %s of %s", n.took(), n.config)
	} else if string(n.body) != `{"metadata":{"uid":"u"},"status":{"deleted":1}}` {
		t.Errorf("it would be sent again as %s", n.body)
	}
	if _, ok := noteOf([]byte(`{"metadata":{"resourceVersion":"7"},"status":{"deleted":1}}`)); ok {
		t.Error("a write that tells of everything counts as a note")
	}
}

package oracle

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json" // keeps integers integers
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"
)

// markerPrefix begins the names of the pods that Check asks to delete; none has such a name.
const markerPrefix = "autohealer-oracle-marker-"

// eventStart begins every line of the log.
var eventStart = []byte(`{"kind":"Event","apiVersion":"audit.k8s.io/v1"`)

// tail follows the audit log from where it ends now.
type tail struct {
	file    *os.File
	lines   *bufio.Reader
	partial []byte
	history *history
}

func newTail(path string, h *history) (*tail, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(fmt.Errorf("go to the end of the audit log: %w", err), file.Close())
	}
	return &tail{file: file, lines: bufio.NewReaderSize(file, 1<<20), history: h}, nil
}

func (t *tail) run(ctx context.Context) {
	defer func() { _ = t.file.Close() }() // only read from
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		for t.readLine() {
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// readLine takes in one line, if a whole one is there.
func (t *tail) readLine() bool {
	line, err := t.lines.ReadBytes('\n')
	t.partial = append(t.partial, line...)
	if err != nil { // the end, for now
		return false
	}
	t.take(t.partial)
	t.partial = t.partial[:0]
	return true
}

// take takes in a line. An API server that was killed may have left half a line, in front of the next one's first.
func (t *tail) take(line []byte) {
	if i := bytes.LastIndex(line, eventStart); i > 0 {
		line = line[i:]
	}
	var event auditv1.Event
	if json.Unmarshal(line, &event) != nil {
		return
	}
	if event.Stage != auditv1.StageResponseComplete || event.ObjectRef == nil || event.ResponseStatus == nil {
		return
	}
	if strings.HasPrefix(event.ObjectRef.Name, markerPrefix) {
		t.history.marked(event.ObjectRef.Name)
		return
	}
	if event.ResponseStatus.Code < 300 && !isDryRun(event.RequestURI) {
		t.takeWrite(&event)
	}
}

func isDryRun(uri string) bool {
	parsed, err := url.ParseRequestURI(uri)
	return err == nil && parsed.Query().Has("dryRun")
}

func (t *tail) takeWrite(event *auditv1.Event) {
	ref := event.ObjectRef
	user := event.User.Username
	if event.ImpersonatedUser != nil {
		user = event.ImpersonatedUser.Username
	}
	w := write{
		name:        nameOf(ref.Resource, &metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}),
		subresource: ref.Subresource, verb: event.Verb,
		ours: user == t.history.user, at: event.StageTimestamp.Time,
	}
	w.resource = schema.GroupVersionResource{Group: ref.APIGroup, Version: ref.APIVersion, Resource: ref.Resource}
	if w.ours && event.RequestObject != nil {
		w.request = event.RequestObject.Raw
	}
	var object unstructured.Unstructured
	if event.ResponseObject != nil && json.Unmarshal(event.ResponseObject.Raw, &object.Object) == nil {
		w.uid, w.version = object.GetUID(), versionOf(object.GetResourceVersion())
	}
	if w.removes() && w.uid == "" { // answered with a Status
		w.uid = ptr.Deref(preconditions(w.request, w.evicts()).UID, "")
	}
	t.history.wrote(w)
	// A client that asked for metadata only got, and so logged, no more.
	if f := t.history.follower(w.resource); f != nil && isWhole(&object) && event.Verb != "delete" {
		t.history.saw(f, &object, w.at)
	}
}

// preconditions are those of a deletion or an eviction.
func preconditions(request []byte, evicts bool) metav1.Preconditions {
	var options metav1.DeleteOptions
	var eviction policyv1.Eviction
	err := json.Unmarshal(request, &options)
	if evicts {
		err = json.Unmarshal(request, &eviction)
		options = ptr.Deref(eviction.DeleteOptions, options)
	}
	if err != nil {
		return metav1.Preconditions{}
	}
	return ptr.Deref(options.Preconditions, metav1.Preconditions{})
}

func isWhole(object *unstructured.Unstructured) bool {
	switch object.GetKind() {
	case "", "PartialObjectMetadata", "Status", "Scale": // an object's Scale has its UID and version
		return false
	}
	return object.GetUID() != "" && object.GetResourceVersion() != ""
}

package snapshot

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

// Annotations of the List. All may be missing, as they are in what kubectl prints.
const (
	annotationTakenAt    = "facts.autohealer.resourcestack.com/taken-at"
	annotationServerTime = "facts.autohealer.resourcestack.com/server-time"
	annotationServer     = "facts.autohealer.resourcestack.com/server"
	annotationNamespace  = "facts.autohealer.resourcestack.com/autohealer-namespace"
	annotationTrimmed    = "facts.autohealer.resourcestack.com/trimmed"
	// annotationAnswers has a line for each question that the objects are the answers to, as the arguments of kubectl get.
	annotationAnswers = "facts.autohealer.resourcestack.com/answers"
)

// rewriteHint says how to make a file.
const rewriteHint = "write the file with kubectl autohealer facts export > FILE"

// Write writes a facts file: a List of what was read, trimmed, the same for the same cluster.
func (s *Snapshot) Write(w io.Writer) error {
	text, err := yaml.Marshal(s.asList())
	if err == nil {
		_, err = w.Write(text)
	}
	if err != nil {
		return fmt.Errorf("write facts: %w", err)
	}
	return nil
}

func (s *Snapshot) asList() map[string]any {
	items, trim := []any{}, newTrimmer(storedFields(s))
	for _, kind := range slices.SortedFunc(maps.Keys(s.Objects.by), func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) }) {
		for _, one := range s.Objects.all(kind) {
			items = append(items, trim.trim(one.raw).Object)
		}
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "List", "items": items,
		"metadata": map[string]any{"annotations": map[string]any{
			annotationTakenAt: s.TakenAt.UTC().Format(time.RFC3339), annotationServerTime: s.ServerTime.UTC().Format(time.RFC3339),
			annotationServer: s.From, annotationNamespace: s.OwnNamespace, annotationTrimmed: "true", annotationAnswers: s.Objects.answers(),
		}},
	}
}

// answers are what was asked for, but for what a wider question has.
func (o *Objects) answers() string {
	return strings.Join(slices.DeleteFunc(sets.List(o.answered), func(query string) bool {
		kind, of, _ := strings.Cut(query, "/")
		return of != "" && !strings.HasSuffix(query, ofScale) && o.answered.Has(kind+" -A")
	}), "\n")
}

// Read reads a facts file. What kubectl get prints is one, too: then all objects are there of the kinds that are.
func Read(text []byte) (*Snapshot, error) {
	if n := documents(text); n > 1 {
		return nil, fmt.Errorf("read facts: the file has %d YAML documents, and what is read is one List; %s", n, rewriteHint)
	}
	list := &unstructured.Unstructured{}
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err == nil {
		err = utiljson.Unmarshal(asJSON, &list.Object)
	}
	if err != nil {
		_, message, _ := strings.Cut(err.Error(), ": ") // converting YAML to JSON
		return nil, fmt.Errorf("read facts: %s; %s", strings.TrimPrefix(message, "yaml: "), rewriteHint)
	}
	items, isList := list.Object["items"].([]any)
	switch {
	case list.GetKind() == "ClusterFacts":
		return nil, fmt.Errorf("read facts: the file is of a former format, which wasn't Kubernetes'; %s", rewriteHint)
	case list.GetAPIVersion() != "v1" || list.GetKind() != "List" || !isList:
		return nil, fmt.Errorf("read facts: want a List of v1, as kubectl get -o yaml prints it, got kind %q of %q; %s", list.GetKind(), list.GetAPIVersion(), rewriteHint)
	}
	s := &Snapshot{Objects: newObjects()}
	for i, item := range items {
		if err := s.Objects.readItem(item); err != nil {
			return nil, fmt.Errorf("read facts: item %d%w", i, err)
		}
	}
	if err := s.readAnnotations(list.GetAnnotations(), items); err != nil {
		return nil, fmt.Errorf("read facts: %w", err)
	}
	return s, nil
}

// between are the lines that end a YAML document, or begin one; nothing is the rest of a line without anything.
var (
	between = regexp.MustCompile(`(?m)^(?:---|\.\.\.)(?:\s|$)`)
	nothing = regexp.MustCompile(`(?m)^(?:\s*#.*|%.*|\s+)$`)
)

// documents counts the YAML documents that have anything.
func documents(text []byte) (n int) {
	for _, document := range between.Split(string(text), -1) {
		if strings.TrimSpace(nothing.ReplaceAllString(document, "")) != "" {
			n++
		}
	}
	return n
}

// readItem takes in an object. The error goes on from the item's number.
func (o *Objects) readItem(item any) error {
	fields, isMap := item.(map[string]any)
	object := &unstructured.Unstructured{Object: fields}
	kind := object.GroupVersionKind()
	switch r := kindOf(kind.GroupKind()); {
	case !isMap || kind.Kind == "" || kind.Version == "":
		return errors.New(": it is no object with apiVersion and kind")
	case object.GetName() == "":
		return fmt.Errorf(", %s: it has no metadata.name", kind.Kind)
	case r != nil && r.Version != "" && r.Version != kind.Version:
		return fmt.Errorf(", %s %s: it is of %s, and what is read is %s", kind.Kind, object.GetName(), kind.GroupVersion(), r.GroupVersion())
	}
	if err := o.store(object); err != nil {
		return fmt.Errorf(", %s %s: %w", kind.Kind, strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/"), err)
	}
	return nil
}

// readAnnotations takes in what isn't an object's to say. Without a time, it is the last that an object tells of.
func (s *Snapshot) readAnnotations(values map[string]string, items []any) error {
	for annotation, at := range map[string]*metav1.Time{annotationTakenAt: &s.TakenAt, annotationServerTime: &s.ServerTime} {
		if values[annotation] == "" {
			continue
		}
		when, err := time.Parse(time.RFC3339, values[annotation])
		if err != nil {
			return fmt.Errorf("annotation %s: %q is no time such as 2026-11-21T12:00:00Z", annotation, values[annotation])
		}
		*at = metav1.NewTime(when)
	}
	if s.TakenAt.IsZero() {
		s.TakenAt, s.guessed = metav1.NewTime(newest(items)), true
	}
	if s.ServerTime.IsZero() {
		s.ServerTime = s.TakenAt
	}
	if s.TakenAt.IsZero() {
		return fmt.Errorf("neither annotation %s nor an object says when it was; %s", annotationTakenAt, rewriteHint)
	}
	s.From, s.OwnNamespace, s.Trimmed = values[annotationServer], values[annotationNamespace], values[annotationTrimmed] == "true"
	answers, reported := values[annotationAnswers]
	s.unrecorded = !reported
	s.Objects.answered.Insert(strings.Split(answers, "\n")...)
	for kind := range s.Objects.by {
		if s.unrecorded {
			s.Objects.answer(query(kind, types.NamespacedName{}, ""))
		}
	}
	return nil
}

// expiringFields are the fields whose times are over when an object is read. Others, such as a policy's own, may be still to come.
var expiringFields = keep(
	"metadata.creationTimestamp", "metadata.managedFields[].time", "status.conditions[].lastHeartbeatTime|lastTransitionTime",
	"status.containerStatuses|initContainerStatuses[].state|lastState.running|terminated.startedAt|finishedAt",
)

// newest is the last time that objects tell of in such a field, or Leases of their renewal.
func newest(items []any) time.Time {
	var times []any
	for _, item := range items {
		times = append(times, expiringFields.of(item))
		if lease := (&unstructured.Unstructured{Object: item.(map[string]any)}); lease.GetKind() == "Lease" {
			renewed, _, _ := unstructured.NestedString(lease.Object, "spec", "renewTime")
			times = append(times, renewed)
		}
	}
	return latest(times)
}

// latest is the last time that there is anywhere in a value.
func latest(value any) (last time.Time) {
	switch v := value.(type) {
	case string:
		last, _ = time.Parse(time.RFC3339, v) // zero is never the last
		return last.UTC()
	case map[string]any:
		return latest(slices.Collect(maps.Values(v)))
	case []any:
		for _, inner := range v {
			if at := latest(inner); at.After(last) {
				last = at
			}
		}
	}
	return last
}

package actuate

import (
	"context"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

const (
	// readAttempts bounds how often an object is read that changes between the two reads that it takes.
	readAttempts = 3
	// readTimeout bounds how long that takes: whatever serves one kind must not keep the other dependents from being scaled.
	readTimeout = 10 * time.Second
	// recordedLimit is how many objects are listed at once. Only what is scaled down comes, and of that the metadata.
	recordedLimit = 500
)

// ScaleReader reads dependents from the API server, past any cache: what is written depends on it.
type ScaleReader struct {
	// Live reads metadata, Client scales; Client knows which resources there are.
	Live   client.Reader
	Client client.Client
}

// Read reads one dependent. What it can't find out is reported in the Object: nothing is written for one that is Unread.
func (r *ScaleReader) Read(ctx context.Context, namespace string, ref probe.Ref) probe.Object {
	switch namespaced, err := r.Client.IsObjectNamespaced(scalable(namespace, ref)); {
	case meta.IsNoMatchError(err), err == nil && !namespaced: // what is outside of namespaces is nobody's dependent
		return probe.Object{Unscalable: true}
	case err != nil:
		return probe.Object{Unread: fmt.Sprintf("find out what kind %s is: %v", ref.Kind, err), Unseen: true}
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for range readAttempts {
		if object, same := r.readOnce(ctx, namespace, ref); same {
			return object
		}
	}
	return probe.Object{Unread: "it changes faster than it can be read", Unseen: true}
}

// readOnce reads scale and metadata; same says that both are of one state of the object.
func (r *ScaleReader) readOnce(ctx context.Context, namespace string, ref probe.Ref) (o probe.Object, same bool) {
	scale := newScale(namespace, ref)
	scaleErr := r.Client.SubResource("scale").Get(ctx, scalable(namespace, ref), scale)
	about := metav1.PartialObjectMetadata{}
	about.SetGroupVersionKind(ref.GroupVersionKind())
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, &about)
	switch {
	case apierrors.IsNotFound(err):
		return probe.Object{Missing: true}, true
	case err != nil:
		return unread(probe.Object{Unseen: true}, fmt.Errorf("read %s: %w", ref, err)), true
	}
	o = describe(&about)
	if apierrors.IsNotFound(scaleErr) { // it is there now: was it not a moment ago, or has its kind no scale?
		if scaleErr = r.Client.SubResource("scale").Get(ctx, scalable(namespace, ref), scale); apierrors.IsNotFound(scaleErr) {
			o.Unscalable = true
			return o, true
		}
	}
	if scaleErr != nil {
		return unread(o, fmt.Errorf("read the scale of %s: %w", ref, scaleErr)), true
	}
	if scale.GetUID() != about.UID || scale.GetResourceVersion() != about.ResourceVersion {
		return o, false
	}
	if o.Replicas, err = replicas(scale, "spec"); err == nil {
		o.Current, err = replicas(scale, "status")
	}
	if err != nil {
		return unread(o, err), true
	}
	if o.Record != nil && o.Replicas != 0 {
		o.ScaledBy = scaledBy(&about)
	}
	return o, true
}

// scaledBy is the field manager that said last how many replicas an object is to have, "" when that isn't known.
func scaledBy(about *metav1.PartialObjectMetadata) (manager string) {
	replicas, latest := fieldpath.MakePathOrDie("spec", "replicas"), metav1.Time{}
	for _, entry := range about.ManagedFields {
		var fields fieldpath.Set
		if entry.FieldsV1 == nil || fields.FromJSON(entry.FieldsV1.GetRawReader()) != nil || !fields.Has(replicas) {
			continue
		}
		if manager == "" || entry.Time != nil && latest.Before(entry.Time) {
			manager, latest = entry.Manager, ptr.Deref(entry.Time, metav1.Time{})
		}
	}
	return manager
}

// unread is an object of which no more is known than this, and why.
func unread(o probe.Object, err error) probe.Object {
	o.Unread, o.Denied = err.Error(), apierrors.IsForbidden(err)
	return o
}

func describe(about *metav1.PartialObjectMetadata) probe.Object {
	o := probe.Object{
		UID: about.UID, ResourceVersion: about.ResourceVersion, Generation: about.Generation,
		Deleting: about.DeletionTimestamp != nil, Ignore: probe.Ignored(about.Annotations),
		Hold: hold.Of(about.Annotations), Copied: about.Kind == "ReplicaSet" && metav1.GetControllerOfNoCopy(about) != nil,
	}
	record, err := probe.ParseRecord(about.Annotations[v1alpha1.AnnotationOriginalReplicas])
	if o.Record = record; err != nil {
		o.RecordError = err.Error()
	}
	return o
}

// replicas reads a count of a scale; one that is left out is 0.
func replicas(scale *unstructured.Unstructured, part string) (int32, error) {
	n, _, err := unstructured.NestedInt64(scale.Object, part, "replicas")
	if err != nil {
		return 0, fmt.Errorf("read %s.replicas of the scale: %w", part, err)
	}
	return int32(n), nil
}

// named is an object of any kind, by name.
func named(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// scalable is a dependent, for its kind's scale subresource.
func scalable(namespace string, ref probe.Ref) *unstructured.Unstructured {
	return named(ref.GroupVersionKind(), namespace, ref.Name)
}

func newScale(namespace string, ref probe.Ref) *unstructured.Unstructured {
	return named(autoscalingv1.SchemeGroupVersion.WithKind("Scale"), namespace, ref.Name)
}

// Recorded is an object that has a record of ours.
type Recorded struct {
	Namespace string
	Ref       probe.Ref
	Record    probe.Record
}

// Recorded lists the objects of a kind that have a record, in a namespace or, with "", in all: past any cache, by the label
// that comes and goes with the record. What is being deleted, or has a record that can't be read, isn't among them; a kind
// that isn't served any more has none. The error is the API server's.
func (r *ScaleReader) Recorded(ctx context.Context, kind schema.GroupVersionKind, namespace string) ([]Recorded, error) {
	var all []Recorded
	chunk := &metav1.PartialObjectMetadataList{}
	chunk.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	for next := ""; ; next = chunk.Continue {
		err := r.Live.List(ctx, chunk, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelScaledDown}, client.Limit(recordedLimit), client.Continue(next))
		switch {
		case meta.IsNoMatchError(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("list each %s that is labelled %s: %w", kind.Kind, v1alpha1.LabelScaledDown, err)
		}
		for i := range chunk.Items {
			about := &chunk.Items[i]
			record, err := probe.ParseRecord(about.Annotations[v1alpha1.AnnotationOriginalReplicas])
			if err != nil || record == nil || about.DeletionTimestamp != nil {
				continue
			}
			apiVersion, name := kind.ToAPIVersionAndKind()
			all = append(all, Recorded{Namespace: about.Namespace, Ref: probe.Ref{APIVersion: apiVersion, Kind: name, Name: about.Name}, Record: *record})
		}
		if chunk.Continue == "" {
			return all, nil
		}
	}
}

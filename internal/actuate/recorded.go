package actuate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// recordedChunkSize is how many objects are read at once. Only what is scaled down comes, and of that the metadata.
const recordedChunkSize = 500

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
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	for next := ""; ; next = list.Continue {
		err := r.Live.List(ctx, list, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelScaledDown}, client.Limit(recordedChunkSize), client.Continue(next))
		switch {
		case meta.IsNoMatchError(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("list each %s that is labelled %s: %w", kind.Kind, v1alpha1.LabelScaledDown, err)
		}
		for i := range list.Items {
			about := &list.Items[i]
			record, err := probe.ParseRecord(about.Annotations[v1alpha1.AnnotationOriginalReplicas])
			if err != nil || record == nil || about.DeletionTimestamp != nil {
				continue
			}
			apiVersion, name := kind.ToAPIVersionAndKind()
			all = append(all, Recorded{Namespace: about.Namespace, Ref: probe.Ref{APIVersion: apiVersion, Kind: name, Name: about.Name}, Record: *record})
		}
		if list.Continue == "" {
			return all, nil
		}
	}
}

package conditionset

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/policy"
)

// brokenRecords are the records that can't be read and were told of, by node: each is told once, and not with each look. It is safe
// for concurrent use.
type brokenRecords struct{ told sync.Map }

// news says whether a node's record, "" for one that can be read, was not told of yet.
func (b *brokenRecords) news(node, record string) bool {
	if record == "" {
		b.told.Delete(node)
		return false
	}
	was, _ := b.told.Swap(node, record)
	return was != record
}

// record tells of a node whose record can't be read, by an Event and in the log. node is nil for one that is gone.
func (r *Reporter) record(ctx context.Context, name string, node *condition.Node, fleet *condition.Fleet) {
	if node == nil || !node.RecordBroken {
		r.broken.news(name, "")
		return
	}
	text, _ := node.Record()
	if !r.broken.news(name, string(node.UID)+" "+text) {
		return
	}
	is, broken := fleet.BrokenRecord(name)
	if !broken { // mended by now
		return
	}
	_, err := condition.ParseOwnership(text)
	log.FromContext(ctx).Error(err, "The record on a node can't be read; nothing is done and nothing undone there",
		"node", name, "annotation", v1alpha1.AnnotationOwnedTaints, "mend", is.RepairSteps())
	note := fmt.Sprintf("The annotation %s of node %s can't be read, so ConditionSets do nothing and undo nothing there. To mend it, %s", v1alpha1.AnnotationOwnedTaints, name, is.RepairSteps())
	r.Events.Eventf(nodeRef(node), nil, corev1.EventTypeWarning, v1alpha1.ReasonRecordUnreadable, "ReadRecord", "%s", policy.Truncate(note))
}

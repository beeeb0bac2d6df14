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

// brokenRecords are the unreadable records that were reported, by node: each is reported once, and not with each reconciliation. It is
// safe for concurrent use.
type brokenRecords struct{ reported sync.Map }

// isNew says whether a node's record, "" for one that can be read, wasn't reported yet.
func (b *brokenRecords) isNew(node, record string) bool {
	if record == "" {
		b.reported.Delete(node)
		return false
	}
	was, _ := b.reported.Swap(node, record)
	return was != record
}

// reportBrokenRecord reports a node whose record can't be read, by an Event and in the log. node is nil for a deleted one.
func (r *Reporter) reportBrokenRecord(ctx context.Context, name string, node *condition.Node, fleet *condition.Fleet) {
	if node == nil || !node.RecordBroken {
		r.broken.isNew(name, "")
		return
	}
	text, _ := node.Record()
	if !r.broken.isNew(name, string(node.UID)+" "+text) {
		return
	}
	is, broken := fleet.BrokenRecord(name)
	if !broken { // repaired by now
		return
	}
	_, err := condition.ParseOwnership(text)
	log.FromContext(ctx).Error(err, "The record on a node can't be read; nothing is done and nothing undone there",
		"node", name, "annotation", v1alpha1.AnnotationOwnedTaints, "fix", is.RepairSteps())
	note := fmt.Sprintf("The annotation %s of node %s can't be read, so ConditionSets do nothing and undo nothing there. To fix it, %s", v1alpha1.AnnotationOwnedTaints, name, is.RepairSteps())
	r.Events.Eventf(nodeRef(node), nil, corev1.EventTypeWarning, v1alpha1.ReasonRecordUnreadable, "ReadRecord", "%s", policy.Truncate(note))
}

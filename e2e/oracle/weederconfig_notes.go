package oracle

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// notes are what a config's status told of deletions, which it must do before they are done. It names the latest 20 and counts
// all: when more are noted at once, some are in the count alone.
type notes struct {
	services map[types.UID]string // by pod
	// before is what it counted when it was first seen, counted what it counts now, done how many deletions were seen.
	before, counted, done int64
}

func newNotes(p *Policy) *notes {
	return &notes{services: map[types.UID]string{}, before: countedBy(p)}
}

func countedBy(p *Policy) int64 {
	n, _, _ := unstructured.NestedInt64(p.Latest.Object, "status", "deleted")
	return n
}

func (n *notes) read(p *Policy) {
	n.counted = countedBy(p)
	recent, _, _ := unstructured.NestedSlice(p.Latest.Object, "status", "recentDeletions")
	for _, deletion := range recent {
		if d, ok := deletion.(map[string]any); ok {
			uid, _ := d["podUID"].(string)
			n.services[types.UID(uid)], _ = d["service"].(string)
		}
	}
}

// unnamed says whether the count has room for one more deletion.
func (n *notes) unnamed() bool { return n.counted-n.before > n.done }

package condition

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Ownership is a node's record of what ConditionSets did to it, kept in an annotation and written together with the
// taints, so that neither a restart nor a lost object forgets whose a taint is.
type Ownership struct {
	// Taints has one entry for each set that asks for a taint; the node's taint of a key has the highest effect asked.
	Taints []OwnedTaint `json:"taints,omitempty"`
	// History are the taints of the last hour, to notice flapping and to pace evictions.
	History []PastTaint `json:"history,omitempty"`
}

// OwnedTaint is one set's claim on a taint.
type OwnedTaint struct {
	Key        string             `json:"key"`
	Effect     corev1.TaintEffect `json:"effect"`
	Set        types.UID          `json:"set"`
	Name       string             `json:"name"`
	Generation int64              `json:"generation"`
	// Since is when this set's taint was set, or put back, by our clock.
	Since metav1.Time `json:"since"`
	// EvictSince is when it became NoExecute.
	EvictSince *metav1.Time `json:"evictSince,omitempty"`
	// TaintCount says which taint of the node by sets of this name within an hour it is, from the third on: such a one never becomes NoExecute,
	// and goes only some time after its conditions recovered.
	TaintCount int `json:"times,omitempty"`
}

// PastTaint is one time at which a set tainted the node.
type PastTaint struct {
	Set types.UID   `json:"set"`
	Key string      `json:"key,omitempty"`
	At  metav1.Time `json:"at"`
	// Evicted is when that taint became NoExecute, if it did.
	Evicted *metav1.Time `json:"evicted,omitempty"`
	// PutBack: someone else had removed it.
	PutBack bool `json:"putBack,omitempty"`
	// Withdrawn: it went with its set, which was deleted or only observed, and not since conditions came and went.
	Withdrawn bool `json:"-"`
}

// historyKept bounds the record: what lies further back says nothing about flapping.
const (
	historyRetention = time.Hour
	// maxHistory bounds its length, whatever fights over the node.
	maxHistory = 32
)

// ParseOwnership reads a node's annotation; empty text is an empty record.
func ParseOwnership(annotation string) (Ownership, error) {
	var o Ownership
	if annotation == "" {
		return o, nil
	}
	if err := json.Unmarshal([]byte(annotation), &o); err != nil {
		return Ownership{}, fmt.Errorf("read ownership record: %w", err)
	}
	return o, nil
}

// String is the annotation's value, "" for an empty record. Equal records give equal text.
func (o Ownership) String() string {
	if len(o.Taints) == 0 && len(o.History) == 0 {
		return ""
	}
	o.Taints = slices.Clone(o.Taints)
	slices.SortFunc(o.Taints, func(a, b OwnedTaint) int {
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return strings.Compare(string(a.Set), string(b.Set))
	})
	text, err := json.Marshal(o)
	if err != nil { // strings and times always marshal
		panic(fmt.Sprintf("marshal ownership record: %v", err))
	}
	return string(text)
}

// Effect is the highest effect that the record asks for a key, "" for none.
func (o Ownership) Effect(key string) corev1.TaintEffect {
	var effect corev1.TaintEffect
	for _, t := range o.Taints {
		if t.Key == key {
			effect = Higher(effect, t.Effect)
		}
	}
	return effect
}

// Owns says whether the record claims this very taint.
func (o Ownership) Owns(taint corev1.Taint) bool {
	return taint.Effect != "" && o.Effect(taint.Key) == taint.Effect
}

var rank = map[corev1.TaintEffect]int{
	corev1.TaintEffectPreferNoSchedule: 1,
	corev1.TaintEffectNoSchedule:       2,
	corev1.TaintEffectNoExecute:        3,
}

// Higher is the more drastic of two effects: NoExecute, NoSchedule, PreferNoSchedule, none.
func Higher(a, b corev1.TaintEffect) corev1.TaintEffect {
	if rank[a] >= rank[b] {
		return a
	}
	return b
}

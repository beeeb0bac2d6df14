package actuate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// recorderFunc takes Events in the API server's place.
type recorderFunc func(on runtime.Object)

// Eventf implements events.EventRecorder.
func (f recorderFunc) Eventf(on, _ runtime.Object, _, _, _, _ string, _ ...any) { f(on) }

func TestAnActIsToldOnBothObjectsAndInAStormOnNeither(t *testing.T) {
	node, policy := &corev1.Node{}, &corev1.ConfigMap{}
	told := map[runtime.Object]int{}
	dropped := 0
	acts := NewEvents(recorderFunc(func(on runtime.Object) { told[on]++ }), func(events int) { dropped += events })
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for range 30 {
		acts.Emit(now, node, policy, "NodeTainted", "Taint", "100% sick")
	}
	if told[node] != 25 || told[policy] != 25 || dropped != 10 {
		t.Errorf("of 30 acts at once %d are told on the node and %d on the policy, %d Events dropped; want 25, 25, 10", told[node], told[policy], dropped)
	}
	acts.Emit(now.Add(time.Second), node, policy, "NodeTainted", "Taint", "")
	if told[node] != 26 || dropped != 10 {
		t.Error("a second later there is still no room")
	}
}

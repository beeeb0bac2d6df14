package kube

import (
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// HistoryLogger names the logger of the audit trail, by which its lines are found in managers' logs.
const HistoryLogger = "history"

// Events on single targets are rate-limited: in a storm they would cost the API server more than the acts do. The audit
// trail and the counts of the policy's own Events have those that are left out.
const (
	eventsPerSecond = 5
	eventsBurst     = 25
)

// ActEvents reports acts by two Events, on the target and on the policy. It is safe for concurrent use.
type ActEvents struct {
	recorder events.EventRecorder
	pace     *rate.Limiter
	dropped  func(events int)
}

// NewActEvents reports acts to a recorder, and to dropped how many Events were left out.
func NewActEvents(recorder events.EventRecorder, dropped func(events int)) *ActEvents {
	return &ActEvents{recorder: recorder, pace: rate.NewLimiter(eventsPerSecond, eventsBurst), dropped: dropped}
}

// Emit reports one act. Of several with the same target, policy, reason and action there is one Event with a count, and with
// the first one's note.
func (e *ActEvents) Emit(now time.Time, target, policy runtime.Object, reason, action, note string) {
	e.emit(now, target, policy, [2]runtime.Object{policy, target}, reason, action, note)
}

// EmitRelated reports one act on something that the target owns: both Events are related to that, so that each such act has
// Events of its own.
func (e *ActEvents) EmitRelated(now time.Time, target, policy, about runtime.Object, reason, action, note string) {
	e.emit(now, target, policy, [2]runtime.Object{about, about}, reason, action, note)
}

func (e *ActEvents) emit(now time.Time, target, policy runtime.Object, related [2]runtime.Object, reason, action, note string) {
	if !e.pace.AllowN(now, 1) {
		e.dropped(2)
		return
	}
	e.recorder.Eventf(target, related[0], corev1.EventTypeNormal, reason, action, "%s", note)
	e.recorder.Eventf(policy, related[1], corev1.EventTypeNormal, reason, action, "%s", note)
}

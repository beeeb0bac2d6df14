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

// Events on single targets are held to this pace: in a storm they would cost the API server more than the acts do. What
// is left out stands in the audit trail and in the counts of the policy's own Events.
const (
	actsToldPerSecond = 5
	actsToldBurst     = 25
)

// ActEvents tells of acts by two Events, on the target and on the policy. It is safe for concurrent use.
type ActEvents struct {
	recorder events.EventRecorder
	pace     *rate.Limiter
	dropped  func(events int)
}

// NewActEvents tells a recorder of acts, and dropped of how many Events were left out.
func NewActEvents(recorder events.EventRecorder, dropped func(events int)) *ActEvents {
	return &ActEvents{recorder: recorder, pace: rate.NewLimiter(actsToldPerSecond, actsToldBurst), dropped: dropped}
}

// Tell tells of one act. Of several with the same target, policy, reason and action there is one Event with a count, and with
// the first one's note.
func (e *ActEvents) Tell(now time.Time, target, policy runtime.Object, reason, action, note string) {
	e.tell(now, target, policy, [2]runtime.Object{policy, target}, reason, action, note)
}

// TellAbout tells of one act on something that the target owns: both Events are related to that, so that each such act is
// told by Events of its own.
func (e *ActEvents) TellAbout(now time.Time, target, policy, about runtime.Object, reason, action, note string) {
	e.tell(now, target, policy, [2]runtime.Object{about, about}, reason, action, note)
}

func (e *ActEvents) tell(now time.Time, target, policy runtime.Object, related [2]runtime.Object, reason, action, note string) {
	if !e.pace.AllowN(now, 1) {
		e.dropped(2)
		return
	}
	e.recorder.Eventf(target, related[0], corev1.EventTypeNormal, reason, action, "%s", note)
	e.recorder.Eventf(policy, related[1], corev1.EventTypeNormal, reason, action, "%s", note)
}

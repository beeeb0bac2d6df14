// Package actuate holds Autohealer's hands: the only code that changes objects that aren't its own. Every harmful change
// takes a guard.Validated, which only the rules can give; what a record on the changed object shows to be ours may be
// undone without.
package actuate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/events"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kube"
)

// Act is one change of an object that isn't ours, for the audit trail.
type Act struct {
	// Verb and Reason are what was done and why, as the kind's planner names them.
	Verb, Reason string
	// Policy is for whom. RuleSet admitted its generation; "" for an undo, which needs no admission.
	PolicyKind       string
	Policy           types.NamespacedName
	PolicyUID        types.UID
	PolicyGeneration int64
	RuleSet          string
	// Target is what was changed. Part says what of it, where one policy may change several things there: the taint that it gives, by key and effect.
	TargetKind string
	Target     types.NamespacedName
	TargetUID  types.UID
	Part       string
	// Trigger is the transition that the act answers.
	Trigger time.Time
	// Unconfirmed is what came instead of the API server's answer, so that the change may have been made or not. Nil: it was.
	Unconfirmed error
}

// ID names an act: the same policy, generation, target and trigger never act twice.
func (a Act) ID() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d/%s/%s/%s/%d", a.PolicyUID, a.PolicyGeneration, a.TargetUID, a.Part, a.Verb, a.Trigger.Unix()))
	return hex.EncodeToString(sum[:8])
}

// record writes the audit line of an act; details are keys and values that the kind adds. Events expire and can be
// dropped; this is what remains.
func (a Act) record(trail logr.Logger, message string, details ...any) {
	line := []any{"act", a.ID(), "verb", a.Verb, "reason", a.Reason, "policyKind", a.PolicyKind}
	if a.Policy.Namespace != "" {
		line = append(line, "policyNamespace", a.Policy.Namespace)
	}
	line = append(line, "policy", a.Policy.Name, "policyUID", a.PolicyUID, "policyGeneration", a.PolicyGeneration, "ruleSet", a.RuleSet,
		"targetKind", a.TargetKind)
	if a.Target.Namespace != "" {
		line = append(line, "targetNamespace", a.Target.Namespace)
	}
	line = append(line, "target", a.Target.Name, "targetUID", a.TargetUID)
	line = append(line, details...)
	if a.Unconfirmed != nil {
		line = append(line, "unconfirmed", a.Unconfirmed.Error())
	}
	trail.Info(message, append(line, "trigger", a.Trigger)...)
}

var (
	// ErrNotValidated: the change has no admission that covers it. It is a mistake in the caller, never in a cluster.
	ErrNotValidated = errors.New("no validated policy covers this change")
	// ErrStale: the object is no longer what the plan was made from, or the policy no longer what was admitted. Nothing
	// was written, but for what ErrUnfinished says; plan again.
	ErrStale = errors.New("planned from an older state")
	// ErrUnfinished: the replicas are given back, and their record is still there. A new plan removes it.
	ErrUnfinished = errors.New("restored, but the record is still there")

	// errUnanswered: the request was sent, and no answer tells what became of it.
	errUnanswered = errors.New("the API server's answer didn't come")
)

// Unconfirmed is a refusal of one policy's harmful steps: whether it is still what was admitted couldn't be confirmed, or
// it isn't. Nothing was written. A plan without those steps may go ahead.
type Unconfirmed struct {
	Policy types.UID
	Err    error
}

func (u *Unconfirmed) Error() string { return u.Err.Error() }

// Unwrap gives the cause.
func (u *Unconfirmed) Unwrap() error { return u.Err }

// Current checks live, just before an act, that a policy still is what was admitted.
type Current interface {
	Check(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName, uid types.UID, generation int64) error
}

// confirm asks whether a policy still is what was admitted; else it is Unconfirmed, and stale where something else took its place.
func confirm(ctx context.Context, current Current, kind string, key types.NamespacedName, uid types.UID, generation int64) error {
	err := current.Check(ctx, v1alpha1.GroupVersion.WithKind(kind), key, uid, generation)
	if errors.Is(err, kube.ErrSuperseded) {
		err = fmt.Errorf("%w: %w", ErrStale, err)
	}
	if err != nil {
		return &Unconfirmed{uid, err}
	}
	return nil
}

// Certain says whether a failed write surely changed nothing: it wasn't sent, or the API server refused it. After anything else, a
// time-out or a lost connection, only a live read can tell.
func Certain(err error) bool {
	var unconfirmed *Unconfirmed
	switch {
	case errors.As(err, &unconfirmed), errors.Is(err, ErrNotValidated), errors.Is(err, ErrStale), utilnet.IsConnectionRefused(err):
		return true
	case apierrors.IsInvalid(err), apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsForbidden(err),
		apierrors.IsUnauthorized(err), apierrors.IsBadRequest(err), apierrors.IsTooManyRequests(err), apierrors.IsRequestEntityTooLargeError(err):
		return true
	}
	return false
}

// NamespaceEnds says of the error of a write that there is nothing to write to any more: the namespace is being deleted, in which nothing
// may be created then, or gone.
func NamespaceEnds(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	var answer apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &answer) && answer.Status().Details != nil && answer.Status().Details.Kind == "namespaces"
}

// Events on single targets are rate-limited: in a storm they would cost the API server more than the acts do. The audit
// trail and the counts of the policy's own Events have those that are left out.
const (
	eventsPerSecond = 5
	eventsBurst     = 25
)

// Events reports acts by two Events, on the target and on the policy. It is safe for concurrent use.
type Events struct {
	recorder events.EventRecorder
	pace     *rate.Limiter
	dropped  func(events int)
}

// NewEvents reports acts to a recorder, and to dropped how many Events were left out.
func NewEvents(recorder events.EventRecorder, dropped func(events int)) *Events {
	return &Events{recorder: recorder, pace: rate.NewLimiter(eventsPerSecond, eventsBurst), dropped: dropped}
}

// Emit reports one act. Of several with the same target, policy, reason and action there is one Event with a count, and with
// the first one's note.
func (e *Events) Emit(now time.Time, target, policy runtime.Object, reason, action, note string) {
	e.emit(now, target, policy, [2]runtime.Object{policy, target}, reason, action, note)
}

// EmitRelated reports one act on something that the target owns: both Events are related to that, so that each such act has
// Events of its own.
func (e *Events) EmitRelated(now time.Time, target, policy, about runtime.Object, reason, action, note string) {
	e.emit(now, target, policy, [2]runtime.Object{about, about}, reason, action, note)
}

func (e *Events) emit(now time.Time, target, policy runtime.Object, related [2]runtime.Object, reason, action, note string) {
	if !e.pace.AllowN(now, 1) {
		e.dropped(2)
		return
	}
	e.recorder.Eventf(target, related[0], corev1.EventTypeNormal, reason, action, "%s", note)
	e.recorder.Eventf(policy, related[1], corev1.EventTypeNormal, reason, action, "%s", note)
}

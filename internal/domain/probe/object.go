package probe

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/hold"
)

// Object is a dependent as it was read from the API server, not from a cache: what is written depends on it.
type Object struct {
	// Unread says why its replicas couldn't be read; then nothing is written to it. Unseen: nor could its metadata, so that
	// it isn't known whether it has a Record. Denied: because Autohealer's account may not.
	Unread         string
	Unseen, Denied bool
	// Missing and Unscalable: there is no such object; its kind has no scale subresource.
	Missing, Unscalable bool
	// Copied: it is a ReplicaSet to which its owner's annotations are copied, and never taken off; the owner scales it.
	Copied bool
	// Deleting: it is being deleted. Ignore: its annotation ignore-scaling forbids scaling.
	Deleting, Ignore bool
	// Hold keeps its replicas from being taken; nil for none.
	Hold *hold.Hold
	UID  types.UID
	// ResourceVersion of all that follows: what is written must find the object in this state.
	ResourceVersion string
	Generation      int64
	// Replicas that are asked for, and Current ones that there are, as /scale says.
	Replicas, Current int32
	// ScaledBy is the field manager that asked for its replicas, where it has a Record all the same; "" when that isn't known.
	ScaledBy string
	// Record on it, nil for none; RecordError when there is one that can't be read.
	Record      *Record
	RecordError string
}

// FieldManager is who writes replicas for us, as managedFields have it.
const FieldManager = "autohealer"

// Step is what is to be written to an object.
type Step int

const (
	// StepNone: nothing.
	StepNone Step = iota
	// StepScaleDown writes the record and then, with the resourceVersion of that write, scale 0.
	StepScaleDown
	// StepScaleDownAgain writes scale 0, with the resourceVersion that was read: the record is there already.
	StepScaleDownAgain
	// StepScaleUp writes the scale of the record, with the resourceVersion that was read, and then removes the record.
	StepScaleUp
	// StepRemoveRecord removes the record.
	StepRemoveRecord
)

// String names the step as logs do.
func (s Step) String() string { return [...]string{"none", "take", "lower", "raise", "release"}[s] }

// Reason says why an object isn't scaled, in CamelCase.
type Reason string

// Reasons for which an object isn't scaled.
const (
	NotRead          Reason = "NotRead"
	DependentMissing Reason = "DependentMissing"
	NotScalable      Reason = "NotScalable"
	IgnoreRequested  Reason = "AskedToIgnore"
	HeldByAnnotation Reason = "HoldUntil"
	ScaledByOthers   Reason = "ScaledByOthers"
	OwnedByAnother   Reason = "OwnedByAnother"
	RecordUnreadable Reason = "RecordUnreadable"
	TimedOut         Reason = "TimedOut"
)

// Finding is an object that isn't as it should be, and why.
type Finding struct {
	Ref
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
}

// Verdict is what the planner says that an object needs in a direction, once its level's turn comes.
type Verdict struct {
	// Step that would be written; None for nothing.
	Step Step
	// Reason and Message say what was found in its way; "" when nothing was, or there is nothing to do.
	Reason  Reason
	Message string

	// settled: nothing is to be written, and it has the replicas that it is to have.
	settled bool
	// blocked: it isn't known what it needs. unrestored: it keeps its record, and isn't scaled up.
	blocked, unrestored bool
}

func (s Verdict) finding(ref Ref) Finding {
	return Finding{Ref: ref, Reason: s.Reason, Message: s.Message}
}

var settled = Verdict{settled: true}

func needsStep(step Step) Verdict { return Verdict{Step: step} }

func untouched(reason Reason, format string, args ...any) Verdict {
	return Verdict{settled: true, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// keepsRecord is of an object that keeps its record.
func keepsRecord(reason Reason, format string, args ...any) Verdict {
	s := untouched(reason, format, args...)
	s.unrestored = true
	return s
}

// eitherDirection is what holds in both directions; ok is false when the direction matters.
func (o *Object) eitherDirection(c *Config) (s Verdict, ok bool) {
	ours := o.Record != nil && o.Record.Of(c)
	switch {
	case o.Missing, o.Deleting:
		return settled, true
	case o.Unread != "":
		return o.unread(ours), true
	case o.RecordError != "":
		return keepsRecord(RecordUnreadable, "%s", o.RecordError), true
	case o.Unscalable && ours:
		return keepsRecord(NotScalable, "its kind has no scale subresource any more; it had %d replicas before it was scaled down", o.Record.Replicas), true
	case o.Unscalable:
		return untouched(NotScalable, "its kind has no scale subresource"), true
	case o.Record != nil && !ours:
		return untouched(OwnedByAnother, "it is scaled down for ProbeConfig %s", o.Record.Policy), true
	}
	return Verdict{}, false
}

// unread says what is known of an object whose replicas aren't.
func (o *Object) unread(ours bool) Verdict {
	s := Verdict{blocked: true, Reason: NotRead, Message: o.Unread}
	if ours {
		s.Message = fmt.Sprintf("it had %d replicas before it was scaled down: %s", o.Record.Replicas, o.Unread)
	}
	return s
}

// mayHaveRecord says whether the object may be scaled down, by its record.
func (o *Object) mayHaveRecord() bool { return o.Record != nil || o.Unseen }

// MayNeedRestore says whether the object may be scaled down for the config.
func (o *Object) MayNeedRestore(c *Config) bool {
	return !o.Missing && (o.Unseen || o.RecordError != "" || o.Record != nil && o.Record.Of(c))
}

// verdict says what an object needs in the direction, of which some got back already what was taken.
func (in *Scaling) verdict(i int, raised map[Ref]int32) Verdict {
	if in.Want == Up {
		return in.Objects[i].up(in.Config, raised[in.Config.Dependents[i].Ref])
	}
	return in.down(i)
}

// down says what an object needs to be scaled down, if people don't ask to leave it alone.
func (in *Scaling) down(i int) Verdict {
	s := in.downIgnoringHold(i)
	if h := in.Objects[i].Hold; (s.Step == StepScaleDown || s.Step == StepScaleDownAgain) && h.Active(in.Now, in.ServerTime) {
		return untouched(HeldByAnnotation, "%s", h.Message(in.Now))
	}
	return s
}

func (in *Scaling) downIgnoringHold(i int) Verdict {
	o := &in.Objects[i]
	if o.Missing && !in.Config.Dependents[i].Optional {
		return untouched(DependentMissing, "the object doesn't exist, and isn't optional")
	}
	if s, ok := o.eitherDirection(in.Config); ok {
		return s
	}
	r := o.Record
	switch {
	case o.Ignore:
		return untouched(IgnoreRequested, "its annotation ignore-scaling forbids scaling")
	case r == nil && o.Replicas == 0:
		return settled
	case r == nil:
		return needsStep(StepScaleDown)
	case o.Replicas == 0:
		return Verdict{settled: o.Current == 0}
	default:
		return in.downAgain(o)
	}
}

// downAgain says what an object with replicas needs that has a record.
func (in *Scaling) downAgain(o *Object) Verdict {
	switch r := o.Record; {
	case !r.Since.Time.Equal(in.ProtectionSince): // left by an earlier protection that died between two writes
		return needsStep(StepScaleDown)
	case r.neverScaledDown(o) && r.Replicas == o.Replicas: // we died before they were taken
		return needsStep(StepScaleDownAgain)
	case r.neverScaledDown(o): // and someone else scaled it just then
		return needsStep(StepScaleDown)
	case o.ScaledBy == FieldManager: // we died before its record was removed, and this is another outage
		return needsStep(StepScaleDown)
	default:
		by := "someone"
		if o.ScaledBy != "" {
			by = "field manager " + o.ScaledBy
		}
		return untouched(ScaledByOthers, "%s scaled it to %d after it was scaled down", by, o.Replicas)
	}
}

// up says what an object needs to have its replicas restored. Raised is what was restored in this flow, 0 for nothing.
func (o *Object) up(c *Config, raised int32) Verdict {
	if o.Unread != "" && !o.MayNeedRestore(c) { // nothing was ever taken from it
		return settled
	}
	if s, ok := o.eitherDirection(c); ok {
		return s
	}
	switch {
	case o.Record == nil:
		return Verdict{settled: o.Replicas != raised || o.Current >= raised}
	case o.Ignore:
		return keepsRecord(IgnoreRequested, "its annotation ignore-scaling forbids scaling; it had %d replicas before it was scaled down", o.Record.Replicas)
	case o.Replicas != 0: // we died before the record was removed, or someone else scaled it
		return needsStep(StepRemoveRecord)
	default:
		return needsStep(StepScaleUp)
	}
}

// Verdict is on the i-th of the objects.
func (in *Scaling) Verdict(i int) Verdict { return in.verdict(i, nil) }

// WatchdogIgnores is the annotation by which people keep dependency-watchdog from scaling an object.
const WatchdogIgnores = "dependency-watchdog.gardener.cloud/ignore-scaling"

// Ignored says whether annotations ask to leave an object's replicas alone: ours or dependency-watchdog's, with
// any of the words for true that this takes.
func Ignored(annotations map[string]string) bool {
	for _, key := range []string{v1alpha1.AnnotationIgnoreScaling, WatchdogIgnores} {
		if ignore, err := strconv.ParseBool(annotations[key]); err == nil && ignore {
			return true
		}
	}
	return false
}

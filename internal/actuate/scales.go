package actuate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/guard"
)

// AdmittedProber is a ProbeConfig that the rules admitted.
type AdmittedProber = guard.Validated[*v1alpha1.ProbeConfig]

// Scales scales objects of any kind with a scale subresource, and keeps on each the record of what was taken from it. Down
// is the record and then the scale, up the scale and then the record: whoever dies in between leaves a record that says what
// the object is to get back.
type Scales struct {
	Client  client.Client
	Current Current
	// Leads says whether this process may act at all. Default: it may.
	Leads func() bool
	// Acts takes the audit trail: one line an act.
	Acts logr.Logger
}

// ScaleChange is an act on a dependent of a target.
type ScaleChange struct {
	Config    *probe.Config
	Namespace string
	Act       probe.Act
}

func (c ScaleChange) String() string {
	return fmt.Sprintf("%s %s in namespace %s", c.Act.Step, c.Act.Ref, c.Namespace)
}

// Apply writes a change to an object that still is as it was read. Taking replicas needs the config's admission; giving
// them back needs the record on the object. After an error the object must be read again.
func (s *Scales) Apply(ctx context.Context, c ScaleChange, admitted AdmittedProber) error {
	if err := s.covered(ctx, c, admitted); err != nil {
		return err
	}
	if s.Leads != nil && !s.Leads() {
		return fmt.Errorf("%s: this replica may no longer be the leader: %w", c, ErrStale)
	}
	err := s.write(ctx, c)
	switch {
	case err == nil, errors.Is(err, ErrUnfinished):
		s.record(c, admitted, nil)
	case errors.Is(err, errUnanswered):
		s.record(c, admitted, err)
	}
	if err == nil {
		return nil
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		err = fmt.Errorf("%w: %w", ErrStale, err)
	}
	return fmt.Errorf("%s: %w", c, err)
}

// covered finds what allows a change: the config's admission, still current, or the record on the object.
func (s *Scales) covered(ctx context.Context, c ScaleChange, v AdmittedProber) error {
	object, record := c.Act.Object, c.Act.Record
	if record == nil || !record.Of(c.Config) || object.UID == "" || object.ResourceVersion == "" {
		return fmt.Errorf("%s: the plan has no record of this config, or doesn't say of which state of the object: %w", c, ErrNotValidated)
	}
	switch c.Act.Step {
	case probe.StepScaleDown, probe.StepScaleDownAgain:
		return s.admitted(ctx, c, v)
	case probe.StepScaleUp, probe.StepRemoveRecord:
		if object.Record == nil || *object.Record != *record {
			return fmt.Errorf("%s: the object has no such record: %w", c, ErrNotValidated)
		}
		return nil
	default:
		return fmt.Errorf("%s: nothing is to be done: %w", c, ErrNotValidated)
	}
}

// admitted: the config's admission allows to take replicas, and is still what is stored.
func (s *Scales) admitted(ctx context.Context, c ScaleChange, v AdmittedProber) error {
	if !v.Enforces() || v.UID() != c.Config.UID || v.Generation() != c.Config.Generation {
		return &Unconfirmed{c.Config.UID, fmt.Errorf("%s for ProbeConfig %s: %w", c, c.Config.Key(), ErrNotValidated)}
	}
	return confirm(ctx, s.Current, "ProbeConfig", c.Config.Key(), v.UID(), v.Generation())
}

// write carries out a step, each write in the state that the one before it left.
func (s *Scales) write(ctx context.Context, c ScaleChange) error {
	version, record := c.Act.Object.ResourceVersion, c.Act.Record.String()
	var err error
	switch c.Act.Step {
	case probe.StepScaleDown:
		if version, err = s.annotate(ctx, c, version, &record); err == nil {
			_, err = s.scale(ctx, c, version, 0)
		}
	case probe.StepScaleDownAgain:
		_, err = s.scale(ctx, c, version, 0)
	case probe.StepScaleUp:
		if version, err = s.scale(ctx, c, version, c.Act.Record.Replicas); err == nil {
			if _, err = s.annotate(ctx, c, version, nil); err != nil {
				err = fmt.Errorf("%w: %w", ErrUnfinished, err)
			}
		}
	case probe.StepRemoveRecord:
		_, err = s.annotate(ctx, c, version, nil)
	}
	return err
}

// annotate writes the record, or removes it, with the label by which it is found, and gives the object's new resource version.
func (s *Scales) annotate(ctx context.Context, c ScaleChange, version string, record *string) (string, error) {
	var label *string
	annotations := map[string]*string{v1alpha1.AnnotationOriginalReplicas: record}
	if was := c.Act.Object.Record; was != nil && was.MeltdownProtection {
		annotations[v1alpha1.AnnotationMeltdownProtection] = nil
	}
	if record != nil {
		label = ptr.To("true")
		if c.Act.Record.MeltdownProtection {
			annotations[v1alpha1.AnnotationMeltdownProtection] = ptr.To("")
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": c.Act.Object.UID, "resourceVersion": version,
		"annotations": annotations, "labels": map[string]*string{v1alpha1.LabelScaledDown: label},
	}})
	if err != nil {
		return "", fmt.Errorf("build the patch of %s: %w", c.Act.Ref, err)
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(c.Act.Ref.GroupVersionKind())
	object.Namespace, object.Name = c.Namespace, c.Act.Ref.Name
	err = s.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(probe.FieldManager))
	return object.ResourceVersion, err
}

// scale writes how many replicas the object is to have, and gives its new resource version.
func (s *Scales) scale(ctx context.Context, c ScaleChange, version string, replicas int32) (string, error) {
	scale := newScale(c.Namespace, c.Act.Ref)
	scale.SetUID(c.Act.Object.UID)
	scale.SetResourceVersion(version)
	scale.Object["spec"] = map[string]any{"replicas": int64(replicas)}
	err := s.Client.SubResource("scale").Update(ctx, scalable(c.Namespace, c.Act.Ref), client.WithSubResourceBody(scale), client.FieldOwner(probe.FieldManager))
	if err != nil && !Certain(err) {
		err = fmt.Errorf("%w: %w", errUnanswered, err)
	}
	return scale.GetResourceVersion(), err
}

// verbs are the steps as the audit trail names them.
var verbs = map[probe.Step]string{probe.StepScaleDown: "ScaleDown", probe.StepScaleDownAgain: "ScaleDown", probe.StepScaleUp: "ScaleUp", probe.StepRemoveRecord: "Forget"}

// record writes the audit line of a change, which unconfirmed leaves in doubt.
func (s *Scales) record(c ScaleChange, v AdmittedProber, unconfirmed error) {
	o, record := c.Act.Object, c.Act.Record
	act := Act{
		Verb: verbs[c.Act.Step], Reason: v1alpha1.ReasonProbeSucceeds,
		PolicyKind: "ProbeConfig", Policy: c.Config.Key(), PolicyUID: c.Config.UID, PolicyGeneration: c.Config.Generation,
		TargetKind: c.Act.Ref.Kind, Target: types.NamespacedName{Namespace: c.Namespace, Name: c.Act.Ref.Name}, TargetUID: o.UID,
		Trigger: record.Since.Time, Unconfirmed: unconfirmed,
	}
	switch c.Act.Step {
	case probe.StepScaleDown, probe.StepScaleDownAgain:
		act.Reason, act.RuleSet = v1alpha1.ReasonProbeFails, v.RuleSetHash()
		act.record(s.Acts, "Scaled a dependent down", "before", o.Replicas, "after", 0)
	case probe.StepScaleUp:
		act.record(s.Acts, "Scaled a dependent up", "before", o.Replicas, "after", record.Replicas)
	default:
		act.Reason = v1alpha1.ReasonNotRestored
		act.record(s.Acts, "Forgot what a dependent had", "before", o.Replicas, "after", o.Replicas)
	}
}

package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

var nodeKind = schema.GroupVersionKind{Version: "v1", Kind: "Node"}

// node plans to take back the taints that a node's record claims.
func (u *Undoer) node(ctx context.Context, name string) (work, error) {
	var stored corev1.Node
	if err := u.Client.Get(ctx, types.NamespacedName{Name: name}, &stored); err != nil {
		return work{}, err
	}
	now := u.Clock.Now()
	node, at := condition.NewNode(&stored, nil, now), timing.Moment{Now: now, Server: now}
	if node.RecordBroken {
		return work{}, fmt.Errorf("its annotation %s can't be read: look at it, untaint the node by hand, and remove it", v1alpha1.AnnotationOwnedTaints)
	}
	plan := condition.Undo(node, u.policies.setExists, at)
	if len(plan.Steps) == 0 {
		return work{}, nil
	}
	w := work{write: func(ctx context.Context) error {
		writer := actuate.Taints{Client: u.Client, Acts: logr.Discard()}
		_, err := writer.Apply(ctx, plan, nil)
		return err
	}}
	for _, s := range plan.Steps {
		w.steps = append(w.steps, untainted(s, node))
		if s.Verb == condition.Untaint {
			w.again = append(w.again, u.policies.taintsAgain(s, node, at)...)
		}
	}
	return w, nil
}

// untainted says what a step takes back.
func untainted(s condition.Step, node *condition.Node) string {
	switch {
	case s.Verb == condition.Untaint:
		return fmt.Sprintf("taint %s:%s removed, which ConditionSet %s set %s", s.Key, node.Owned.Effect(s.Key), s.SetName, s.Trigger.UTC().Format("2006-01-02T15:04:05Z"))
	case s.Key == "":
		return "record of past taints removed"
	case s.Reason == condition.RecordInvalid:
		return fmt.Sprintf("record of %s removed; the taint stays, since no ConditionSet may set this key", s.Key)
	}
	return fmt.Sprintf("record of %s removed; the taint was gone already", s.Key)
}

// scaled plans to give an object back the replicas that its record says were taken.
func (u *Undoer) scaled(ctx context.Context, o Object) (work, error) {
	ref := probe.Ref{APIVersion: o.Kind.GroupVersion().String(), Kind: o.Kind.Kind, Name: o.Key.Name}
	reader := actuate.ScaleReader{Live: u.Client, Client: u.Client}
	object := reader.Read(ctx, o.Key.Namespace, ref)
	if object.Unread != "" {
		return work{}, errors.New(object.Unread)
	}
	hibernated, err := u.hibernated(ctx, o.Key.Namespace, object)
	if err != nil {
		return work{}, err
	}
	config, plan := probe.Undo(o.Key.Namespace, ref, object, hibernated)
	switch {
	case object.RecordError != "":
		return work{}, fmt.Errorf("its annotation %s can't be read: look at it, scale it by hand, and remove it", v1alpha1.AnnotationOriginalReplicas)
	case len(plan.Acts) == 0 && len(plan.Unrestored) > 0:
		return work{}, errors.New(plan.Unrestored[0].Message)
	case len(plan.Acts) == 0:
		return work{}, nil
	}
	act := plan.Acts[0] // there is one object
	w := work{steps: []string{givenBack(act, hibernated)}, write: func(ctx context.Context) error {
		writer := actuate.Scales{Client: u.Client, Acts: logr.Discard()}
		return writer.Apply(ctx, actuate.ScaleChange{Config: config, Namespace: o.Key.Namespace, Act: act}, actuate.AdmittedProber{})
	}}
	if act.Step == probe.StepScaleUp {
		w.again = u.policies.scalesAgain(config)
	}
	return w, nil
}

// hibernated says whether a namespace asks that nothing be scaled up in it.
func (u *Undoer) hibernated(ctx context.Context, namespace string, o probe.Object) (bool, error) {
	if o.Record == nil {
		return false, nil
	}
	var ns corev1.Namespace
	if err := u.Client.Get(ctx, types.NamespacedName{Name: namespace}, &ns); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	value, annotated := ns.Annotations[v1alpha1.AnnotationHibernated]
	return annotated && value != "false", nil
}

// givenBack says what an act gives back, or why it doesn't.
func givenBack(act probe.Act, hibernated bool) string {
	r, o := act.Record, act.Object
	taken := fmt.Sprintf("which ProbeConfig %s took %s", r.Policy, r.Since.UTC().Format("2006-01-02T15:04:05Z"))
	switch {
	case act.Step == probe.StepScaleUp:
		return fmt.Sprintf("scaled from 0 to %s, %s", sample.Count(int(r.Replicas), "replica"), taken)
	case o.Copied:
		return "record removed, which is a copy of its owner's"
	case hibernated:
		return fmt.Sprintf("record of %s removed, %s; it stays at %d, since the namespace is hibernated", sample.Count(int(r.Replicas), "replica"), taken, o.Replicas)
	}
	return fmt.Sprintf("record removed; it stays at %s, as someone else scaled it", sample.Count(int(o.Replicas), "replica"))
}

// conditions plans to remove the conditions that a target's record claims.
func (u *Undoer) conditions(ctx context.Context, o Object) (work, error) {
	target := &unstructured.Unstructured{}
	target.SetGroupVersionKind(o.Kind)
	if err := u.Client.Get(ctx, o.Key, target); err != nil {
		return work{}, err
	}
	owned := health.Owned(target)
	if len(owned) == 0 {
		return work{}, nil
	}
	w := work{
		write: func(ctx context.Context) error { return u.removeConditions(ctx, target, owned) },
		again: u.policies.decidesAgain(o.Kind),
	}
	for _, t := range owned {
		switch {
		case health.Ours(target, t):
			w.steps = append(w.steps, "condition "+t+" removed")
		case health.Find(target, t) != nil:
			w.steps = append(w.steps, "record of condition "+t+" removed; the condition stays, since no health check wrote it")
		default:
			w.steps = append(w.steps, "record of condition "+t+" removed; the condition was gone already")
		}
	}
	return w, nil
}

func (u *Undoer) removeConditions(ctx context.Context, target *unstructured.Unstructured, owned []string) (err error) {
	writer := actuate.Conditions{Client: u.Client, Live: u.Client, Acts: logr.Discard()}
	for _, t := range owned {
		if condition := health.Find(target, t); !health.Ours(target, t) {
			target, err = writer.Unclaim(ctx, target, t)
		} else {
			target, err = writer.Apply(ctx, actuate.ConditionWrite{Target: target, Step: health.Step{Condition: *condition, Previous: condition.Status, Remove: true}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// decidesAgain says which registrations would write conditions on objects of a kind again.
func (p *policies) decidesAgain(kind schema.GroupVersionKind) (who []string) {
	for i := range p.registrations.Items {
		hcr := &p.registrations.Items[i]
		if isAbout(hcr, kind) && hcr.DeletionTimestamp == nil && hcr.Spec.Mode != v1alpha1.Observe {
			who = append(who, fmt.Sprintf("HealthCheckRegistration %s, where it selects it", hcr.Name))
		}
	}
	return who
}

// mayBeChecked says whether objects of a kind may have conditions of ours: it is named by a registration, or it isn't known
// what registrations there are.
func (p *policies) mayBeChecked(kind schema.GroupVersionKind) bool {
	return p.unread[&p.registrations] != "" || p.registrations.ResourceVersion == "" ||
		slices.ContainsFunc(p.registrations.Items, func(hcr v1alpha1.HealthCheckRegistration) bool { return isAbout(&hcr, kind) })
}

// isAbout says whether objects of a kind, in whatever version, are a registration's targets.
func isAbout(hcr *v1alpha1.HealthCheckRegistration, kind schema.GroupVersionKind) bool {
	gv, err := schema.ParseGroupVersion(hcr.Spec.Target.APIVersion)
	return err == nil && gv.WithKind(hcr.Spec.Target.Kind).GroupKind() == kind.GroupKind()
}

// checkedKinds are all kinds that may have conditions of ours: those with a status, but for the core ones, in one version each.
func checkedKinds(from discovery.DiscoveryInterface) ([]schema.GroupVersionKind, error) {
	kinds, err := KindsOf(from, func(gv schema.GroupVersion, r metav1.APIResource, all []metav1.APIResource) bool {
		return !isKubernetes(gv.Group) && gv.Group != v1alpha1.GroupVersion.Group && hasSub(r, all, "status")
	})
	if err != nil {
		err = errors.Join(errors.New("not all kinds can be looked at"), err)
	}
	return kinds, err
}

// isKubernetes says whether a group is served without CRDs. Conditions of its objects are never written: only a CRD tells how.
func isKubernetes(group string) bool {
	return scheme.Scheme.IsGroupRegistered(group) || group == "apiextensions.k8s.io" || group == "apiregistration.k8s.io"
}

// unlabel is how an EnvoyPatchPolicy is kept from being written: nothing on itself could, since it is deleted.
const unlabel = "take the label " + v1alpha1.LabelEnvoyPatches + " off its Gateway"

// patches plans to delete an EnvoyPatchPolicy of Autohealer's.
func (u *Undoer) patches(ctx context.Context, o Object) (work, error) {
	gateway, ours := outlier.PatchedGateway(o.Key)
	if !ours {
		return work{}, nil
	}
	hand := actuate.EnvoyPatches{Reader: u.Client, Live: u.Client, Writer: u.Client, Acts: logr.Discard()}
	stored, err := hand.Stored(ctx, gateway)
	if err != nil {
		return work{}, err
	}
	w := work{write: func(ctx context.Context) error {
		_, err := hand.Apply(ctx, actuate.GatewayPatches{Gateway: gateway, State: lifecycle.Active})
		return err
	}}
	var policies []string
	for _, patch := range stored {
		for _, p := range patch.For {
			policies = append(policies, p.Namespace+"/"+p.Name)
			if u.policies.patchesAgain(p) {
				w.again = append(w.again, "OutlierPolicy "+p.Namespace+"/"+p.Name)
			}
		}
	}
	slices.Sort(policies)
	w.steps = []string{fmt.Sprintf("deleted, which has Gateway %s detect outliers in %s, for OutlierPolicy %s",
		gateway.Name, sample.Count(len(stored), "cluster"), strings.Join(slices.Compact(policies), ", "))}
	return w, nil
}

// patchesAgain says whether a policy is there for which a Gateway was patched.
func (p *policies) patchesAgain(of outlier.PatchedFor) bool {
	return slices.ContainsFunc(p.outliers.Items, func(op v1alpha1.OutlierPolicy) bool { return op.UID == of.UID && op.DeletionTimestamp == nil })
}

// mayBePatched: some policy has something to undo, or it isn't known.
func (p *policies) mayBePatched() bool {
	return p.unread[&p.outliers] != "" || slices.ContainsFunc(p.outliers.Items, func(op v1alpha1.OutlierPolicy) bool {
		return slices.Contains(op.Finalizers, v1alpha1.FinalizerUndo)
	})
}

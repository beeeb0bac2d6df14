package undo

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

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
	case len(plan.Acts) == 0 && len(plan.Left) > 0:
		return work{}, errors.New(plan.Left[0].Message)
	case len(plan.Acts) == 0:
		return work{}, nil
	}
	act := plan.Acts[0] // there is one object
	w := work{steps: []string{givenBack(act, hibernated)}, write: func(ctx context.Context) error {
		writer := actuate.Scales{Client: u.Client, Acts: logr.Discard()}
		return writer.Apply(ctx, actuate.ScaleChange{Config: config, Namespace: o.Key.Namespace, Act: act}, actuate.AdmittedProber{})
	}}
	if act.Step == probe.Raise {
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

func replicas(n int32) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}

// givenBack says what an act gives back, or why it doesn't.
func givenBack(act probe.Act, hibernated bool) string {
	r, o := act.Record, act.Object
	taken := fmt.Sprintf("which ProbeConfig %s took %s", r.Policy, r.Since.UTC().Format("2006-01-02T15:04:05Z"))
	switch {
	case act.Step == probe.Raise:
		return fmt.Sprintf("scaled from 0 to %s, %s", replicas(r.Replicas), taken)
	case o.Copied:
		return "record removed, which is a copy of its owner's"
	case hibernated:
		return fmt.Sprintf("record of %s removed, %s; it stays at %d, since the namespace is hibernated", replicas(r.Replicas), taken, o.Replicas)
	}
	return fmt.Sprintf("record removed; it stays at %s, as someone else scaled it", replicas(o.Replicas))
}

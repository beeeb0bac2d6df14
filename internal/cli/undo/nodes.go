package undo

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/condition"
)

var nodeKind = schema.GroupVersionKind{Version: "v1", Kind: "Node"}

// node plans to take back the taints that a node's record claims.
func (u *Undoer) node(ctx context.Context, name string) (work, error) {
	var stored corev1.Node
	if err := u.Client.Get(ctx, types.NamespacedName{Name: name}, &stored); err != nil {
		return work{}, err
	}
	now := u.Clock.Now()
	node, at := condition.NewNode(&stored, nil, now), condition.Moment{Now: now, Server: now}
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

// nodesWithRecords are the nodes to which something was done, page by page.
func (u *Undoer) nodesWithRecords(ctx context.Context, found func(Object)) error {
	err := u.each(ctx, nodeKind, "", v1alpha1.AnnotationOwnedTaints, found)
	if err != nil {
		return errors.Join(errors.New("nodes aren't looked at"), err)
	}
	return nil
}

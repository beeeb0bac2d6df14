package undo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

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

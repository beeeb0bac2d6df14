package outlierpolicy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
	"github.com/resourcestack/autohealer/internal/policy"
)

// keeper writes policies' statuses. A policy has a finalizer while something may be patched for it in Gateways; what Envoys are served for
// it ends with it anyway.
type keeper struct {
	*Publisher
	Patches interface {
		PatchedFor(ctx context.Context, policy types.UID) ([]types.NamespacedName, error)
	}
	Events events.EventRecorder

	// reported are the ejections that Events were written for.
	remembered remembered
	notAsked   notAsked
}

func (k *keeper) steps() policy.Steps[*v1alpha1.OutlierPolicy] {
	return policy.Steps[*v1alpha1.OutlierPolicy]{
		New: func() *v1alpha1.OutlierPolicy { return &v1alpha1.OutlierPolicy{} }, Describe: k.describe, Left: k.left, Claimed: true, Gone: k.remembered.forget,
	}
}

// left are the EnvoyPatchPolicies that patch something for a deleted policy. Until Gateways are patched from a snapshot without it, more
// may follow.
func (k *keeper) left(ctx context.Context, op *v1alpha1.OutlierPolicy) (left policy.Left, err error) {
	k.mu.Lock()
	by := k.patched
	k.mu.Unlock()
	if by == nil || by.has(op) {
		return policy.Left{Unknown: true}, nil
	}
	names, err := k.Patches.PatchedFor(ctx, op.UID)
	for _, name := range names {
		left.Sample = append(left.Sample, name.String())
	}
	left.Targets, left.Unknown = len(names), err != nil
	return left, err
}

// describe builds the status, once this generation is translated.
func (k *keeper) describe(_ context.Context, op *v1alpha1.OutlierPolicy, left policy.Left) (is policy.Description[*v1alpha1.OutlierPolicy], err error) {
	if op.DeletionTimestamp != nil {
		return k.describeUndoing(op, left), nil
	}
	pic := k.picture()
	if pic == nil || !pic.tellsOf(op) {
		is.Skip = true
		return is, nil
	}
	is.After = op.DeepCopy()
	is.After.Status = statusOf(op, pic, k.Clusters, k.gatewaysOf(op))
	tell, waits := k.ejections(op, &is.After.Status, pic)
	if waits {
		is.Again = lookAgain
	}
	is.Stored = func(bool) { tell() }
	return is, nil
}

// describeUndoing builds the status of a deleted policy: what its finalizer waits for.
func (k *keeper) describeUndoing(op *v1alpha1.OutlierPolicy, left policy.Left) (is policy.Description[*v1alpha1.OutlierPolicy]) {
	j, ok := k.policies.Current(op)
	if is.Skip = !ok; is.Skip {
		return is
	}
	state := policy.Conditions{Acceptance: policy.AcceptanceOf(j.Verdict, j.Read.unreadable), Changes: "clusters", Deleting: true, Paused: j.Pause}
	if left.Targets > 0 {
		state.Undoing = fmt.Sprintf("It is deleted once EnvoyPatchPolicies patch nothing for it; %d still do, such as %s.", left.Targets, left.Sample[0])
		if trouble := k.troubleOf(left.Sample[0]); trouble != "" {
			state.Undoing += " " + trouble
		}
	}
	is.After = op.DeepCopy()
	state.Put(&is.After.Status.Conditions, op.Generation)
	return is
}

// gatewayAncestors returns the status of a policy for each Gateway.
func (p *Publisher) gatewaysOf(op *v1alpha1.OutlierPolicy) []v1alpha1.OutlierAncestorStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gateways.gatewaysOf(op)
}

// updateEjections writes ejections to a status, and returns the function that writes Events of what changed; pending: they aren't known
// yet.
func (k *keeper) ejections(op *v1alpha1.OutlierPolicy, after *v1alpha1.OutlierPolicyStatus, pic *picture) (tell func(), waits bool) {
	if k.Ejections == nil {
		noEjections(after)
		return func() {}, false
	}
	key := client.ObjectKeyFromObject(op)
	now := ejectedOf(pic.policies[key].clusters, envoysKnown{k.Ejections.View(), k.connected, k.soon})
	before := k.remembered.of(key, &op.Status)
	carried := carry(&now, before)
	now.put(op, after, pic.policies[key])
	switch {
	case now.waits:
		return func() {}, true
	case now.unknown.Reason != "":
		return func() { k.remembered.keep(key, nil) }, false
	}
	return func() {
		newsOf(&now, before).tell(k.Events, op, pic.service)
		k.remembered.keep(key, carried)
	}, false
}

// connected counts the Envoys that get a namespace's clusters.
func (k *keeper) connected(namespace string) (by map[string]int, known bool) {
	if k.Clusters == nil {
		return nil, true
	}
	known = k.Clusters.KnowsOthers() // read before the counts, which may only be newer
	return k.Clusters.Server.Connected(namespace), known
}

// recentlyUnasked says whether there have been Envoys that aren't polled for so short a time that they may not be ready yet: they connect
// before they are ready, and are polled once they are.
func (k *keeper) soon(namespace string, are bool) bool {
	return k.notAsked.since(namespace, are, k.Clock.Now()) < ejection.StaleAfter
}

// service returns the Service of a name in the snapshot; nil for none.
func (pic *picture) service(name types.NamespacedName) *corev1.Service {
	for _, svc := range pic.services[name.Namespace] {
		if svc.Name == name.Name {
			return svc
		}
	}
	return nil
}

// has says whether the snapshot has a policy, of any generation.
func (pic *picture) has(op *v1alpha1.OutlierPolicy) bool {
	s := pic.policies[client.ObjectKeyFromObject(op)]
	return s != nil && s.policy.UID == op.UID
}

// hasCurrent says whether the snapshot has a policy's current generation.
func (pic *picture) tellsOf(op *v1alpha1.OutlierPolicy) bool {
	return pic.has(op) && pic.policies[client.ObjectKeyFromObject(op)].generation == op.Generation
}

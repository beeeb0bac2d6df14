package outlierpolicy

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
	"github.com/resourcestack/autohealer/internal/kube"
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
	reported reportedEjections
	unpolled unpolled
}

func (k *keeper) steps() policy.Steps[*v1alpha1.OutlierPolicy] {
	return policy.Steps[*v1alpha1.OutlierPolicy]{
		New: func() *v1alpha1.OutlierPolicy { return &v1alpha1.OutlierPolicy{} }, Describe: k.describe, Remaining: k.patched, Gone: k.reported.forget,
		KeepsFinalizer: func(context.Context, *v1alpha1.OutlierPolicy) bool { return false }, // actuate.EnvoyPatches gives it
	}
}

// patched are the EnvoyPatchPolicies that patch something for a deleted policy. Until Gateways are patched from a snapshot without it, more
// may follow.
func (k *keeper) patched(ctx context.Context, op *v1alpha1.OutlierPolicy) (remaining policy.Remaining, err error) {
	k.mu.Lock()
	snap := k.patchedSnapshot
	k.mu.Unlock()
	if snap == nil || snap.has(op) {
		return policy.Remaining{Unknown: true}, nil
	}
	names, err := k.Patches.PatchedFor(ctx, op.UID)
	for _, name := range names {
		remaining.Sample = append(remaining.Sample, name.String())
	}
	remaining.Targets, remaining.Unknown = len(names), err != nil
	return remaining, err
}

// describe builds the status, once this generation is translated.
func (k *keeper) describe(_ context.Context, op *v1alpha1.OutlierPolicy, remaining policy.Remaining) (d policy.Description[*v1alpha1.OutlierPolicy], err error) {
	if op.DeletionTimestamp != nil {
		return k.describeUndoing(op, remaining), nil
	}
	snap := k.snapshot()
	if snap == nil || !snap.hasCurrent(op) {
		d.Skip = true
		return d, nil
	}
	d.After = op.DeepCopy()
	d.After.Status = statusOf(op, snap, k.Clusters, k.gatewayAncestors(op))
	emit, pending := k.updateEjections(op, &d.After.Status, snap)
	if pending {
		d.RequeueAfter = retryAfter
	}
	d.Stored = func(bool) { emit() }
	return d, nil
}

// describeUndoing builds the status of a deleted policy: what its finalizer waits for.
func (k *keeper) describeUndoing(op *v1alpha1.OutlierPolicy, remaining policy.Remaining) (d policy.Description[*v1alpha1.OutlierPolicy]) {
	j, ok := k.policies.Current(op)
	if d.Skip = !ok; d.Skip {
		return d
	}
	state := policy.Conditions{Acceptance: policy.AcceptanceOf(j.Verdict, j.Read.unreadable), Changes: "clusters", Deleting: true, Paused: j.Pause}
	if remaining.Targets > 0 {
		state.Undoing = fmt.Sprintf("It is deleted once EnvoyPatchPolicies patch nothing for it; %d still do, such as %s.", remaining.Targets, remaining.Sample[0])
		if message := k.writeErrorOf(remaining.Sample[0]); message != "" {
			state.Undoing += " " + message
		}
	}
	d.After = op.DeepCopy()
	state.Apply(&d.After.Status.Conditions, op.Generation)
	return d
}

// gatewayAncestors returns the status of a policy for each Gateway.
func (p *Publisher) gatewayAncestors(op *v1alpha1.OutlierPolicy) []v1alpha1.OutlierAncestorStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gateways.ancestorsOf(op)
}

// updateEjections writes ejections to a status, and returns the function that writes Events of what changed; pending: they aren't known
// yet.
func (k *keeper) updateEjections(op *v1alpha1.OutlierPolicy, after *v1alpha1.OutlierPolicyStatus, snap *policySnapshot) (emit func(), pending bool) {
	if k.Ejections == nil {
		clearEjections(after)
		return func() {}, false
	}
	key := client.ObjectKeyFromObject(op)
	holds := snap.clustersOf(snap.policies[key].policy).holds
	now := observeEjections(holds, envoyObservations{k.Ejections.View(), k.connected, k.recentlyUnpolled})
	before := k.reported.get(key, &op.Status)
	reported := keepSince(&now, before)
	now.writeStatus(op, after, holds)
	switch {
	case now.pending:
		return func() {}, true
	case now.unknown.Reason != "":
		return func() { k.reported.set(key, nil) }, false
	}
	return func() {
		diffHosts(&now, before).emit(k.Events, op, snap.service)
		k.reported.set(key, reported)
	}, false
}

// connected counts the Envoys that get a namespace's clusters.
func (k *keeper) connected(namespace string) (by map[string]int, known bool) {
	if k.Clusters == nil {
		return nil, true
	}
	known = k.Clusters.OthersKnown() // read before the counts, which may only be newer
	return k.Clusters.Server.Connected(namespace), known
}

// recentlyUnpolled says whether there have been Envoys that aren't polled for so short a time that they may not be ready yet: they connect
// before they are ready, and are polled once they are.
func (k *keeper) recentlyUnpolled(namespace string, isUnpolled bool) bool {
	return k.unpolled.since(namespace, isUnpolled, k.Clock.Now()) < ejection.StaleAfter
}

// service returns the Service of a name in the snapshot; nil for none.
func (snap *policySnapshot) service(name types.NamespacedName) *corev1.Service {
	for _, svc := range snap.services[name.Namespace] {
		if svc.Name == name.Name {
			return svc
		}
	}
	return nil
}

// has says whether the snapshot has a policy, of any generation.
func (snap *policySnapshot) has(op *v1alpha1.OutlierPolicy) bool {
	s := snap.policies[client.ObjectKeyFromObject(op)]
	return s != nil && s.policy.UID == op.UID
}

// hasCurrent says whether the snapshot has a policy's current generation.
func (snap *policySnapshot) hasCurrent(op *v1alpha1.OutlierPolicy) bool {
	return snap.has(op) && snap.policies[client.ObjectKeyFromObject(op)].generation == op.Generation
}

// setSnapshot makes a snapshot the latest, and has statuses and Gateways updated from it.
func (p *Publisher) setSnapshot(snap *policySnapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest = snap
	for key, s := range snap.policies {
		if snap.covers(key.Namespace) || snap.index.IsGlobal(s.policy) {
			p.enqueue(key)
		}
	}
	p.patching.fire()
}

// reportAll has all statuses updated, since Envoys accepted or rejected clusters, or ejected hosts.
func (p *Publisher) reportAll(context.Context) (again time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enqueueAll()
	return 0
}

// enqueueAll needs mu.
func (p *Publisher) enqueueAll() {
	if p.latest == nil {
		return
	}
	for key := range p.latest.policies {
		p.enqueue(key)
	}
}

func (p *Publisher) enqueue(key types.NamespacedName) { p.policies.Statuses.Add(key, 0) }

// attachQueue attaches the leader's queue of statuses.
func (p *Publisher) attachQueue(q kube.Queue) {
	p.policies.Statuses.Attach(q)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enqueueAll()
}

// snapshot returns the latest; nil before the first.
func (p *Publisher) snapshot() *policySnapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest
}

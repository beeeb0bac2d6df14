package probeconfig

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/policy"
)

// statusKeeper keeps configs' finalizers and statuses. The acting is the TargetReconciler's.
type statusKeeper struct {
	*Observer
	Report *Reporter
	// Reader finds records.
	Reader *actuate.ScaleReader

	// recordsFoundFor has the names of configs whose records were looked for, with the UID that they had.
	recordsFoundFor sync.Map
}

func (k *statusKeeper) steps() policy.Steps[*v1alpha1.ProbeConfig] {
	return policy.Steps[*v1alpha1.ProbeConfig]{
		New: func() *v1alpha1.ProbeConfig { return &v1alpha1.ProbeConfig{} }, Describe: k.describe, Left: k.unrestored,
		Gone: func(config types.NamespacedName) {
			forgetStates(config)
			k.recordsFoundFor.Delete(config)
		},
	}
}

// unrestored are the namespaces where something is scaled down for a deleted config: as far as this process knows, and then by the records
// on all objects. The error is that these can't be read.
func (k *statusKeeper) unrestored(ctx context.Context, pc *v1alpha1.ProbeConfig) (left policy.Left, err error) {
	config, _ := k.policies.Get(client.ObjectKeyFromObject(pc))
	left.Sample = k.waitingNamespaces(config)
	left.Targets = len(left.Sample)
	left.Unknown = config.Object == nil || config.UID != pc.UID || config.Object.DeletionTimestamp == nil || !k.assignedToAll(config)
	if left.Unknown || left.Targets > 0 {
		return left, nil
	}
	if n, err := k.findRecords(ctx, config); n > 0 || err != nil {
		return policy.Left{Unknown: true}, err
	}
	for _, t := range k.targets.of(client.ObjectKeyFromObject(pc)) {
		k.Report.reportUnrestored(&t, k.Facts.Clock.Now())
	}
	return left, nil
}

// waitingNamespaces are the namespaces where something may still be scaled down for a deleted config.
func (k *statusKeeper) waitingNamespaces(config storedConfig) []string {
	if config.Object == nil {
		return nil
	}
	var waits []string
	for _, t := range k.targets.of(client.ObjectKeyFromObject(config.Object)) {
		if !t.Restored || config.Read.config != nil && t.Config != config.Read.config {
			waits = append(waits, t.Namespace)
		}
	}
	return waits
}

// describe gathers what the status tells, once this generation is judged and the rules are known by which it was.
func (k *statusKeeper) describe(ctx context.Context, pc *v1alpha1.ProbeConfig, left policy.Left) (is policy.Description[*v1alpha1.ProbeConfig], err error) {
	if pc.DeletionTimestamp == nil {
		err = k.findRecordsOnce(ctx, pc)
	}
	key := client.ObjectKeyFromObject(pc)
	config, ok := k.policies.Current(pc)
	if !ok {
		is.Skip = true
		return is, err
	}
	st := configState{
		storedConfig: config, synced: k.synced.Load(), recordsKnown: k.recordsFound(pc) && k.assignedToAll(config),
		writeError: k.policies.Troubles.Get(pc.UID), ownNamespace: k.OwnNamespace, restoring: left.Sample,
	}
	st.breaker, st.breakerOpen = k.fleet().Breaker()
	st.hasWitnesses = k.Witnesses.Any()
	for _, t := range k.targets.of(key) {
		nsState, _ := k.namespaceState(t.Namespace)
		st.recordsKnown = st.recordsKnown && len(t.Removed) == 0
		st.targets = append(st.targets, &targetView{Target: t, hibernated: nsState.hibernated})
	}
	is.After = pc.DeepCopy()
	is.After.Status = statusOf(pc, st)
	gaugeStates(key, is.After.Status)
	return is, err
}

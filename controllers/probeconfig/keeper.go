package probeconfig

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/probe"
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
		New: func() *v1alpha1.ProbeConfig { return &v1alpha1.ProbeConfig{} }, Describe: k.describe, Remaining: k.unrestored,
		Gone: func(config types.NamespacedName) {
			forgetStates(config)
			k.recordsFoundFor.Delete(config)
		},
	}
}

// unrestored are the namespaces where something is scaled down for a deleted config: as far as this process knows, and then by the records
// on all objects. The error is that these can't be read.
func (k *statusKeeper) unrestored(ctx context.Context, pc *v1alpha1.ProbeConfig) (remaining policy.Remaining, err error) {
	config, _ := k.policies.Get(client.ObjectKeyFromObject(pc))
	remaining.Sample = k.waitingNamespaces(config)
	remaining.Targets = len(remaining.Sample)
	remaining.Unknown = config.Object == nil || config.UID != pc.UID || config.Object.DeletionTimestamp == nil || !k.assignedToAll(config)
	if remaining.Unknown || remaining.Targets > 0 {
		return remaining, nil
	}
	if n, err := k.findRecords(ctx, config); n > 0 || err != nil {
		return policy.Remaining{Unknown: true}, err
	}
	for _, t := range k.targets.of(client.ObjectKeyFromObject(pc)) {
		k.Report.reportUnrestored(&t, k.Facts.Clock.Now())
	}
	return remaining, nil
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

// describe gathers what the status reports, once this generation is judged and the rules are known by which it was.
func (k *statusKeeper) describe(ctx context.Context, pc *v1alpha1.ProbeConfig, remaining policy.Remaining) (is policy.Description[*v1alpha1.ProbeConfig], err error) {
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
		writeError: k.policies.Errors.Get(pc.UID), ownNamespace: k.OwnNamespace, restoring: remaining.Sample,
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

// maxKinds bounds status.dependentKinds.
const maxKinds = 32

// findRecordsOnce finds, once in a process, what an earlier one scaled down for a config that the config doesn't name any more:
// it may have been changed while no manager ran. Later changes are seen when they happen.
func (k *statusKeeper) findRecordsOnce(ctx context.Context, pc *v1alpha1.ProbeConfig) error {
	if k.recordsFound(pc) {
		return nil
	}
	j, judged := k.policies.Get(client.ObjectKeyFromObject(pc))
	if !judged || j.UID != pc.UID || j.Read.config == nil || !k.assignedToAll(j) {
		return nil // what has to be given back is known only then, and this is called again
	}
	if _, err := k.findRecords(ctx, j); err != nil {
		return err
	}
	k.recordsFoundFor.Store(client.ObjectKeyFromObject(pc), pc.UID)
	return nil
}

func (k *statusKeeper) recordsFound(pc *v1alpha1.ProbeConfig) bool {
	uid, ok := k.recordsFoundFor.Load(client.ObjectKeyFromObject(pc))
	return ok && uid == pc.UID
}

// findRecords finds by the records on objects what is scaled down for a config, and has given back what it doesn't ask for. It
// says how many of them have to get something back.
func (k *statusKeeper) findRecords(ctx context.Context, config storedConfig) (n int, err error) {
	pc := config.Object
	named := policy.Ref{UID: pc.UID, NamespacedName: client.ObjectKeyFromObject(pc)}
	writeErr := "records of " + named.String()
	var all []actuate.Recorded
	for _, kind := range dependentKinds(pc, true) {
		found, err := k.listRecorded(ctx, pc, schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
		if err != nil {
			k.policies.Errors.RecordFailure(writeErr, err, named)
			return 0, err
		}
		all = append(all, found...)
	}
	k.policies.Errors.Clear(writeErr)
	c := config.Read.config
	if c == nil { // where it acts isn't known, so what names it is trusted
		return k.adoptRecords(configWithoutSpec(pc), all), nil
	}
	return k.adoptRecords(c, k.trustedRecords(pc, all)), nil
}

// trustedRecords leaves out records that have a config's name alone, where it isn't known to act or to have acted. Anybody may know
// the name, and whoever writes it on an object of their own would hold the deletion of a config of others, and take a place
// under the cap. The UID is known to who may read the config, or what it scaled down.
func (o *Observer) trustedRecords(pc *v1alpha1.ProbeConfig, all []actuate.Recorded) []actuate.Recorded {
	known := o.knownNamespaces(pc)
	return slices.DeleteFunc(all, func(r actuate.Recorded) bool {
		return r.Record.Owner != pc.UID && !slices.Contains(known, r.Namespace)
	})
}

// listRecorded lists the objects of a kind that are scaled down where the config may have done it. Who runs Autohealer may let it
// list a kind in single namespaces only.
func (k *statusKeeper) listRecorded(ctx context.Context, pc *v1alpha1.ProbeConfig, kind schema.GroupVersionKind) ([]actuate.Recorded, error) {
	if pc.Namespace == k.OwnNamespace {
		all, err := k.Reader.Recorded(ctx, kind, "")
		if !apierrors.IsForbidden(err) {
			return all, err
		}
	}
	var all []actuate.Recorded
	for _, namespace := range k.knownNamespaces(pc) {
		found, err := k.Reader.Recorded(ctx, kind, namespace)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// knownNamespaces are the namespaces in which a config is known to act, or to have acted, but for those that end: there rights go first,
// and everything else with them.
func (o *Observer) knownNamespaces(pc *v1alpha1.ProbeConfig) []string {
	names := []string{pc.Namespace}
	for _, t := range o.targets.of(client.ObjectKeyFromObject(pc)) {
		names = append(names, t.Namespace)
	}
	for _, s := range pc.Status.Scaled {
		names = append(names, s.Namespace)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return !o.namespaceActive(name) })
}

// namespaceActive says whether a namespace is there and isn't being deleted.
func (o *Observer) namespaceActive(name string) bool {
	ns, exists := o.namespaceState(name)
	return exists && !ns.terminating
}

// adoptRecords has targets give back what they have a record of and the config doesn't ask for. It says how many objects are
// scaled down for the config and not left so, which is reported when it goes.
func (o *Observer) adoptRecords(c *probe.Config, all []actuate.Recorded) (n int) {
	o.assigning.Lock()
	defer o.assigning.Unlock()
	for _, found := range all {
		if !found.Record.Of(c) || !o.namespaceActive(found.Namespace) {
			continue
		}
		key := targetKey(c.Key(), found.Namespace)
		if o.targets.find(key) == nil {
			o.assign(key, c, true)
		}
		if target, _, _ := o.apply(key, probe.RecordFound{Ref: found.Ref}); !target.KeepsRecord(found.Ref) {
			n++
		}
	}
	return n
}

// configWithoutSpec is a config whose spec can't be read: it has no dependents, and gives back what it has taken.
func configWithoutSpec(pc *v1alpha1.ProbeConfig) *probe.Config {
	return &probe.Config{UID: pc.UID, Namespace: pc.Namespace, Name: pc.Name, Generation: pc.Generation, Thresholds: probe.Thresholds{Success: 1, Failure: 1}}
}

// dependentKinds are the kinds of which something may be scaled down for a config: those that it names, and with former also
// those that it named, as the status says.
func dependentKinds(pc *v1alpha1.ProbeConfig, previous bool) []v1alpha1.DependentKind {
	var kinds []v1alpha1.DependentKind
	if previous {
		kinds = slices.Clone(pc.Status.DependentKinds)
	}
	for _, d := range pc.Spec.DependentResourceInfos {
		kind := v1alpha1.DependentKind{APIVersion: d.Ref.APIVersion, Kind: d.Ref.Kind}
		if !slices.Contains(kinds, kind) && len(kinds) < maxKinds {
			kinds = append(kinds, kind)
		}
	}
	slices.SortFunc(kinds, func(a, b v1alpha1.DependentKind) int {
		return cmp.Or(strings.Compare(a.APIVersion, b.APIVersion), strings.Compare(a.Kind, b.Kind))
	})
	return kinds
}

// kindsInStatus says whether the stored status names the kinds of all that a plan takes: by them the next manager finds it.
func (o *Observer) kindsInStatus(c *probe.Config, plan probe.Plan) bool {
	j, ok := o.policies.Get(c.Key())
	return ok && !slices.ContainsFunc(plan.Acts, func(act probe.Act) bool {
		return !slices.Contains(j.Object.Status.DependentKinds, v1alpha1.DependentKind{APIVersion: act.Ref.APIVersion, Kind: act.Ref.Kind})
	})
}

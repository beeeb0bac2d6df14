package probe

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// SampleSize is how many names or entries a plan, a message source or a status carries at most.
const SampleSize = 20

// World is what a preview asks of a cluster.
type World interface {
	// Namespaces are the names of those that a selector selects, hibernated and ending ones left out, sorted.
	Namespaces(selector labels.Selector) []string
	// Target tells what a config would find in a namespace.
	Target(c *Config, namespace string) TargetFacts
	// Counts are of all targets that are probed now, and of those of them that are scaled down.
	Counts() (probed, scaledDown int)
}

// TargetFacts are what a config would find in a namespace.
type TargetFacts struct {
	Internal, External KubeconfigFacts
	// Dependents are the Config's, one for one.
	Dependents []DependentFacts
}

// KubeconfigFacts are what the Secret of a probe holds.
type KubeconfigFacts struct {
	// Missing: there is no such Secret, or it has no key kubeconfig.
	Missing bool
	// Unsafe says in our own words why it is never used: it can't be read, or asks for what is never done.
	Unsafe string
	// Server as host:port, in lower case and with the port written out.
	Server string
	// Service of the cluster that the server is, where it is one.
	Service types.NamespacedName
}

// DependentFacts are what is known of a dependent.
type DependentFacts struct {
	// Missing: there is no such object. Unscalable: its kind has no scale subresource, or there is no such kind.
	Missing, Unscalable bool
	Replicas            int32
	// Hold and Ignore are what its annotations ask for, where they were read.
	Hold   *hold.Hold
	Ignore bool
	// PodsUnknown: its scale doesn't tell which pods are its. Own: its pods run Autohealer.
	PodsUnknown, Own bool
	// BehindServices are the Services of its namespace that its pods are behind.
	BehindServices []string
	// Scalers are what else scales it, such as HorizontalPodAutoscaler/web.
	Scalers []string
	// Others are the ProbeConfigs, by namespace/name, that name it too.
	Others []string
}

// Preview is what a config would do if it were in force now. Counts are of all; samples are sorted and at most SampleSize.
type Preview struct {
	// UnreadableSpec says why the spec can't be read; then nothing else is known.
	UnreadableSpec string
	// Targets that it would probe.
	Targets int
	// Probed and ScaledDown count the targets of all configs as they are now; Limit is how many may be scaled down at once.
	Probed, ScaledDown, Limit int

	// WouldScaleDown are the dependents that would be scaled down if every outer side failed now and nothing held that back.
	WouldScaleDown      int
	WouldScaleDownNames []string

	// MissingSecrets and UnsafeKubeconfigs can't be used; SameServers are targets whose two kubeconfigs lead to one server.
	MissingSecrets        int
	MissingSecretNames    []string
	UnsafeKubeconfigs     int
	UnsafeKubeconfigNames []string
	SameServers           int
	SameServerNames       []string

	// BackingDependents are behind the very Service that is probed.
	BackingDependents     int
	BackingDependentNames []string
	// UnclearDependents may be: a Service of their namespace is probed, and nobody knows which pods are theirs.
	UnclearDependents     int
	UnclearDependentNames []string
	// OwnDependents run Autohealer.
	OwnDependents            int
	OwnDependentNames        []string
	UnscalableDependents     int
	UnscalableDependentNames []string
	// MissingDependents aren't there, and aren't optional.
	MissingDependents     int
	MissingDependentNames []string
	// AutoscaledDependents are scaled by something else, too; SharedDependents by another ProbeConfig, which may act.
	AutoscaledDependents     int
	AutoscaledDependentNames []string
	SharedDependents         int
	SharedDependentNames     []string
}

// PreviewOf tells what a ProbeConfig would do if it were in force now, in place of a stored one of its name.
func PreviewOf(pc *v1alpha1.ProbeConfig, ownNamespace string, limits limit.Limits, world World) Preview {
	c, err := NewConfig(pc, ownNamespace)
	if err != nil {
		return Preview{UnreadableSpec: err.Error()}
	}
	namespaces := []string{c.Namespace}
	if c.Namespaces != nil {
		namespaces = world.Namespaces(c.Namespaces)
	}
	v := viewer{config: c}
	for _, namespace := range namespaces {
		v.view(namespace, world.Target(c, namespace))
	}
	p := v.preview()
	p.Targets = len(namespaces)
	p.Probed, p.ScaledDown = world.Counts()
	p.Limit = limits.ScaledDownTargets(max(p.Probed, p.Targets))
	return p
}

// viewer gathers what a config would do.
type viewer struct {
	config                                                          *Config
	down, missingSecrets, unsafe, same                              sample
	backing, unscalable, missingDependents, autoscaled, sharedNames sample
	unclear, own                                                    sample
}

// sample counts names and keeps the first.
type sample struct {
	count int
	first []string
}

func (s *sample) add(name string) {
	s.count++
	i, _ := slices.BinarySearchFunc(s.first, name, cmp.Compare[string])
	s.first = slices.Insert(s.first, i, name)
	s.first = s.first[:min(len(s.first), SampleSize)]
}

func (v *viewer) view(namespace string, facts TargetFacts) {
	for _, k := range []struct {
		secret string
		KubeconfigFacts
	}{{v.config.InternalSecret, facts.Internal}, {v.config.ExternalSecret, facts.External}} {
		switch name := namespace + "/" + k.secret; {
		case k.Missing:
			v.missingSecrets.add(name)
		case k.Unsafe != "":
			v.unsafe.add(name + " (" + k.Unsafe + ")")
		}
	}
	if server := facts.Internal.Server; server != "" && server == facts.External.Server {
		v.same.add(namespace + " (" + server + ")")
	}
	for i, d := range facts.Dependents {
		v.viewDependent(namespace, i, d, facts)
	}
}

func (v *viewer) viewDependent(namespace string, i int, d DependentFacts, facts TargetFacts) {
	dependent := v.config.Dependents[i]
	name := namespace + "/" + dependent.Ref.String()
	switch {
	case d.Unscalable:
		v.unscalable.add(name)
		return
	case d.Missing && !dependent.Optional:
		v.missingDependents.add(name)
	case d.Replicas > 0:
		v.down.add(name)
	}
	v.viewVital(namespace, name, d, facts)
	for _, scaler := range d.Scalers {
		v.autoscaled.add(name + " (" + scaler + ")")
	}
	for _, other := range d.Others {
		if other != v.config.Key().String() {
			v.sharedNames.add(name + " (" + other + ")")
		}
	}
}

// viewVital looks whether a dependent is what is probed, or Autohealer.
func (v *viewer) viewVital(namespace, name string, d DependentFacts, facts TargetFacts) {
	if probed := facts.probedService(namespace, d.BehindServices); probed != "" {
		v.backing.add(name + " (" + probed + ")")
	}
	if d.PodsUnknown && (facts.Internal.Service.Namespace == namespace || facts.External.Service.Namespace == namespace) {
		v.unclear.add(name)
	}
	if d.Own {
		v.own.add(name)
	}
}

// probedService is the first of these Services that one of the probes leads to, "" for none.
func (t TargetFacts) probedService(namespace string, services []string) string {
	for _, k := range []KubeconfigFacts{t.Internal, t.External} {
		if k.Service.Namespace == namespace && slices.Contains(services, k.Service.Name) {
			return k.Service.Name
		}
	}
	return ""
}

func (v *viewer) preview() Preview {
	return Preview{
		WouldScaleDown: v.down.count, WouldScaleDownNames: v.down.first,
		MissingSecrets: v.missingSecrets.count, MissingSecretNames: v.missingSecrets.first,
		UnsafeKubeconfigs: v.unsafe.count, UnsafeKubeconfigNames: v.unsafe.first,
		SameServers: v.same.count, SameServerNames: v.same.first,
		BackingDependents: v.backing.count, BackingDependentNames: v.backing.first,
		UnclearDependents: v.unclear.count, UnclearDependentNames: v.unclear.first,
		OwnDependents: v.own.count, OwnDependentNames: v.own.first,
		UnscalableDependents: v.unscalable.count, UnscalableDependentNames: v.unscalable.first,
		MissingDependents: v.missingDependents.count, MissingDependentNames: v.missingDependents.first,
		AutoscaledDependents: v.autoscaled.count, AutoscaledDependentNames: v.autoscaled.first,
		SharedDependents: v.sharedNames.count, SharedDependentNames: v.sharedNames.first,
	}
}

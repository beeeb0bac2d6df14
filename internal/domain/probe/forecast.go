package probe

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// MaxProvenKubeconfigs is how many kubeconfigs a status reports as proven; of the rest the manager alone knows whether they have worked.
const MaxProvenKubeconfigs = 1000

// ClusterState is what a forecast is made of.
type ClusterState struct {
	// Namespaces that the config is for, hibernated and ending ones left out, sorted.
	Namespaces []string
	// Targets are what the config would find in those of them that were looked at.
	Targets map[string]TargetFacts
	// Probed and ScaledDown count the targets of all configs that are so now.
	Probed, ScaledDown int
	// Now is when the forecast is made.
	Now time.Time
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
	// Expires is when it stops working by itself, zero for never, and ExpiresFor says what of it ends then.
	Expires    time.Time
	ExpiresFor string
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
	// Pods selects its pods, as its scale says; "" when that doesn't tell. Own: they run Autohealer.
	Pods string
	Own  bool
	// ProbedService of its namespace that its pods are behind and that a probe leads to; "" for none.
	ProbedService string
	// Scalers are what else scales it, such as HorizontalPodAutoscaler/web.
	Scalers []string
	// Others are the ProbeConfigs, by namespace/name, that name it too.
	Others []string
}

// Forecast is what a config would do if it were in force now. Counts are of all; samples are sorted and at most sample.Size.
// Rules read all but Items.
type Forecast struct {
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
	// ExpiredKubeconfigs may be used, and can't work.
	ExpiredKubeconfigs     int
	ExpiredKubeconfigNames []string
	SameServers            int
	SameServerNames        []string

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

	// Items tell people step by step what would be scaled. Reviews don't ask for them.
	Items Items
}

// ForecastOf tells what a config would do if it were in force now, in place of a stored one of its name; with items where ahead
// isn't nil.
func ForecastOf(c *Config, limits limit.Limits, cluster ClusterState, ahead *Simulation) Forecast {
	f := Forecast{Targets: len(cluster.Namespaces), Probed: cluster.Probed, ScaledDown: cluster.ScaledDown}
	f.Limit = limits.ScaledDownTargets(max(f.Probed, f.Targets))
	for _, namespace := range cluster.Namespaces {
		facts := cluster.Targets[namespace]
		f.count(c, namespace, facts, cluster.Now)
		if ahead != nil && len(facts.Dependents) == len(c.Dependents) {
			f.Items.Targets = append(f.Items.Targets, ahead.target(c, namespace, facts.Dependents))
		}
	}
	if ahead != nil {
		f.Items.Restores = ahead.restores(c, cluster.Namespaces)
	}
	return f
}

// count takes in what was found in a target.
func (f *Forecast) count(c *Config, namespace string, facts TargetFacts, now time.Time) {
	for _, k := range []struct {
		secret string
		KubeconfigFacts
	}{{c.InternalSecret, facts.Internal}, {c.ExternalSecret, facts.External}} {
		switch {
		case k.Missing:
			sample.Add(&f.MissingSecrets, &f.MissingSecretNames, namespace, "/", k.secret)
		case k.Unsafe != "":
			sample.Add(&f.UnsafeKubeconfigs, &f.UnsafeKubeconfigNames, namespace, "/", k.secret, " (", k.Unsafe, ")")
		case !k.Expires.IsZero() && now.After(k.Expires):
			sample.Add(&f.ExpiredKubeconfigs, &f.ExpiredKubeconfigNames, namespace, "/", k.secret, " (its ", k.ExpiresFor, " expired at ", k.Expires.UTC().Format(time.RFC3339), ")")
		}
	}
	if server := facts.Internal.Server; server != "" && server == facts.External.Server {
		sample.Add(&f.SameServers, &f.SameServerNames, namespace, " (", server, ")")
	}
	for i, d := range facts.Dependents {
		f.countDependent(c, namespace, c.Dependents[i], d, facts)
	}
}

func (f *Forecast) countDependent(c *Config, namespace string, dependent Dependent, d DependentFacts, facts TargetFacts) {
	name := namespace + "/" + dependent.Ref.String()
	switch {
	case d.Unscalable:
		sample.Add(&f.UnscalableDependents, &f.UnscalableDependentNames, name)
		return
	case d.Missing && !dependent.Optional:
		sample.Add(&f.MissingDependents, &f.MissingDependentNames, name)
	case d.Replicas > 0:
		sample.Add(&f.WouldScaleDown, &f.WouldScaleDownNames, name)
	}
	f.countProtected(namespace, name, d, facts)
	for _, scaler := range d.Scalers {
		sample.Add(&f.AutoscaledDependents, &f.AutoscaledDependentNames, name, " (", scaler, ")")
	}
	for _, other := range d.Others {
		if other != c.Key().String() {
			sample.Add(&f.SharedDependents, &f.SharedDependentNames, name, " (", other, ")")
		}
	}
}

// countProtected looks whether a dependent is what is probed, or Autohealer.
func (f *Forecast) countProtected(namespace, name string, d DependentFacts, facts TargetFacts) {
	if d.ProbedService != "" {
		sample.Add(&f.BackingDependents, &f.BackingDependentNames, name, " (", d.ProbedService, ")")
	}
	if !d.Missing && d.Pods == "" && (facts.Internal.Service.Namespace == namespace || facts.External.Service.Namespace == namespace) {
		sample.Add(&f.UnclearDependents, &f.UnclearDependentNames, name)
	}
	if d.Own {
		sample.Add(&f.OwnDependents, &f.OwnDependentNames, name)
	}
}

// Items are what a config would do once the outer side of its targets failed, and once it recovered: what the planner that
// the manager asks says step by step, if each object takes its replicas at once.
type Items struct {
	// Targets that were looked at.
	Targets []TargetForecast
	// Restores are the objects that a stored config of its name scaled down, and that this one would scale up at once,
	// healthy or not. No more are known than its status says.
	Restores []v1alpha1.ScaledDependent
}

// TargetForecast is what would become of one target.
type TargetForecast struct {
	Namespace string `json:"namespace"`
	// Down and Up in their order.
	Down []LevelForecast `json:"down"`
	Up   []LevelForecast `json:"up"`
	// Findings say what would not be scaled, and why.
	Findings []Finding `json:"not"`
}

// LevelForecast is what is scaled together.
type LevelForecast struct {
	Level   int      `json:"level"`
	Changes []Change `json:"changes"`
}

// Change of the replicas that are asked for.
type Change struct {
	Ref
	From int32 `json:"from"`
	To   int32 `json:"to"`
}

// Simulation is from where a forecast looks ahead.
type Simulation struct {
	Now time.Time
	// Scaled are the objects that a stored config of its name scaled down, as its status says.
	Scaled []v1alpha1.ScaledDependent
}

func (a *Simulation) restores(c *Config, namespaces []string) []v1alpha1.ScaledDependent {
	return slices.DeleteFunc(slices.Clone(a.Scaled), func(s v1alpha1.ScaledDependent) bool {
		names := slices.ContainsFunc(c.Dependents, func(d Dependent) bool { return d.Ref == Ref(s.Ref) })
		return !c.Observe && names && slices.Contains(namespaces, s.Namespace)
	})
}

func (a *Simulation) target(c *Config, namespace string, facts []DependentFacts) TargetForecast {
	in := Scaling{Config: c, Want: Down, Now: a.Now}
	for i, f := range facts {
		o := Object{Missing: f.Missing, Unscalable: f.Unscalable, Replicas: f.Replicas, Current: f.Replicas, Hold: f.Hold, Ignore: f.Ignore}
		for _, s := range a.Scaled {
			if s.Namespace == namespace && Ref(s.Ref) == c.Dependents[i].Ref {
				o.Record = &Record{Replicas: s.PreviousReplicas, Owner: c.UID, Policy: c.Key().String(), Since: s.Since}
			}
		}
		in.Objects = append(in.Objects, o)
	}
	in.ProtectionSince = ProtectionStart(c, in.Objects, Protection{}, a.Now)
	t := TargetForecast{Namespace: namespace}
	t.Down, t.Findings = in.simulate()
	in.Want, in.Flow = Up, Flow{}
	t.Up, _ = in.simulate()
	return t
}

// simulate goes through a flow to its end, as if each write were carried out at once. It leaves the objects as they are then.
func (in *Scaling) simulate() (levels []LevelForecast, findings []Finding) {
	levels = []LevelForecast{}
	for {
		plan := PlanScaling(*in)
		in.Flow, findings = plan.Flow, append([]Finding{}, plan.Findings...)
		switch {
		case len(plan.Acts) > 0:
			if n := len(levels); n == 0 || levels[n-1].Level != plan.Flow.Level {
				levels = append(levels, LevelForecast{Level: plan.Flow.Level})
			}
			last := &levels[len(levels)-1]
			for _, act := range plan.Acts {
				last.Changes = append(last.Changes, in.apply(act))
			}
		case plan.Done || !plan.RequeueAt.After(in.Now):
			return levels, findings
		default: // an object's initial delay
			in.Now = plan.RequeueAt
		}
	}
}

// apply does to the objects what an act does.
func (in *Scaling) apply(act Act) Change {
	i := slices.IndexFunc(in.Config.Dependents, func(d Dependent) bool { return d.Ref == act.Ref })
	o := &in.Objects[i]
	change := Change{Ref: act.Ref, From: o.Replicas}
	switch act.Step {
	case StepScaleDown, StepScaleDownAgain:
		o.Record, o.Replicas = act.Record, 0
	case StepScaleUp:
		o.Record, o.Replicas = nil, act.Record.Replicas
	default:
		o.Record = nil
	}
	o.Current, change.To = o.Replicas, o.Replicas
	return change
}

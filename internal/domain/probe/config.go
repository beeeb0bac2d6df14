package probe

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/docs"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// Defaults of a spec, applied in memory and never stored. The thresholds' are dependency-watchdog's.
const (
	defaultInterval         = 10 * time.Second
	defaultInitialDelay     = 30 * time.Second
	defaultTimeout          = 5 * time.Second
	defaultSuccessThreshold = 1
	defaultFailureThreshold = 3
	defaultBackoff          = 30 * time.Second
	defaultJitter           = 0.2
	defaultScaleTimeout     = 30 * time.Second
	defaultFailureFraction  = 0.6
	defaultGrace            = 50 * time.Second
	defaultMinCandidates    = 2
	defaultMaxProtection    = time.Hour // who is on call was notified at its beginning
	defaultAccount          = "default"
)

// Config is a ProbeConfig made ready: defaults filled in, texts parsed.
type Config struct {
	UID             types.UID
	Namespace, Name string
	Generation      int64

	// Timings say for how long a target settles. The zero value is production's.
	Timings timing.Timings

	InternalSecret, ExternalSecret           string
	Interval, InitialDelay, Timeout, Backoff time.Duration
	Thresholds                               Thresholds
	// Jitter is the largest share that an interval or a back-off is made longer by.
	Jitter     float64
	Dependents []Dependent
	// Namespaces selects the targets; nil: the config's own namespace is the only one.
	Namespaces labels.Selector
	// Leases is nil when leases aren't looked at.
	Leases  *LeaseSettings
	Observe bool
	// MeltdownProtection: what is scaled down has Gardener's annotation, too.
	MeltdownProtection bool
	// Account is the ServiceAccount whose rights are asked for outside Autohealer's own namespace.
	Account string
}

// Thresholds are how many results in a row make a probe healthy or unhealthy; both at least 1.
type Thresholds struct {
	Success, Failure int
	// RunPeriod is how long it may be between two runs as the config has it. So far apart they are in a row all the same.
	RunPeriod time.Duration
}

// Dependent is an object that is scaled, with its place in the order.
type Dependent struct {
	Ref                Ref
	Optional           bool
	ScaleUp, ScaleDown ScaleParameters
}

// Ref names an object of a target's namespace.
type Ref struct {
	APIVersion string `json:"-"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// String is Kind/name.
func (r Ref) String() string { return r.Kind + "/" + r.Name }

// GroupVersionKind of the object.
func (r Ref) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
}

// ScaleParameters is when an object is scaled: its level, the delay from the level's start, and how long it may then take.
type ScaleParameters struct {
	Level          int
	Delay, Timeout time.Duration
}

// NewConfig reads a ProbeConfig. Its error names the field that can't be read; the CRD's schema refuses most such values.
// OwnNamespace is Autohealer's, the only one in which namespaceSelector may be used; "" when it isn't known.
func NewConfig(pc *v1alpha1.ProbeConfig, ownNamespace string) (*Config, error) {
	spec, r := &pc.Spec, &reader{}
	c := &Config{
		UID: pc.UID, Namespace: pc.Namespace, Name: pc.Name, Generation: pc.Generation,
		InternalSecret: spec.InternalKubeConfigSecretName, ExternalSecret: spec.ExternalKubeConfigSecretName,
		Thresholds: Thresholds{Success: int(or(spec.SuccessThreshold, defaultSuccessThreshold)), Failure: int(or(spec.FailureThreshold, defaultFailureThreshold))},
		Jitter:     or(spec.BackoffJitterFactor, defaultJitter), Observe: spec.Mode == v1alpha1.Observe, Account: AccountOf(pc),
		MeltdownProtection: or(spec.AnnotateMeltdownProtection, false),
	}
	r.require(c.Thresholds.Success >= 1 && c.Thresholds.Failure >= 1, "spec.successThreshold and spec.failureThreshold: must be at least 1")
	r.require(c.Jitter >= 0 && c.Jitter <= 1, "spec.backoffJitterFactor: %v is not from 0 to 1", c.Jitter)
	c.Interval = r.duration("spec.probeInterval", spec.ProbeInterval, defaultInterval, time.Millisecond)
	c.InitialDelay = r.duration("spec.initialDelay", spec.InitialDelay, defaultInitialDelay, 0)
	c.Backoff = r.duration("spec.internalProbeFailureBackoffDuration", spec.InternalProbeFailureBackoffDuration, defaultBackoff, 0)
	c.Timeout = r.duration("spec.probeTimeout", spec.ProbeTimeout, min(defaultTimeout, c.Interval/2), time.Millisecond)
	c.Thresholds.RunPeriod = c.Interval + time.Duration(c.Jitter*float64(c.Interval)) + 2*c.Timeout
	c.Dependents = r.dependents(spec.DependentResourceInfos)
	c.Leases = r.leases(spec.NodeLeases)
	if spec.NamespaceSelector != nil {
		r.require(c.Namespace == ownNamespace, "spec.namespaceSelector: only in Autohealer's own namespace %q, since other namespaces' configs act for their own objects", ownNamespace)
		selector, err := spec.NamespaceSelector.AsSelector()
		r.require(err == nil, "spec.namespaceSelector: %w", err)
		c.Namespaces = selector
	}
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

// reader reads the fields of a spec. It keeps what it says of the first that can't be read.
type reader struct{ err error }

func (r *reader) require(holds bool, format string, args ...any) {
	if !holds && r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) duration(at string, text v1alpha1.Duration, fallback, least time.Duration) time.Duration {
	d, err := text.Or(fallback)
	r.require(err == nil && d >= least, "%s: %q is no duration of at least %s", at, text, least)
	return d
}

func (r *reader) dependents(infos []v1alpha1.DependentResourceInfo) (all []Dependent) {
	for i, d := range infos {
		at := fmt.Sprintf("spec.dependentResourceInfos[%d]", i)
		ref := Ref(d.Ref)
		_, err := schema.ParseGroupVersion(ref.APIVersion)
		r.require(err == nil && ref.APIVersion != "" && ref.Kind != "" && ref.Name != "", "%s.ref: needs apiVersion, kind and name of an object", at)
		r.require(d.ScaleUp != nil && d.ScaleDown != nil, "%s: scaleUp and scaleDown are both needed", at)
		all = append(all, Dependent{Ref: ref, Optional: or(d.Optional, false), ScaleUp: r.scaleParameters(at+".scaleUp", d.ScaleUp), ScaleDown: r.scaleParameters(at+".scaleDown", d.ScaleDown)})
	}
	r.require(len(all) > 0, "spec.dependentResourceInfos: at least one is needed")
	return all
}

func (r *reader) scaleParameters(at string, info *v1alpha1.ScaleInfo) ScaleParameters {
	if info == nil {
		return ScaleParameters{}
	}
	return ScaleParameters{
		Level: int(info.Level), Delay: r.duration(at+".initialDelay", info.InitialDelay, 0, 0),
		Timeout: r.duration(at+".timeout", info.Timeout, defaultScaleTimeout, time.Millisecond),
	}
}

func (r *reader) leases(spec *v1alpha1.NodeLeases) *LeaseSettings {
	if spec == nil {
		return nil
	}
	grace := r.duration("spec.nodeLeases.monitorGraceDuration", spec.MonitorGraceDuration, defaultGrace, time.Millisecond)
	t := &LeaseSettings{
		FailureFraction: or(spec.FailureFraction, defaultFailureFraction), Grace: grace, MinCandidates: int(or(spec.MinCandidates, defaultMinCandidates)),
		// Less than twice the grace, and most of the time would be over before leases are expired and trusted.
		MaxProtection: r.duration("spec.nodeLeases.maxProtectionDuration", spec.MaxProtectionDuration, max(defaultMaxProtection, 2*grace), 2*grace),
	}
	r.require(t.FailureFraction > 0 && t.FailureFraction <= 1, "spec.nodeLeases.failureFraction: %v is not more than 0 and at most 1", t.FailureFraction)
	return t
}

// Key names the config.
func (c *Config) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
}

// AccountOf is the ServiceAccount that a config acts for.
func AccountOf(pc *v1alpha1.ProbeConfig) string {
	if pc.Spec.ServiceAccountName != "" {
		return pc.Spec.ServiceAccountName
	}
	return defaultAccount
}

// or is a value, or what it is by default.
func or[T any](value *T, fallback T) T {
	if value == nil {
		return fallback
	}
	return *value
}

// HintTargetRole tells whoever Autohealer isn't let read or scale things for what to do.
const HintTargetRole = "bind the ClusterRole autohealer-probe-target to Autohealer's account there (" + docs.Base + "docs/concepts/probe-configs.md)"

// Terms are what a config says by itself, whatever the cluster is like.
type Terms struct {
	// Tenant: the config is outside Autohealer's own namespace, and acts with its account's rights.
	Tenant bool
	// OwnNamespace is Autohealer's, "" when it isn't known.
	OwnNamespace string
	// Account is the ServiceAccount, by its default where the spec names none.
	Account string
	// Scales are the dependents as the authorizer knows them: group/resource/name, such as apps/deployments/web. A resource
	// is the usual plural of its kind; for a kind with another one the account is asked for a right that nobody gives.
	Scales []string
	// Unreadable says why the spec can't be read.
	Unreadable string
}

// TermsOf reads a config's terms.
func TermsOf(pc *v1alpha1.ProbeConfig, ownNamespace string) Terms {
	t := Terms{Tenant: ownNamespace == "" || pc.Namespace != ownNamespace, OwnNamespace: ownNamespace, Account: AccountOf(pc)}
	for _, d := range pc.Spec.DependentResourceInfos {
		plural, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(d.Ref.APIVersion, d.Ref.Kind))
		t.Scales = append(t.Scales, plural.Group+"/"+plural.Resource+"/"+d.Ref.Name)
	}
	if _, err := NewConfig(pc, ownNamespace); err != nil {
		t.Unreadable = err.Error()
	}
	return t
}

package probe

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
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
	defaultMaxProtection    = time.Hour // who is on call was told at its beginning
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
	Leases  *LeaseTerms
	Observe bool
	// Meltdown: what is scaled down has Gardener's annotation, too.
	Meltdown bool
	// Account is the ServiceAccount whose rights are asked for outside Autohealer's own namespace.
	Account string
}

// Thresholds are how many results in a row make a probe healthy or unhealthy; both at least 1.
type Thresholds struct {
	Success, Failure int
	// Pause is how long it may be between two runs as the config has it. So far apart they are in a row all the same.
	Pause time.Duration
}

// Dependent is an object that is scaled, with its place in the order.
type Dependent struct {
	Ref      Ref
	Optional bool
	Up, Down Place
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

// Place is when an object is scaled: its level, the delay from the level's start, and how long it may then take.
type Place struct {
	Level          int
	Delay, Timeout time.Duration
}

// NewConfig reads a ProbeConfig. Its error names the field that can't be read; the CRD's schema refuses most such values.
// OwnNamespace is Autohealer's, the only one in which namespaceSelector may be used; "" when it isn't known.
func NewConfig(pc *v1alpha1.ProbeConfig, ownNamespace string) (*Config, error) {
	spec := &pc.Spec
	c := &Config{
		UID: pc.UID, Namespace: pc.Namespace, Name: pc.Name, Generation: pc.Generation,
		InternalSecret: spec.InternalKubeConfigSecretName, ExternalSecret: spec.ExternalKubeConfigSecretName,
		Thresholds: Thresholds{Success: intOr(spec.SuccessThreshold, defaultSuccessThreshold), Failure: intOr(spec.FailureThreshold, defaultFailureThreshold)},
		Jitter:     floatOr(spec.BackoffJitterFactor, defaultJitter), Observe: spec.Mode == v1alpha1.Observe, Account: AccountOf(pc),
		Meltdown: spec.AnnotateMeltdownProtection != nil && *spec.AnnotateMeltdownProtection,
	}
	if c.Thresholds.Success < 1 || c.Thresholds.Failure < 1 {
		return nil, fmt.Errorf("spec.successThreshold and spec.failureThreshold: must be at least 1")
	}
	if c.Jitter < 0 || c.Jitter > 1 {
		return nil, fmt.Errorf("spec.backoffJitterFactor: %v is not from 0 to 1", c.Jitter)
	}
	for _, read := range []func(*v1alpha1.ProbeConfigSpec) error{c.readDurations, c.readDependents, c.readLeases} {
		if err := read(spec); err != nil {
			return nil, err
		}
	}
	return c, c.readNamespaces(spec.NamespaceSelector, ownNamespace)
}

func (c *Config) readDurations(spec *v1alpha1.ProbeConfigSpec) error {
	var err error
	if c.Interval, err = duration("spec.probeInterval", spec.ProbeInterval, defaultInterval, time.Millisecond); err != nil {
		return err
	}
	if c.InitialDelay, err = duration("spec.initialDelay", spec.InitialDelay, defaultInitialDelay, 0); err != nil {
		return err
	}
	if c.Backoff, err = duration("spec.internalProbeFailureBackoffDuration", spec.InternalProbeFailureBackoffDuration, defaultBackoff, 0); err != nil {
		return err
	}
	c.Timeout, err = duration("spec.probeTimeout", spec.ProbeTimeout, min(defaultTimeout, c.Interval/2), time.Millisecond)
	c.Thresholds.Pause = c.Interval + time.Duration(c.Jitter*float64(c.Interval)) + 2*c.Timeout
	return err
}

func (c *Config) readDependents(spec *v1alpha1.ProbeConfigSpec) error {
	for i, d := range spec.DependentResourceInfos {
		at := fmt.Sprintf("spec.dependentResourceInfos[%d]", i)
		ref := Ref{APIVersion: d.Ref.APIVersion, Kind: d.Ref.Kind, Name: d.Ref.Name}
		if _, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || ref.APIVersion == "" || ref.Kind == "" || ref.Name == "" {
			return fmt.Errorf("%s.ref: needs apiVersion, kind and name of an object", at)
		}
		if d.ScaleUp == nil || d.ScaleDown == nil {
			return fmt.Errorf("%s: scaleUp and scaleDown are both needed", at)
		}
		up, err := readPlace(at+".scaleUp", d.ScaleUp)
		if err != nil {
			return err
		}
		down, err := readPlace(at+".scaleDown", d.ScaleDown)
		if err != nil {
			return err
		}
		c.Dependents = append(c.Dependents, Dependent{Ref: ref, Optional: d.Optional != nil && *d.Optional, Up: up, Down: down})
	}
	if len(c.Dependents) == 0 {
		return fmt.Errorf("spec.dependentResourceInfos: at least one is needed")
	}
	return nil
}

func readPlace(at string, info *v1alpha1.ScaleInfo) (p Place, err error) {
	p.Level = int(info.Level)
	if p.Delay, err = duration(at+".initialDelay", info.InitialDelay, 0, 0); err != nil {
		return p, err
	}
	p.Timeout, err = duration(at+".timeout", info.Timeout, defaultScaleTimeout, time.Millisecond)
	return p, err
}

func (c *Config) readLeases(spec *v1alpha1.ProbeConfigSpec) error {
	if spec.NodeLeases == nil {
		return nil
	}
	grace, err := duration("spec.nodeLeases.monitorGraceDuration", spec.NodeLeases.MonitorGraceDuration, defaultGrace, time.Millisecond)
	if err != nil {
		return err
	}
	c.Leases = &LeaseTerms{
		FailureFraction: floatOr(spec.NodeLeases.FailureFraction, defaultFailureFraction), Grace: grace,
		MinCandidates: intOr(spec.NodeLeases.MinCandidates, defaultMinCandidates),
	}
	// Less than twice the grace, and most of the time would be over before leases are expired and believed.
	c.Leases.MaxProtection, err = duration("spec.nodeLeases.maxProtectionDuration", spec.NodeLeases.MaxProtectionDuration, max(defaultMaxProtection, 2*grace), 2*grace)
	if err != nil {
		return err
	}
	if f := c.Leases.FailureFraction; f <= 0 || f > 1 {
		return fmt.Errorf("spec.nodeLeases.failureFraction: %v is not more than 0 and at most 1", f)
	}
	return nil
}

func (c *Config) readNamespaces(selector *v1alpha1.LabelSelector, ownNamespace string) error {
	if selector == nil {
		return nil
	}
	if c.Namespace != ownNamespace {
		return fmt.Errorf("spec.namespaceSelector: only in Autohealer's own namespace %q, since other namespaces' configs act for their own objects", ownNamespace)
	}
	compiled, err := selector.AsSelector()
	if err != nil {
		return fmt.Errorf("spec.namespaceSelector: %w", err)
	}
	c.Namespaces = compiled
	return nil
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

func duration(at string, text v1alpha1.Duration, fallback, least time.Duration) (time.Duration, error) {
	d, err := text.Or(fallback)
	if err != nil || d < least {
		return 0, fmt.Errorf("%s: %q is no duration of at least %s", at, text, least)
	}
	return d, nil
}

func intOr(value *int32, fallback int) int {
	if value == nil {
		return fallback
	}
	return int(*value)
}

func floatOr(value *float64, fallback float64) float64 {
	if value == nil {
		return fallback
	}
	return *value
}

// Package outlier translates OutlierPolicies into Envoy clusters and endpoints, and into patches for Envoy Gateway: an Index finds which
// policy holds for which cluster (Assign), EffectivePolicy says which stays in force in a pause or freeze, NewCluster and NewEndpoints
// make Envoy's messages, and ForecastOf says what a policy would do. It is pure: its inputs are Objects and PatchObjects.
//
// Of several policies for a cluster the most specific holds, and of equally specific ones the oldest:
//
//	cluster's default < namespace's default < route < Service < Service's port < route's backend
//
// Begin to read at Index.Assign.
package outlier

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// DefaultName is the name of a policy without targets.
const DefaultName = "default"

// Policy is a parsed OutlierPolicy.
type Policy struct {
	Namespace, Name string
	UID             types.UID
	Generation      int64
	// Created is zero for one that isn't stored yet, which counts as the newest.
	Created time.Time

	// Targets are empty for a default.
	Targets  []v1alpha1.OutlierTargetReference
	Disabled bool
	Settings Settings
	// Refused: the rules refuse it. It keeps its precedence, so that no less specific policy is in force instead, and detects nothing.
	Refused bool
	// Doubtful: the rules aren't evaluated yet for it. It keeps its precedence, and its clusters stay as they are.
	Doubtful bool
}

// NewPolicy parses an OutlierPolicy. Its error names the field that can't be parsed; the CRD's schema refuses such values.
func NewPolicy(op *v1alpha1.OutlierPolicy) (*Policy, error) {
	p := &Policy{
		Namespace: op.Namespace, Name: op.Name, UID: op.UID, Generation: op.Generation, Created: op.CreationTimestamp.Time,
		Targets: op.Spec.TargetRefs, Disabled: op.Spec.Disabled,
	}
	var err error
	p.Settings, err = newSettings(&op.Spec)
	return p, err
}

// Key is the policy's namespace and name.
func (p *Policy) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// IsDefault says whether the policy applies where no policy with a target does.
func (p *Policy) IsDefault() bool { return len(p.Targets) == 0 && p.Name == DefaultName }

// Detects says whether the policy has Envoy detect outliers.
func (p *Policy) Detects() bool { return p != nil && !p.Disabled && !p.Refused && !p.Doubtful }

// older orders policies by creation; of two of the same time by name.
func older(a, b *Policy) int {
	if a.Created.IsZero() != b.Created.IsZero() {
		return b.Created.Compare(a.Created)
	}
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Envoy's defaults.
const (
	defaultConsecutive      = 5
	defaultInterval         = 10 * time.Second
	defaultBaseEjectionTime = 30 * time.Second
	defaultMaxEjectionTime  = 300 * time.Second
	defaultEjectionPercent  = 10
)

// Settings are a spec's settings of detection. What the spec leaves out is nil, and has Envoy's default.
type Settings struct {
	ServerErrors                *uint32
	Interval, Base, Max, Jitter *time.Duration
	Split                       bool
	LocalOriginFailures         *uint32
	EjectionPercent             *uint32
	AlwaysEjectOneHost          bool
	PanicThreshold              uint32
	ConnectTimeout              *time.Duration
	Observe                     bool
}

func newSettings(spec *v1alpha1.OutlierPolicySpec) (s Settings, err error) {
	s.AlwaysEjectOneHost, s.Observe = true, spec.Mode == v1alpha1.Observe
	if spec.PanicThreshold != nil {
		s.PanicThreshold = uint32(*spec.PanicThreshold)
	}
	d := spec.OutlierDetection
	if d == nil {
		d = &v1alpha1.OutlierDetection{}
	}
	s.ServerErrors, s.LocalOriginFailures, s.EjectionPercent = unsigned(d.ConsecutiveServerErrors), unsigned(d.ConsecutiveLocalOriginFailure), unsigned(d.MaxEjectionPercent)
	s.Split = d.SplitExternalLocalOriginErrors != nil && *d.SplitExternalLocalOriginErrors
	s.AlwaysEjectOneHost = d.AlwaysEjectOneHost == nil || *d.AlwaysEjectOneHost
	for _, field := range []struct {
		name string
		text v1alpha1.EjectionTime
		into **time.Duration
	}{
		{"outlierDetection.interval", d.Interval, &s.Interval}, {"outlierDetection.baseEjectionTime", d.BaseEjectionTime, &s.Base},
		{"outlierDetection.maxEjectionTime", d.MaxEjectionTime, &s.Max}, {"outlierDetection.maxEjectionTimeJitter", d.MaxEjectionTimeJitter, &s.Jitter},
		{"connectTimeout", spec.ConnectTimeout, &s.ConnectTimeout},
	} {
		if field.text == "" {
			continue
		}
		read, err := time.ParseDuration(string(field.text))
		if err != nil {
			return s, fmt.Errorf("%s: %w", field.name, err)
		}
		*field.into = &read
	}
	return s, nil
}

func unsigned(n *int32) *uint32 {
	if n == nil {
		return nil
	}
	u := uint32(max(0, *n))
	return &u
}

func or[T any](value *T, fallback T) T {
	if value == nil {
		return fallback
	}
	return *value
}

// ServerErrorThreshold is how many consecutive 5xx eject a host; 0 for no number.
func (s *Settings) ServerErrorThreshold() uint32 { return or(s.ServerErrors, defaultConsecutive) }

// LocalOriginThreshold is how many consecutive locally originated failures eject a host; 0 for no number, and when they aren't counted
// separately.
func (s *Settings) LocalOriginThreshold() uint32 {
	if !s.Split {
		return 0
	}
	return or(s.LocalOriginFailures, defaultConsecutive)
}

// SweepInterval is the time between two sweeps.
func (s *Settings) SweepInterval() time.Duration { return or(s.Interval, defaultInterval) }

// BaseEjectionTime is how long a host is ejected for the first time.
func (s *Settings) BaseEjectionTime() time.Duration { return or(s.Base, defaultBaseEjectionTime) }

// MaxEjectionTime is the longest ejection, jitter apart.
func (s *Settings) MaxEjectionTime() time.Duration {
	return or(s.Max, max(defaultMaxEjectionTime, s.BaseEjectionTime()))
}

// MaxJitter is the longest random time that is added to an ejection.
func (s *Settings) MaxJitter() time.Duration { return or(s.Jitter, 0) }

// MaxEjectionPercent is the largest share of hosts that is ejected at once.
func (s *Settings) MaxEjectionPercent() uint32 { return or(s.EjectionPercent, defaultEjectionPercent) }

// Ejectable is how many of so many hosts Envoy ejects at once. It ejects one more only if the share stays within the maximum, so 10% of
// nine hosts is none; alwaysEjectOneHost makes that one.
func (s *Settings) Ejectable(hosts int) int {
	if s.Observe || hosts == 0 || s.ServerErrorThreshold() == 0 && s.LocalOriginThreshold() == 0 {
		return 0
	}
	n := hosts * int(min(100, s.MaxEjectionPercent())) / 100
	if s.AlwaysEjectOneHost {
		n = max(1, n)
	}
	return n
}

// EjectsEverything says whether all of so many hosts may be ejected at once, and no panic threshold keeps traffic on them.
func (s *Settings) EjectsEverything(hosts int) bool {
	return hosts > 0 && s.PanicThreshold == 0 && s.Ejectable(hosts) == hosts
}

// WithDefaults returns the settings as a spec with all fields set.
func (s *Settings) WithDefaults() v1alpha1.OutlierDetection {
	number := func(n uint32) *int32 { i := int32(n); return &i }
	text := func(d time.Duration) v1alpha1.EjectionTime { return v1alpha1.EjectionTime(d.String()) }
	split, always := s.Split, s.AlwaysEjectOneHost
	return v1alpha1.OutlierDetection{
		ConsecutiveServerErrors: number(s.ServerErrorThreshold()), Interval: text(s.SweepInterval()), BaseEjectionTime: text(s.BaseEjectionTime()),
		MaxEjectionTime: text(s.MaxEjectionTime()), SplitExternalLocalOriginErrors: &split,
		ConsecutiveLocalOriginFailure: number(or(s.LocalOriginFailures, defaultConsecutive)), MaxEjectionPercent: number(s.MaxEjectionPercent()),
		MaxEjectionTimeJitter: v1alpha1.EjectionTime(seconds(s.MaxJitter())), AlwaysEjectOneHost: &always,
	}
}

// seconds formats a duration without minutes and hours, which the field's pattern doesn't allow.
func seconds(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}

// EffectivePolicy returns the policy that is in force for a cluster in a lifecycle state, where wanted is the policy that holds and before
// was in force; nil is none. The cluster's endpoints are updated in any state.
func EffectivePolicy(state lifecycle.State, wanted, before *Policy) *Policy {
	switch {
	case state == lifecycle.Active || wanted.sameRevision(before):
		return wanted
	case state.IsFrozen():
		return before
	case !wanted.Detects():
		return wanted
	case before.Detects() && before.UID == wanted.UID: // it was changed since
		return before
	}
	return nil
}

// sameRevision says whether two policies are the same generation of one, or detect nothing.
func (p *Policy) sameRevision(other *Policy) bool {
	if !p.Detects() || !other.Detects() {
		return p.Detects() == other.Detects()
	}
	return p.UID == other.UID && p.Generation == other.Generation
}

// TriggerText says which errors eject a host.
func (s *Settings) TriggerText() string {
	switch errors, local := s.ServerErrorThreshold(), s.LocalOriginThreshold(); {
	case errors > 0 && local > 0:
		return fmt.Sprintf("%d consecutive 5xx, or %d consecutive failures of Envoy's own", errors, local)
	case local > 0:
		return fmt.Sprintf("%d consecutive failures of Envoy's own; 5xx don't count", local)
	case errors > 0 && s.Split:
		return fmt.Sprintf("%d consecutive 5xx; failures of Envoy's own don't count", errors)
	case errors > 0:
		return fmt.Sprintf("%d consecutive 5xx, failures of Envoy's own among them", errors)
	}
	return "every detector is off"
}

// DurationText says for how long a host is ejected.
func (s *Settings) DurationText() string {
	text := fmt.Sprintf("%s, each further time as much more, at most %s", s.BaseEjectionTime(), s.MaxEjectionTime())
	if s.MaxJitter() > 0 {
		text += fmt.Sprintf(", and up to %s by chance", s.MaxJitter())
	}
	return text + fmt.Sprintf("; it ends at the first sweep after, every %s", s.SweepInterval())
}

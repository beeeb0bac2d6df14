package weeder

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Defaults of a spec, applied in memory and never stored.
const (
	defaultWatchDuration = 5 * time.Minute
	longestWatch         = 30 * time.Minute
	defaultCooldown      = 10 * time.Second
	defaultMaxDeletions  = 100
	defaultMaxRepeats    = 3
	defaultAccount       = "default"
)

// Config is a WeederConfig made ready: defaults filled in, selectors compiled.
type Config struct {
	UID             types.UID
	Namespace, Name string
	Generation      int64
	Created         time.Time

	WatchDuration time.Duration
	// Services by name, with the selectors of their dependents.
	Services map[string][]labels.Selector
	// Namespaces selects those that the config holds in; nil: its own.
	Namespaces   labels.Selector
	AllReady     bool
	IncludeInit  bool
	Evict        bool
	MaxDeletions int
	MaxRepeats   int
	Cooldown     time.Duration
	Observe      bool
	// Account is the ServiceAccount whose rights are asked for outside Autohealer's own namespace.
	Account string

	// stored is the status that it came with, which isn't to be changed.
	stored v1alpha1.WeederConfigStatus
}

// NewConfig reads a WeederConfig. Its error names the field that can't be read; the CRD's schema refuses most such values.
// OwnNamespace is Autohealer's, the only one in which namespaceSelector may be used; "" when it isn't known. The Config shares
// the object's status.
func NewConfig(wc *v1alpha1.WeederConfig, ownNamespace string) (*Config, error) {
	spec := &wc.Spec
	c := &Config{
		UID: wc.UID, Namespace: wc.Namespace, Name: wc.Name, Generation: wc.Generation, Created: wc.CreationTimestamp.Time,
		Services: map[string][]labels.Selector{}, AllReady: spec.ReadyPolicy == v1alpha1.AllReady,
		IncludeInit: spec.IncludeInitContainers == nil || *spec.IncludeInitContainers,
		Evict:       spec.Deletion == v1alpha1.Evict, Observe: spec.Mode == v1alpha1.Observe,
		MaxDeletions: defaultMaxDeletions, MaxRepeats: defaultMaxRepeats, Account: accountOf(spec), stored: wc.Status,
	}
	if spec.MaxDeletionsPerWatch != nil {
		c.MaxDeletions = int(*spec.MaxDeletionsPerWatch)
	}
	if spec.MaxRepeatsPerOwner != nil {
		c.MaxRepeats = int(*spec.MaxRepeatsPerOwner)
	}
	if err := c.readServices(spec.ServicesAndDependantSelectors); err != nil {
		return nil, err
	}
	if err := c.readNamespaces(spec.NamespaceSelector, ownNamespace); err != nil {
		return nil, err
	}
	return c, c.readDurations(spec)
}

func accountOf(spec *v1alpha1.WeederConfigSpec) string {
	return cmp.Or(spec.ServiceAccountName, defaultAccount)
}

// WithStatus is the same config with another status, which it shares: most updates of a config change its status only, and
// compiling its selectors takes a hundred times longer.
func (c *Config) WithStatus(st v1alpha1.WeederConfigStatus) *Config {
	with := *c
	with.stored = st
	return &with
}

func (c *Config) readServices(services map[string]v1alpha1.DependantSelectors) error {
	if len(services) == 0 {
		return fmt.Errorf("spec.servicesAndDependantSelectors: at least one Service is needed")
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if len(services[name].PodSelectors) == 0 {
			return fmt.Errorf("spec.servicesAndDependantSelectors[%s].podSelectors: at least one is needed", name)
		}
		for i, s := range services[name].PodSelectors {
			at := fmt.Sprintf("spec.servicesAndDependantSelectors[%s].podSelectors[%d]", name, i)
			if s.Empty() {
				return fmt.Errorf("%s: an empty selector would select every pod", at)
			}
			selector, err := s.AsSelector()
			if err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
			c.Services[name] = append(c.Services[name], selector)
		}
	}
	return nil
}

func (c *Config) readNamespaces(selector *v1alpha1.LabelSelector, ownNamespace string) error {
	if selector == nil {
		return nil
	}
	if c.Namespace != ownNamespace {
		return fmt.Errorf("spec.namespaceSelector: only in Autohealer's own namespace %q, since other namespaces' configs act for their own pods", ownNamespace)
	}
	compiled, err := selector.AsSelector()
	if err != nil {
		return fmt.Errorf("spec.namespaceSelector: %w", err)
	}
	c.Namespaces = compiled
	return nil
}

func (c *Config) readDurations(spec *v1alpha1.WeederConfigSpec) error {
	var err error
	if c.WatchDuration, err = spec.WatchDuration.Or(defaultWatchDuration); err != nil || c.WatchDuration <= 0 || c.WatchDuration > longestWatch {
		return fmt.Errorf("spec.watchDuration: %q is no duration of at most %s", spec.WatchDuration, longestWatch)
	}
	if c.Cooldown, err = spec.Cooldown.Or(defaultCooldown); err != nil || c.Cooldown < 0 {
		return fmt.Errorf("spec.cooldown: %q is no duration", spec.Cooldown)
	}
	return nil
}

// Key names the config.
func (c *Config) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
}

// Selects says whether a pod depends on a Service of its namespace.
func (c *Config) Selects(service string, p *Pod) bool {
	for _, s := range c.Services[service] {
		if s.Matches(labels.Set(p.Labels)) {
			return true
		}
	}
	return false
}

// selectsAny says whether a pod depends on any of its Services.
func (c *Config) selectsAny(p *Pod) bool {
	for service := range c.Services {
		if c.Selects(service, p) {
			return true
		}
	}
	return false
}

// Terms are what a config says by itself, whatever the cluster is like.
type Terms struct {
	// Tenant: the config is outside Autohealer's own namespace, and acts with its account's rights.
	Tenant bool
	// OwnNamespace is Autohealer's, "" when it isn't known.
	OwnNamespace string
	// Account is the ServiceAccount, by its default where the spec names none.
	Account string
	// InvalidSelectors can't be read, ContradictorySelectors match no pod: where they are and why, up to sample.Size.
	InvalidSelectors       []string
	ContradictorySelectors []string
	// Unreadable says why the spec can't be read.
	Unreadable string
}

// TermsOf reads a config's terms.
func TermsOf(wc *v1alpha1.WeederConfig, ownNamespace string) Terms {
	t := Terms{Tenant: ownNamespace == "" || wc.Namespace != ownNamespace, OwnNamespace: ownNamespace, Account: accountOf(&wc.Spec)}
	for _, service := range slices.Sorted(maps.Keys(wc.Spec.ServicesAndDependantSelectors)) {
		for i, s := range wc.Spec.ServicesAndDependantSelectors[service].PodSelectors {
			t.checkSelector(fmt.Sprintf("podSelectors[%d] of %s", i, service), &s)
		}
	}
	if wc.Spec.NamespaceSelector != nil {
		t.checkSelector("namespaceSelector", wc.Spec.NamespaceSelector)
	}
	if _, err := NewConfig(wc, ownNamespace); err != nil {
		t.Unreadable = err.Error()
	}
	return t
}

func (t *Terms) checkSelector(where string, s *v1alpha1.LabelSelector) {
	selector, err := s.AsSelector()
	if err != nil {
		sample.Once(&t.InvalidSelectors, where+": "+strings.Join(strings.Fields(err.Error()), " "))
		return
	}
	if key := contradiction(selector); key != "" {
		sample.Once(&t.ContradictorySelectors, where+": "+key)
	}
}

// contradiction is the first key of which a selector asks what no object can have; "" when there is none.
func contradiction(selector labels.Selector) string {
	byKey := map[string]labels.Requirements{}
	all, _ := selector.Requirements()
	for _, r := range all {
		byKey[r.Key()] = append(byKey[r.Key()], r)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		one := labels.NewSelector().Add(byKey[key]...)
		has := func(value string) bool { return one.Matches(labels.Set{key: value}) }
		named := slices.ContainsFunc(byKey[key], func(r labels.Requirement) bool { return slices.ContainsFunc(r.ValuesUnsorted(), has) })
		if !named && !has(otherValue) && !one.Matches(labels.Set{}) {
			return key
		}
	}
	return ""
}

// otherValue stands for all values that a selector doesn't name: no label can have it.
const otherValue = "/"

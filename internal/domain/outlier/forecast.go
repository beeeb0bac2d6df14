package outlier

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Forecast is what a policy would do if it were in force now. Counts are of all; samples have at most sample.Size names, in the order of
// the clusters. The targets in it are those of the spec that have a problem; a default has none. Rules read all but Items.
type Forecast struct {
	// Unreadable says why the spec can't be read; then nothing else is known.
	Unreadable string
	// Clusters that the policy would hold for, and their ready Hosts.
	Clusters, Hosts int
	// EjectsEverything of them might lose all of their hosts at once.
	EjectsEverything      int
	EjectsEverythingNames []string
	// Inert of them have hosts, of which none can be ejected.
	Inert      int
	InertNames []string
	// Undetected of them are for TCP, where only locally originated errors happen, which the policy doesn't count.
	Undetected      int
	UndetectedNames []string
	// MissingTargets, EmptyTargets, ExternalTargets and Conflicts are targets that don't exist, have no ready endpoints, are of type
	// ExternalName, or have a policy already. OverTLSTargets are what routes send to over TLS.
	MissingTargets, EmptyTargets, ExternalTargets, OverTLSTargets, Conflicts []string
	// NotFollowed counts settings of the clusters' Services that Envoys don't follow.
	NotFollowed      int
	NotFollowedTexts []string
	// Ejected is how many hosts some Envoy has ejected now for the stored policy of this name.
	Ejected int
	// EjectionsUnknown: Envoys are polled for ejections, and those of the stored policy aren't known.
	EjectionsUnknown bool

	// Items are the same for each cluster, for the CLI's output.
	Items Items
}

// Items are the clusters of a policy, by their names.
type Items struct {
	// Clusters that it would hold for.
	Clusters []ClusterForecast `json:"clusters"`
	// Overridden are clusters of its targets for which another one holds.
	Overridden []ClusterForecast `json:"overridden"`
}

// ClusterForecast is a cluster and what could be done to it.
type ClusterForecast struct {
	Name string `json:"name"`
	// Policy that holds for it, and Level that it is for.
	Policy string `json:"policy"`
	Level  string `json:"level"`
	// Hosts that are ready. Ejectable is how many of them may be ejected at once. They are those of clusters that the policy would
	// hold for.
	Hosts     int `json:"hosts"`
	Ejectable int `json:"ejectable"`
	// EjectsEverything: all hosts may be ejected at once, and no panic threshold keeps traffic on them.
	EjectsEverything bool `json:"ejectsEverything"`
	// Inert: no host can be ejected, though there are hosts and the policy enforces.
	Inert bool `json:"-"`
	// Undetected: Envoy counts only errors that can't happen; over raw TCP there are only locally originated ones.
	Undetected bool `json:"-"`
}

// ForecastOf returns what a policy would do in place of a stored one of its name.
func ForecastOf(op *v1alpha1.OutlierPolicy, objects Objects, ownNamespace string) Forecast {
	p, err := NewPolicy(op)
	if err != nil {
		return Forecast{Unreadable: err.Error()}
	}
	f := &forecaster{policy: p, objects: objects, Forecast: Forecast{Items: Items{Clusters: []ClusterForecast{}, Overridden: []ClusterForecast{}}}}
	policies := []*Policy{p}
	for _, other := range objects.Policies {
		if other.Namespace == p.Namespace && other.Name == p.Name {
			p.Created, p.UID, f.Ejected = other.CreationTimestamp.Time, other.UID, int(or(other.Status.Ejected, 0))
			f.EjectionsUnknown = meta.IsStatusConditionTrue(other.Status.Conditions, v1alpha1.ConditionEjectionsUnknown)
			continue
		}
		if o, err := NewPolicy(other); err == nil && other.DeletionTimestamp == nil {
			policies = append(policies, o)
		}
	}
	f.index = NewIndex(policies, objects.Routes, ownNamespace)
	for _, svc := range objects.Services {
		f.service(svc)
	}
	for _, all := range [][]ClusterForecast{f.Items.Clusters, f.Items.Overridden} { // a cache has no order
		slices.SortFunc(all, func(a, b ClusterForecast) int { return strings.Compare(a.Name, b.Name) })
	}
	f.count()
	for _, ref := range p.Targets {
		f.target(ref)
	}
	f.Conflicts = f.Conflicts[:min(len(f.Conflicts), sample.Size)]
	return f.Forecast
}

// forecaster computes a forecast.
type forecaster struct {
	Forecast
	policy  *Policy
	objects Objects
	index   *Index
}

// service adds the clusters of a Service.
func (f *forecaster) service(svc *corev1.Service) {
	var notFollowed []string
	for _, a := range f.index.Assign(svc, nil) {
		c := ClusterForecast{Name: a.Key.String(), Level: a.Level.String()}
		switch {
		case a.Policy == f.policy:
			c.evaluate(a, len(HostsOf(svc, a.Port, f.objects.Slices[a.Key.Service])))
			f.Items.Clusters = append(f.Items.Clusters, c)
			notFollowed = append(notFollowed, a.NotFollowed()...)
		case slices.Contains(a.Overridden, f.policy):
			c.Policy = a.Policy.Key().String()
			f.Items.Overridden = append(f.Items.Overridden, c)
		}
	}
	slices.Sort(notFollowed)
	for _, text := range slices.Compact(notFollowed) { // of several clusters each once
		sample.Add(&f.NotFollowed, &f.NotFollowedTexts, text)
	}
}

// evaluate sets what the policy could do to a cluster with so many hosts.
func (c *ClusterForecast) evaluate(a *Assignment, hosts int) {
	c.Policy, c.Hosts = a.Policy.Key().String(), hosts
	if !a.Policy.Detects() {
		return
	}
	s := &a.Policy.Settings
	c.Ejectable, c.EjectsEverything = s.Ejectable(hosts), s.EjectsEverything(hosts)
	c.Inert = !s.Observe && hosts > 0 && c.Ejectable == 0
	c.Undetected = a.TCP && s.Split && s.LocalOriginThreshold() == 0
}

// count sums up the items.
func (f *Forecast) count() {
	f.Clusters = len(f.Items.Clusters)
	for _, c := range f.Items.Clusters {
		f.Hosts += c.Hosts
		hosts := fmt.Sprintf("%d hosts", c.Hosts)
		if c.Hosts == 1 {
			hosts = "1 host"
		}
		add := func(is bool, count *int, names *[]string) {
			if is {
				sample.Add(count, names, c.Name, " (", hosts, ")")
			}
		}
		add(c.EjectsEverything, &f.EjectsEverything, &f.EjectsEverythingNames)
		add(c.Inert, &f.Inert, &f.InertNames)
		add(c.Undetected, &f.Undetected, &f.UndetectedNames)
	}
}

// target adds the problems of a target.
func (f *forecaster) target(ref v1alpha1.OutlierTargetReference) {
	text := TargetText(ref)
	for _, other := range f.index.namespace(f.policy.Namespace).byTarget[keyOf(ref)] {
		if other != f.policy {
			f.Conflicts = append(f.Conflicts, fmt.Sprintf("%s: OutlierPolicy %s", text, other.Name))
		}
	}
	if over := f.index.OverTLS(f.policy.Namespace, ref, f.objects.Services); over != "" {
		f.OverTLSTargets = append(f.OverTLSTargets, fmt.Sprintf("%s to %s", text, over))
	}
	found := f.index.find(f.policy.Namespace, ref, f.objects.Services)
	switch {
	case len(found.Ports) == 0 && found.External:
		f.ExternalTargets = append(f.ExternalTargets, text)
	case len(found.Ports) == 0:
		f.MissingTargets = append(f.MissingTargets, found.missing(text))
	case !slices.ContainsFunc(found.Ports, f.ready):
		f.EmptyTargets = append(f.EmptyTargets, text)
	}
}

func (f *forecaster) ready(p servicePort) bool {
	return len(HostsOf(p.Service, p.Port, f.objects.Slices[types.NamespacedName{Namespace: p.Service.Namespace, Name: p.Service.Name}])) > 0
}

package probeconfig

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// namespaceState is what matters of one.
type namespaceState struct {
	labels                  map[string]string
	hibernated, terminating bool
	// resetBreaker is the breaker that someone reset; it counts on Autohealer's own namespace only.
	resetBreaker string
}

func readNamespace(ns *corev1.Namespace) namespaceState {
	value, annotated := ns.Annotations[v1alpha1.AnnotationHibernated]
	return namespaceState{labels: ns.Labels, hibernated: annotated && value != "false", terminating: ns.DeletionTimestamp != nil, resetBreaker: ns.Annotations[v1alpha1.AnnotationResetBreaker]}
}

func (o *Observer) namespaceSeen(ns *corev1.Namespace) {
	is := readNamespace(ns)
	o.mu.Lock()
	was, known := o.namespaces[ns.Name]
	o.namespaces[ns.Name] = is
	o.mu.Unlock()
	if ns.Name == o.OwnNamespace {
		o.resetBreaker(is.resetBreaker)
	}
	if !known || !maps.Equal(was.labels, is.labels) || was.hibernated != is.hibernated || was.terminating != is.terminating {
		o.namespaceChanged(ns.Name)
	}
}

func (o *Observer) namespaceGone(ns *corev1.Namespace) {
	o.mu.Lock()
	delete(o.namespaces, ns.Name)
	o.mu.Unlock()
	o.namespaceChanged(ns.Name)
}

// namespaceChanged looks anew at whose target a namespace is.
func (o *Observer) namespaceChanged(name string) {
	if !o.synced.Load() {
		return
	}
	o.assigning.Lock()
	defer o.assigning.Unlock()
	for _, config := range o.policies.Keys() {
		j, ok := o.policies.Get(config)
		if !ok || j.Read.config == nil {
			continue
		}
		key, selected := targetKey(config, name), o.selects(j.Read.config, name)
		if selected || o.targets.find(key) != nil {
			o.assign(key, j.Read.config, !selected)
			o.requestConfig(config)
		}
	}
}

// namespaceState is a namespace as it was seen last; ok is false when there is none of that name.
func (o *Observer) namespaceState(name string) (ns namespaceState, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ns, ok = o.namespaces[name]
	return ns, ok
}

// selects says whether a namespace is a target of a config.
func (o *Observer) selects(c *probe.Config, name string) bool {
	if c.Namespaces == nil {
		return name == c.Namespace
	}
	ns, ok := o.namespaceState(name)
	return ok && c.Namespaces.Matches(labels.Set(ns.labels))
}

// candidateNamespaces are the names of all namespaces that a config may select.
func (o *Observer) candidateNamespaces(c *probe.Config) []string {
	if c.Namespaces == nil {
		return []string{c.Namespace}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.namespaces))
}

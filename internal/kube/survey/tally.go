package survey

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// Counts are what ProbeConfigs' statuses add up to. A limit is a share of what configs in force probe.
type Counts struct{ Probed, ScaledDown int }

// CountsOf adds up configs.
func CountsOf(configs []v1alpha1.ProbeConfig) (sum Counts) {
	for i := range configs {
		pc := &configs[i]
		if pc.Status.Targets == nil {
			continue
		}
		sum.ScaledDown += int(pc.Status.Targets.ScaledDown)
		if pc.Spec.Mode != v1alpha1.Observe && !meta.IsStatusConditionFalse(pc.Status.Conditions, v1alpha1.ConditionAccepted) {
			sum.Probed += int(pc.Status.Targets.Probed)
		}
	}
	return sum
}

// counted are the counts after so many changes of ProbeConfigs.
type counted struct {
	Counts
	changes int64
}

// Counts over all configs. They are added up once after each change, and not for each review, where the watch of ProbeConfigs tells of changes.
func (i *Informers) Counts(ctx context.Context) (Counts, error) {
	changes := i.changes.Load()
	if last := i.counted.Load(); last != nil && last.changes == changes {
		return last.Counts, nil
	}
	configs, err := i.Configs(ctx, metav1.NamespaceAll)
	if err != nil {
		return Counts{}, err
	}
	sum := CountsOf(configs)
	if changes > 0 {
		i.counted.Store(&counted{sum, changes})
	}
	return sum, nil
}

// Protected says why an object must not be scaled down as things are now, "" for nothing: its pods are behind the Service that one
// of the servers is, each given as host:port, or they run Autohealer. Rules ask that when a config is written, of a part of a
// fan-out; this is for just before the act. The error is that it can't be found out.
func (s *Survey) Protected(ctx context.Context, namespace string, servers []string, ref probe.Ref) (why string, err error) {
	d, err := s.Objects.Dependent(ctx, namespace, ref)
	if err != nil {
		return "", err
	}
	pods, err := podsOf(d, namespace, ref)
	if err != nil || pods == nil {
		return "", err
	}
	switch own, err := s.runsAutohealer(ctx, namespace, pods); {
	case err != nil:
		return "", err
	case own:
		return "its pods run Autohealer itself", nil
	}
	for _, server := range servers {
		service, err := s.serviceOf(ctx, namespace, server)
		if err != nil {
			return "", err
		}
		if name := s.backed(namespace, pods, service); name != "" {
			return fmt.Sprintf("its pods are behind Service %s, which is probed", name), nil
		}
	}
	return "", nil
}

// podsOf selects the pods of a dependent; nil where its scale doesn't tell them.
func podsOf(d probe.DependentFacts, namespace string, ref probe.Ref) (labels.Selector, error) {
	if d.Pods == "" {
		return nil, nil
	}
	pods, err := labels.Parse(d.Pods)
	if err != nil {
		return nil, fmt.Errorf("read the selector of %s in namespace %s: %w", ref, namespace, err)
	}
	return pods, nil
}

// backed is the name of the first of these Services that is in the namespace and that the pods are behind, "" for none.
func (s *Survey) backed(namespace string, pods labels.Selector, services ...types.NamespacedName) string {
	for _, service := range services {
		if service.Namespace == namespace && s.Cluster.Backs(service, pods) {
			return service.Name
		}
	}
	return ""
}

// runsAutohealer says whether our own pod is one of those.
func (s *Survey) runsAutohealer(ctx context.Context, namespace string, pods labels.Selector) (bool, error) {
	if namespace != s.OwnNamespace || s.OwnPod == nil {
		return false, nil
	}
	own, err := s.OwnPod(ctx)
	if err != nil {
		return false, fmt.Errorf("find out what runs Autohealer: %w", err)
	}
	return own != nil && pods.Matches(own), nil
}

// serviceOf is the Service of the cluster that a server is, where it is one that a target in the namespace might scale
// down: by its DNS name, or by an address of its own.
func (s *Survey) serviceOf(ctx context.Context, namespace, server string) (types.NamespacedName, error) {
	host, _, err := net.SplitHostPort(server)
	if err != nil {
		return types.NamespacedName{}, fmt.Errorf("read the address of a server: %w", err)
	}
	if _, err := netip.ParseAddr(host); err != nil {
		if service := s.byName(host); service.Name != "" {
			return service, nil
		}
	}
	name, err := s.Cluster.ServiceAt(ctx, namespace, host)
	if name == "" {
		return types.NamespacedName{}, err
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, err
}

// byName reads a Service's DNS name: name.namespace.svc, with the cluster's domain behind it or without, name.namespace, or
// the name alone, which is looked up in Autohealer's own namespace. Another name of two parts is taken for one, too; then no
// pod is behind it.
func (s *Survey) byName(host string) types.NamespacedName {
	parts := strings.Split(host, ".")
	switch {
	case len(parts) == 1:
		return types.NamespacedName{Namespace: s.OwnNamespace, Name: host}
	case len(parts) == 2, parts[2] == "svc":
		return types.NamespacedName{Namespace: parts[1], Name: parts[0]}
	}
	return types.NamespacedName{}
}

package world

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Traces are all that names Autohealer in a cluster: every object of every kind that is of our group, has a name of ours, or
// has a label, annotation or finalizer of ours. For a while the API server names kinds whose CRD is gone, and listing them is an error.
func Traces(ctx context.Context, config *rest.Config, c client.Client) ([]string, error) {
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	_, lists, err := kinds.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || r.Name == "events" {
				continue
			}
			all := &metav1.PartialObjectMetadataList{}
			all.SetGroupVersionKind(gv.WithKind(r.Kind + "List"))
			if err := c.List(ctx, all); err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			for _, o := range all.Items {
				if why := trace(gv.Group, o); why != "" {
					found = append(found, strings.ToLower(r.Kind)+"/"+o.Name+" "+why)
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

func trace(group string, o metav1.PartialObjectMetadata) string {
	const domain = "autohealer.resourcestack.com"
	switch {
	case group == domain:
		return "is of our kind"
	case strings.HasPrefix(o.Name, "autohealer") && !strings.HasPrefix(o.Name, "autohealer-foreign"), strings.HasSuffix(o.Name, "."+domain):
		return "has our name"
	case slices.ContainsFunc(o.Finalizers, func(f string) bool { return strings.HasPrefix(f, domain) }):
		return "has our finalizer"
	}
	for _, keys := range []map[string]string{o.Labels, o.Annotations} {
		for key := range keys {
			if strings.HasPrefix(key, domain) && key != domain+"/aggregate-to-health-checks" { // on a ClusterRole of somebody's
				return "has " + key
			}
		}
	}
	return ""
}

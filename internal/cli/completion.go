package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// completeWithin bounds a completion: whoever presses tab waits for it.
	completeWithin = 2 * time.Second
	// namesShown bounds what a completion lists.
	namesShown = 500
)

// complete offers what a shell asks for, if that is known in time. What asks a cluster for its kinds takes no context.
func complete(ctx context.Context, root *cobra.Command) (exitCode int) {
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	select {
	case err := <-done:
		if err == nil {
			return exitOK
		}
	case <-time.After(completeWithin):
	}
	return exitError
}

// addConfig adds kubectl's flags for clusters.
func (a *App) addConfig(cmd *cobra.Command) {
	a.Config.AddFlags(cmd.Flags())
	_ = cmd.RegisterFlagCompletionFunc("namespace", a.completeNamespaces) // it fails for a flag that isn't there
}

// completeNamespaces completes the names of namespaces.
func (a *App) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.names(cmd.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}), cobra.ShellCompDirectiveNoFileComp
}

// completeObjects completes kinds, and after a slash the names that the cluster has, of any kind.
func (a *App) completeObjects(kinds ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) (found []string, directive cobra.ShellCompDirective) {
		kind, _, slashed := strings.Cut(typed, "/")
		if !slashed {
			for _, k := range kinds {
				found = append(found, k+"/")
			}
			return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		mapper, err := a.Config.ToRESTMapper()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		mapping, err := mappingOf(mapper, kind)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, name := range a.names(cmd.Context(), mapping.GroupVersionKind) {
			found = append(found, kind+"/"+name)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// names of a kind's objects, in the namespace of the flags where the kind has any; none when they can't be read.
func (a *App) names(ctx context.Context, kind schema.GroupVersionKind) []string {
	c, err := a.client()
	if err != nil {
		return nil
	}
	var one metav1.PartialObjectMetadata
	one.SetGroupVersionKind(kind)
	namespaced, err := c.IsObjectNamespaced(&one)
	if err != nil {
		return nil
	}
	options := []client.ListOption{client.Limit(namesShown)}
	if namespaced {
		namespace, _, err := a.Config.ToRawKubeConfigLoader().Namespace()
		if err != nil {
			return nil
		}
		options = append(options, client.InNamespace(namespace))
	}
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if c.List(ctx, &list, options...) != nil {
		return nil
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names
}

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/cli/explain"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
)

// ofChecked tells of an object that HealthCheckRegistrations are about.
func (w *answers) ofChecked(ctx context.Context, kind string, key types.NamespacedName) (string, error) {
	var kinds []string
	for _, e := range explainable {
		kinds = append(kinds, e.names[0])
	}
	kinds = append(kinds, w.facts.TargetKinds()...)
	view, found, err := w.facts.ViewChecks(ctx, w.guard.Policy(), kind, key)
	views := view.Checks
	unknown := cmp.Or(w.snapshot.Covers("ProbeConfig"), w.snapshot.Covers("HealthCheckRegistration"))
	switch {
	case err != nil:
		return "", fmt.Errorf("explain %s/%s: %w", kind, key.Name, err)
	case len(views) == 0 && slices.Contains(kinds, strings.TrimSuffix(kind, "s")):
		return "", fmt.Errorf("%s/%s: the facts have nothing of what HealthCheckRegistrations are about; write them anew with facts export", kind, key.Name)
	case len(views) == 0 && unknown != nil:
		return "", fmt.Errorf("%s/%s: whether a ProbeConfig scales this kind, or a HealthCheckRegistration is about it, isn't known: %w", kind, key.Name, unknown)
	case len(views) == 0:
		return "", fmt.Errorf("\"%s/%s\": no ProbeConfig scales this kind, and no HealthCheckRegistration is about it; kinds are %s", kind, key.Name, strings.Join(kinds, ", "))
	case !found:
		return "", fmt.Errorf("there is no %s %q in namespace %s", kind, key.Name, key.Namespace)
	}
	namespace := key.Namespace
	if slices.ContainsFunc(views, func(v snapshot.ChecksView) bool { return v.Target != nil && v.Target.Namespace == "" }) {
		namespace = ""
	}
	return explain.Checked(kind+"/"+key.Name, namespace, view, w.snapshot.ServerTime.Time), nil
}

package uninstall

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/freeze"
)

// confirmWithin is how soon a freeze is in force when a manager works.
const confirmWithin = 5 * time.Second

// lookAgain lies between two looks at what is waited for.
const lookAgain = 200 * time.Millisecond

// stop lets nothing new be done, by a freeze that the manager confirms. Where that can't be had, since there are no Guardrails
// any more or the manager doesn't follow, the manager goes first.
func (u *Uninstaller) stop(ctx context.Context, s *Survey) error {
	if u.DryRun || !s.somebodyActs() {
		return nil
	}
	f := freeze.Freezer{Client: u.Client}
	u.Progress("freeze")
	rail, made, err := f.Freeze(ctx, "kubectl autohealer uninstall")
	switch {
	case goingKind(err):
		return u.deleteManager(ctx, s)
	case err != nil:
		return fmt.Errorf("make Guardrail %s: %w", v1alpha1.FreezeGuardrail, err)
	case made:
		u.Tell(fmt.Sprintf("guardrail.%s/%s created", v1alpha1.GroupVersion.Group, rail.Name))
	}
	confirmed, err := f.Confirmed(ctx, rail, confirmWithin)
	if err != nil && !goingKind(err) {
		return fmt.Errorf("see whether the manager confirms the freeze: %w", err)
	}
	if confirmed {
		return nil
	}
	return u.deleteManager(ctx, s)
}

// somebodyActs says whether there may be somebody to stop, and something that they would do.
func (s *Survey) somebodyActs() bool {
	return len(s.Policies) > 0 || has(s.Parts[manager], deploymentKind)
}

// freezes says whether a freeze is tried: not where Guardrails are no more, or soon won't be.
func (s *Survey) freezes() bool {
	return s.somebodyActs() && slices.ContainsFunc(s.Kinds, func(crd *object) bool {
		return crd.Name == "guardrails."+v1alpha1.GroupVersion.Group && crd.DeletionTimestamp == nil
	})
}

func has(all []*object, kind schema.GroupVersionKind) bool {
	return slices.ContainsFunc(all, func(o *object) bool { return o.GroupVersionKind() == kind })
}

// goingKind recognises that there are no Guardrails, or soon won't be: one can't be made of a kind that is being deleted.
func goingKind(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// deleteManager deletes the manager and what belongs to it, and waits until none can act.
func (u *Uninstaller) deleteManager(ctx context.Context, s *Survey) error {
	if err := u.deleteParts(manager)(ctx, s); err != nil || u.DryRun {
		return err
	}
	u.Progress("wait for the manager to end")
	var pods corev1.PodList
	err := wait.PollUntilContextTimeout(ctx, lookAgain, u.Timeout, true, func(ctx context.Context) (bool, error) {
		err := u.Client.List(ctx, &pods, client.InNamespace(u.Namespace), client.MatchingLabels{label: ours, "app.kubernetes.io/component": "manager"})
		return len(pods.Items) == 0, err
	})
	if err != nil && !wait.Interrupted(err) {
		return fmt.Errorf("look for the manager's pods: %w", err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	leads, told, doubt := u.Leads(ctx)
	switch {
	case doubt != "":
		return fmt.Errorf("whether a manager leads still that the Deployment %[1]s in namespace %[2]s didn't run can't be told: the Lease %[1]s %[3]s. "+
			"When none does, kubectl -n %[2]s delete lease %[1]s, then run this again", u.Manager, u.Namespace, doubt)
	case leads:
		return fmt.Errorf("a manager leads still that the Deployment %s in namespace %s doesn't run: stop it, then run this again", u.Manager, u.Namespace)
	case err != nil && !told:
		return fmt.Errorf("%d pods of the manager are there still, and whether one of them leads can't be told: see kubectl -n %s get pods", len(pods.Items), u.Namespace)
	}
	return nil // pods on a node that is gone don't end; without the Lease they don't act either
}

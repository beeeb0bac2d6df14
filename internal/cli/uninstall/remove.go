package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/freeze"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/kube"
)

// confirmTimeout is how soon a freeze is in force when a manager works.
const confirmTimeout = 5 * time.Second

// pollInterval is how often it is checked whether what is waited for has come about.
const pollInterval = 200 * time.Millisecond

// freeze lets nothing new be done, by a freeze that the manager confirms. Where that can't be had, since there are no Guardrails
// any more or the manager doesn't follow, the manager goes first.
func (u *Uninstaller) freeze(ctx context.Context, s *Survey) error {
	if u.DryRun || !s.mayStillAct() {
		return nil
	}
	u.Progress("freeze")
	guardrail, made, err := freeze.Freeze(ctx, u.Client, "kubectl autohealer uninstall")
	switch {
	case isKindTerminating(err):
		return u.deleteManager(ctx, s)
	case err != nil:
		return fmt.Errorf("make Guardrail %s: %w", v1alpha1.FreezeGuardrail, err)
	case made:
		u.Report(fmt.Sprintf("guardrail.%s/%s created", v1alpha1.GroupVersion.Group, guardrail.Name))
	}
	confirmed, err := freeze.Confirmed(ctx, u.Client, guardrail, confirmTimeout)
	if err != nil && !isKindTerminating(err) {
		return fmt.Errorf("see whether the manager confirms the freeze: %w", err)
	}
	if confirmed {
		return nil
	}
	return u.deleteManager(ctx, s)
}

// mayStillAct says whether there may be somebody to stop, and something that they would do.
func (s *Survey) mayStillAct() bool {
	return len(s.Delete[policies]) > 0 || has(s.Delete[manager], deploymentKind)
}

// attemptsFreeze says whether a freeze is tried: not where Guardrails are no more, or soon won't be.
func (s *Survey) attemptsFreeze() bool {
	return s.mayStillAct() && slices.ContainsFunc(s.Delete[definitions], func(crd *object) bool {
		return crd.Name == "guardrails."+v1alpha1.GroupVersion.Group && crd.DeletionTimestamp == nil
	})
}

func has(all []*object, kind schema.GroupVersionKind) bool {
	return slices.ContainsFunc(all, func(o *object) bool { return o.GroupVersionKind() == kind })
}

// isKindTerminating recognises that there are no Guardrails, or soon won't be: one can't be made of a kind that is being deleted.
func isKindTerminating(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// deleteManager deletes the manager and what belongs to it, and waits until none can act.
func (u *Uninstaller) deleteManager(ctx context.Context, s *Survey) error {
	if err := u.deleteFound(manager)(ctx, s); err != nil || u.DryRun {
		return err
	}
	u.Progress("wait for the manager to end")
	var pods corev1.PodList
	err := wait.PollUntilContextTimeout(ctx, pollInterval, u.Timeout, true, func(ctx context.Context) (bool, error) {
		err := u.Client.List(ctx, &pods, client.InNamespace(u.Namespace), client.MatchingLabels{label: ours, "app.kubernetes.io/component": "manager"})
		return len(pods.Items) == 0, err
	})
	if err != nil && !wait.Interrupted(err) {
		return fmt.Errorf("look for the manager's pods: %w", err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	leads, reported, doubt := u.Leads(ctx)
	switch {
	case doubt != "":
		return fmt.Errorf("it isn't known whether a manager still leads that the Deployment %[1]s in namespace %[2]s didn't run: the Lease %[1]s %[3]s. "+
			"When none does, kubectl -n %[2]s delete lease %[1]s, then run this again", u.Manager, u.Namespace, doubt)
	case leads:
		return fmt.Errorf("a manager leads still that the Deployment %s in namespace %s doesn't run: stop it, then run this again", u.Manager, u.Namespace)
	case err != nil && !reported:
		return fmt.Errorf("pods of the manager that still exist: %d, and it isn't known whether one of them leads: see kubectl -n %s get pods", len(pods.Items), u.Namespace)
	}
	return nil // pods on a node that is gone don't end; without the Lease they don't act either
}

// deleteOwn deletes objects of our kinds, also those that came after the look. With a finalizer it lets go of those that wait for what was
// undone before.
func (u *Uninstaller) deleteOwn(of stage, finalizer string) func(context.Context, *Survey) error {
	return func(ctx context.Context, _ *Survey) error {
		return u.remove(ctx, finalizer, func(ctx context.Context) ([]*object, error) {
			all, err := u.own(ctx)
			return all[of], err
		})
	}
}

// deleteFound removes the objects that a look found, and no others that have their names by now.
func (u *Uninstaller) deleteFound(of stage) func(context.Context, *Survey) error {
	return func(ctx context.Context, s *Survey) error {
		return u.remove(ctx, "", func(ctx context.Context) (there []*object, err error) {
			for _, o := range s.Delete[of] {
				now, err := u.get(ctx, about(o.GroupVersionKind(), o.Namespace, o.Name))
				if err != nil {
					return nil, err
				}
				if now != nil && now.UID == o.UID {
					there = append(there, now)
				}
			}
			return there, nil
		})
	}
}

// remove deletes objects and waits until they are gone. Of those that are being deleted it takes off a finalizer of ours.
func (u *Uninstaller) remove(ctx context.Context, finalizer string, list func(context.Context) ([]*object, error)) error {
	var there []*object
	deleted := map[types.UID]bool{}
	again := map[string]int{}
	err := wait.PollUntilContextTimeout(ctx, pollInterval, u.Timeout, true, func(ctx context.Context) (bool, error) {
		found, err := list(ctx)
		if err != nil {
			return false, err // the time may be over; what was there a moment ago is reported then
		}
		there = found
		for i, o := range there {
			u.Progress(fmt.Sprintf("delete: %d of %d", i+1, len(there)))
			if err := u.removeOne(ctx, o, finalizer); err != nil {
				return false, err
			}
			if !deleted[o.UID] {
				deleted[o.UID] = true
				again[title(o)]++
			}
		}
		return len(there) == 0 || u.DryRun, nil
	})
	if !wait.Interrupted(err) || ctx.Err() != nil || len(there) == 0 {
		return err
	}
	blocked := make([]string, len(there))
	for i, o := range there {
		blocked[i] = waitsFor(o, again[title(o)] > 1)
	}
	slices.Sort(blocked)
	return errors.New(sample.List(blocked, "\n"))
}

func (u *Uninstaller) removeOne(ctx context.Context, o *object, finalizer string) error {
	if o.DeletionTimestamp == nil {
		whole := &unstructured.Unstructured{} // the typed client would have to know the kind
		whole.SetGroupVersionKind(o.GroupVersionKind())
		whole.SetNamespace(o.Namespace)
		whole.SetName(o.Name)
		// What a Job made goes with it only when that is asked for.
		err := u.Client.Delete(ctx, whole, client.Preconditions{UID: &o.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // gone, or another one by now
		}
		if err != nil {
			return fmt.Errorf("delete %s: %w", title(o), err)
		}
		u.Report(title(o) + " deleted")
	}
	if finalizer == "" || !slices.Contains(o.Finalizers, finalizer) || o.DeletionTimestamp == nil && !u.DryRun {
		return nil
	}
	err := kube.SetFinalizer(ctx, u.Client, o, finalizer, false)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // looked at again
	}
	return err
}

// waitsFor says what keeps an object that was deleted.
func waitsFor(o *object, again bool) string {
	switch {
	case again:
		return title(o) + " was deleted, and something makes it again: take it out of what applies it, such as Git, then run this again"
	case len(o.Finalizers) > 0:
		return fmt.Sprintf("%s is deleted and still there: it waits for the finalizers %s. See to who set them, then run this again", title(o), strings.Join(o.Finalizers, ", "))
	}
	return title(o) + " is deleted and still there: kubectl describe " + named(o)
}

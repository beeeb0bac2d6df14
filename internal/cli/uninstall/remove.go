package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kube"
)

// deletePolicies deletes policies, and lets go of those that wait for what was undone before.
func (u *Uninstaller) deletePolicies(ctx context.Context, _ *Survey) error {
	return u.remove(ctx, v1alpha1.FinalizerUndo, func(ctx context.Context) ([]*object, error) {
		policies, _, err := u.policies(ctx)
		return policies, err
	})
}

func (u *Uninstaller) deleteRails(ctx context.Context, _ *Survey) error {
	return u.remove(ctx, "", func(ctx context.Context) ([]*object, error) {
		_, rails, err := u.policies(ctx)
		return rails, err
	})
}

func (u *Uninstaller) deleteKinds(ctx context.Context, s *Survey) error {
	return u.removeAll(ctx, s.Kinds)
}

func (u *Uninstaller) deleteParts(of stage) func(context.Context, *Survey) error {
	return func(ctx context.Context, s *Survey) error { return u.removeAll(ctx, s.Parts[of]) }
}

func (u *Uninstaller) deleteNamespace(ctx context.Context, s *Survey) error {
	if s.Namespace == nil {
		return nil
	}
	return u.removeAll(ctx, []*object{s.Namespace})
}

// removeAll removes the objects that a look found, and no others that have their names by now.
func (u *Uninstaller) removeAll(ctx context.Context, all []*object) error {
	return u.remove(ctx, "", func(ctx context.Context) (there []*object, err error) {
		for _, o := range all {
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

// remove deletes objects and waits until they are gone. Of those that are being deleted it takes off a finalizer of ours.
func (u *Uninstaller) remove(ctx context.Context, finalizer string, list func(context.Context) ([]*object, error)) error {
	var there []*object
	deleted := map[types.UID]bool{}
	again := map[string]int{}
	err := wait.PollUntilContextTimeout(ctx, lookAgain, u.Timeout, true, func(ctx context.Context) (bool, error) {
		found, err := list(ctx)
		if err != nil {
			return false, err // the time may be over; what was there a moment ago is told then
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
	stuck := make([]string, len(there))
	for i, o := range there {
		stuck[i] = waitsFor(o, again[title(o)] > 1)
	}
	slices.Sort(stuck)
	return errors.New(some(stuck, "\n"))
}

func (u *Uninstaller) removeOne(ctx context.Context, o *object, finalizer string) error {
	if o.DeletionTimestamp == nil {
		whole := &unstructured.Unstructured{} // the typed client would have to know the kind
		whole.SetGroupVersionKind(o.GroupVersionKind())
		whole.SetNamespace(o.Namespace)
		whole.SetName(o.Name)
		err := u.Client.Delete(ctx, whole, client.Preconditions{UID: &o.UID})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // gone, or another one by now
		}
		if err != nil {
			return fmt.Errorf("delete %s: %w", title(o), err)
		}
		u.Tell(title(o) + " deleted")
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

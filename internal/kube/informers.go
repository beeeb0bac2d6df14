package kube

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
)

// ErrHistoryLost: the API server has an object in an older state than it has shown before, as after a restore of etcd.
// Everything that this process knows may be of a history that never happened, and newer than all events to come.
var ErrHistoryLost = errors.New("the API server went back to an older state; all must be read anew")

// Handlers turns an informer's events into calls: seen for what is new or changed, gone for what isn't there any more. An
// object that was deleted and made anew under its name while the watch was away is gone first. lost is called for each object
// that went back to an older state, which isn't passed on: the informer's owner must end the process, so that it
// starts with a clean state.
//
// T has metadata, as meta.Accessor finds them.
func Handlers[T any](seen, gone func(T), lost func(error)) toolscache.ResourceEventHandlerFuncs {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { seen(object.(T)) },
		UpdateFunc: func(before, object any) {
			switch err := compareVersions(before, object); {
			case errors.Is(err, errReplaced):
				gone(before.(T))
			case err != nil:
				lost(err)
				return
			}
			seen(object.(T))
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if o, ok := object.(T); ok {
				gone(o)
			}
		},
	}
}

// errReplaced: the object was deleted, and made anew under its name.
var errReplaced = errors.New("replaced")

// compareVersions compares two observations of one name, the later one second. A watch only ever goes forward, and so does the list
// that follows a watch which broke: it asks for no less than what was seen last. Only an API server that no longer knows
// what was seen last, and is asked for whatever it has, answers with less.
func compareVersions(before, after any) error {
	was, errWas := meta.Accessor(before)
	is, errIs := meta.Accessor(after)
	if err := errors.Join(errWas, errIs); err != nil {
		return err
	}
	if was.GetUID() != is.GetUID() {
		return errReplaced
	}
	order, err := resourceversion.CompareResourceVersion(is.GetResourceVersion(), was.GetResourceVersion())
	if err == nil && order < 0 { // what can't be compared proves nothing
		return fmt.Errorf("%T %s is at resourceVersion %s and was at %s: %w", after, types.NamespacedName{Namespace: is.GetNamespace(), Name: is.GetName()},
			is.GetResourceVersion(), was.GetResourceVersion(), ErrHistoryLost)
	}
	return nil
}

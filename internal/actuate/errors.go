package actuate

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var (
	// ErrNotValidated: the change has no admission that covers it. It is a mistake in the caller, never in a cluster.
	ErrNotValidated = errors.New("no admission covers this change")
	// ErrStale: the object is no longer what the plan was made from, or the policy no longer what was admitted. Nothing
	// was written; plan again.
	ErrStale = errors.New("planned from an older state")
)

// Certain says whether a failed write surely changed nothing: the API server refused it. After anything else, a
// time-out or a lost connection, only a live read can tell.
func Certain(err error) bool {
	switch {
	case errors.Is(err, ErrNotValidated), errors.Is(err, ErrStale):
		return true
	case apierrors.IsInvalid(err), apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsForbidden(err),
		apierrors.IsUnauthorized(err), apierrors.IsBadRequest(err), apierrors.IsTooManyRequests(err), apierrors.IsRequestEntityTooLargeError(err):
		return true
	}
	return false
}

// Package healthcheck lets a controller tell on its own resource how what depends on it does. A Registration says which checks
// decide which conditions of the objects of one kind; AddToManager runs them with a controller-runtime manager: when a
// target changes or what a check refers to, and every sync period. The interfaces have the shape of those of Gardener's
// library of this name, so checks written for it keep their methods; they take the types of results from here.
//
// All checks of one condition type decide it together: a failure makes it False, and so does progress whose threshold is over; else
// an error makes it Unknown, else progress makes it Progressing, else it is True. When progress began is stored in
// the condition, so neither a restart nor a passing Unknown begins it anew. A check that panics, hangs or is slow costs its
// own condition only. Conditions of others on the same object are left alone, also when they are written meanwhile. When
// nothing changes, nothing is written.
//
// Before a condition turns False, its checks that aren't True are run once more, by what the API server has now. When many
// targets turn from True to False within minutes, one common cause is likelier: the rest are Unknown until all of it is True again, or somebody
// has looked, and puts BreakerResetAnnotation on one of them.
package healthcheck

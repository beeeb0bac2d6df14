package healthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// rightsTTL is for how long the API server's answer to whether a kind may be watched, or listed, is trusted.
	rightsTTL = 10 * time.Second
	// rereadTime is for how long what a cache has isn't trusted after the right is back: its informer tries again at least once a minute.
	rereadTime = 75 * time.Second
	// forgetRightsAfter is after how long without a question rights are forgotten, or up to twice that: their namespaces may be gone.
	forgetRightsAfter = 24 * time.Hour
)

// rightsChecked reads from the manager's cache, while the program may watch what it reads: an informer that has lost the right keeps
// what it knew, and nobody learns that. The cache is the extension author's, so it can't be made to report its watches' errors.
type rightsChecked struct {
	client.Client
	rights *watchRights
}

// Get reads an object of a kind that may be watched.
func (w rightsChecked) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if kind, err := w.GroupVersionKindFor(into); err == nil {
		if err := w.rights.check(ctx, kind, key); err != nil {
			return err
		}
	}
	return w.Client.Get(ctx, key, into, options...)
}

// List reads objects of a kind that may be watched. A namespace says nothing of a kind that is in none, as with a client that reads
// live; the cache would find no objects.
func (w rightsChecked) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if kind, err := w.GroupVersionKindFor(into); err == nil {
		kind.Kind = strings.TrimSuffix(kind.Kind, "List")
		inNone, err := clusterScoped(w.RESTMapper(), kind)
		if err != nil {
			return err
		}
		if inNone {
			options = append(slices.Clip(options), client.InNamespace(""))
		}
		namespace := (&client.ListOptions{}).ApplyOptions(options).Namespace
		if err := w.rights.check(ctx, kind, client.ObjectKey{Namespace: namespace}); err != nil {
			return err
		}
	}
	return w.Client.List(ctx, into, options...)
}

// watchRights knows what the program may watch and list. It is safe for concurrent use.
type watchRights struct {
	// ask the API server.
	ask   func(context.Context, authorizationv1.ResourceAttributes) (authorizationv1.SubjectAccessReviewStatus, error)
	kinds meta.RESTMapper
	clock clock.PassiveClock

	mu    sync.Mutex
	known map[authorizationv1.ResourceAttributes]*right // needs mu, as all below
	// older is what was known before, and not asked for since.
	older map[authorizationv1.ResourceAttributes]*right
	since time.Time
}

// newWatchRights asks by SelfSubjectAccessReviews, which everybody may.
func newWatchRights(mgr manager.Manager, now clock.PassiveClock) (*watchRights, error) {
	scheme := runtime.NewScheme()
	if err := authorizationv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("make the client that asks about rights: %w", err)
	}
	c, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: scheme, Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("make the client that asks about rights: %w", err)
	}
	ask := func(ctx context.Context, what authorizationv1.ResourceAttributes) (authorizationv1.SubjectAccessReviewStatus, error) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}
		err := c.Create(ctx, review)
		return review.Status, err
	}
	return &watchRights{ask: ask, kinds: mgr.GetRESTMapper(), clock: now}, nil
}

// check gives an error where what a cache has of an object may be old for want of the right to watch it, or to list it, which a watch
// that fell behind begins with. A cache that is limited to some namespaces or names needs no right to more.
func (w *watchRights) check(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) error {
	mapping, err := w.kinds.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil //nolint:nilerr // the read tells what is wrong with the kind
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		key.Namespace = ""
	}
	for _, verb := range []string{"watch", "list"} {
		if err := w.allowed(ctx, verb, mapping.Resource, key); err != nil {
			return err
		}
	}
	return nil
}

func (w *watchRights) allowed(ctx context.Context, verb string, resource schema.GroupVersionResource, key client.ObjectKey) error {
	what := authorizationv1.ResourceAttributes{Verb: verb, Group: resource.Group, Version: resource.Version, Resource: resource.Resource}
	had, err := w.may(ctx, what)
	if err == nil || had || key == (client.ObjectKey{}) { // a watch of all that there was can't go on with a right to less
		return err
	}
	what.Namespace, what.Name = key.Namespace, key.Name
	_, err = w.may(ctx, what)
	return err
}

// may says whether the program may do this, and whether it could before.
func (w *watchRights) may(ctx context.Context, what authorizationv1.ResourceAttributes) (had bool, err error) {
	r := w.right(what)
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := w.clock.Now(); r.requestedAt.IsZero() || now.Sub(r.requestedAt) >= rightsTTL {
		r.requestedAt = now
		status, err := w.ask(ctx, what)
		if err == nil && !status.Allowed && !status.Denied && status.EvaluationError != "" {
			err = errors.New(status.EvaluationError)
		}
		if err != nil { // what was so before is assumed: it may be this question that isn't allowed
			log.FromContext(ctx).V(1).Info("Rights couldn't be asked for", "verb", what.Verb, "resource", what.Resource, "trouble", err.Error())
		} else {
			r.answered(status.Allowed, w.clock.Now())
		}
	}
	name := schema.GroupResource{Group: what.Group, Resource: what.Resource}
	switch {
	case r.missing:
		return r.had, fmt.Errorf("there is no right to %s %s", what.Verb, name)
	case !r.regainedAt.IsZero() && w.clock.Since(r.regainedAt) < rereadTime:
		return r.had, fmt.Errorf("there was no right to %s %s, and they are being read again", what.Verb, name)
	}
	return r.had, nil
}

// right is kept as long as it is asked for.
func (w *watchRights) right(what authorizationv1.ResourceAttributes) *right {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.clock.Now(); w.known == nil || now.Sub(w.since) >= forgetRightsAfter {
		w.known, w.older, w.since = map[authorizationv1.ResourceAttributes]*right{}, w.known, now
	}
	if w.known[what] == nil {
		w.known[what] = cmp.Or(w.older[what], &right{})
	}
	return w.known[what]
}

// right to watch or list something.
type right struct {
	mu          sync.Mutex
	requestedAt time.Time // needs mu, as all below
	// missing, and had before.
	missing, had bool
	// regainedAt since it was missing; zero when it never was.
	regainedAt time.Time
}

// answered needs r.mu.
func (r *right) answered(allowed bool, now time.Time) {
	if allowed && r.missing && r.had { // else nothing was read before
		r.regainedAt = now
	}
	r.missing, r.had = !allowed, r.had || allowed
}

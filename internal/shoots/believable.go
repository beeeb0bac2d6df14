package shoots

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Believable is a client whose NotFound may be believed: what a cache lacks is asked for live, and a kind that isn't served, or is
// being removed with all its objects, is another error.
type Believable struct {
	client.Client
	// Live reader; nil when the client itself reads live.
	Live client.Reader
	// Served is asked about the kind of what isn't there. Nil: it isn't asked.
	Served Served
}

// Served gives an error for a kind of which it says nothing that an object isn't there.
type Served func(ctx context.Context, kind schema.GroupVersionKind) error

// Get reads with the client, and live what that doesn't find.
func (b Believable) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	err := b.Client.Get(ctx, key, into, options...)
	if apierrors.IsNotFound(err) && b.Live != nil {
		err = b.Live.Get(ctx, key, into, options...)
	}
	switch {
	case meta.IsNoMatchError(err):
		return notServed(err)
	case !apierrors.IsNotFound(err):
		return err
	}
	// The API server answers so where nothing serves the path, for example after a CustomResourceDefinition was deleted.
	if apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("the kind isn't served: %v", err) //nolint:errorlint // wrapped, it would still be taken for NotFound
	}
	if kind, unknown := b.GroupVersionKindFor(into); unknown == nil && b.Served != nil {
		if unserved := b.Served(ctx, kind); unserved != nil {
			return unserved
		}
	}
	return err
}

// notServed is said in the words that a watch has for it: a condition says the same, whichever way its check was made.
func notServed(err error) error { return fmt.Errorf("the kind isn't served: %w", err) }

// List reads with the client; that a live one finds nothing may be believed, too.
func (b Believable) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	err := b.Client.List(ctx, into, options...)
	switch {
	case meta.IsNoMatchError(err):
		return notServed(err)
	case err != nil || b.Live != nil || b.Served == nil || meta.LenList(into) > 0:
		return err
	}
	kind, err := b.GroupVersionKindFor(into)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	return b.Served(ctx, kind)
}

// NewServed asks an API server's discovery, which everybody may read.
func NewServed(config *rest.Config, through *http.Client) (Served, error) {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, through)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, kind schema.GroupVersionKind) error {
		if !strings.Contains(kind.Group, ".") || strings.HasSuffix(kind.Group, ".k8s.io") { // built in, and not to be removed
			return nil
		}
		all := &metav1.APIResourceList{}
		if err := d.RESTClient().Get().AbsPath("/apis", kind.Group, kind.Version).Do(ctx).Into(all); err != nil {
			return fmt.Errorf("ask whether %s is served: %v", kind.Kind, err) //nolint:errorlint // wrapped, it would be taken for NotFound
		}
		i := slices.IndexFunc(all.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind && !strings.Contains(r.Name, "/") })
		switch {
		case i < 0:
			return fmt.Errorf("the kind %s isn't served", kind.Kind)
		case slices.Contains(all.APIResources[i].Verbs, "delete") && !slices.Contains(all.APIResources[i].Verbs, "create"):
			// So the API server tells of a kind whose definition was deleted, while its objects go.
			return fmt.Errorf("the kind %s is being removed, with all its objects", kind.Kind)
		}
		return nil
	}, nil
}

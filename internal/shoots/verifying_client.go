package shoots

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// VerifyingClient is a client whose NotFound is reliable: what a cache doesn't have is read live, and a kind that isn't served, or is being
// removed with all its objects, is another error.
type VerifyingClient struct {
	client.Client
	// Live reader; nil when the client itself reads live.
	Live client.Reader
	// CheckServed is called with the kind of an object that isn't found. Nil: it isn't called.
	CheckServed CheckServed
}

// CheckServed returns an error for a kind for which NotFound isn't reliable.
type CheckServed func(ctx context.Context, kind schema.GroupVersionKind) error

// Get reads with the client, and then live what that doesn't find.
func (c VerifyingClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	err := c.Client.Get(ctx, key, into, options...)
	if apierrors.IsNotFound(err) && c.Live != nil {
		err = c.Live.Get(ctx, key, into, options...)
	}
	switch {
	case meta.IsNoMatchError(err):
		return notServedError(err)
	case !apierrors.IsNotFound(err):
		return err
	}
	// The API server answers like this where nothing serves the path, for example after a CustomResourceDefinition was deleted.
	if apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("the kind isn't served: %v", err) //nolint:errorlint // wrapped, it would still be taken for NotFound
	}
	if kind, unknown := c.GroupVersionKindFor(into); unknown == nil && c.CheckServed != nil {
		if unserved := c.CheckServed(ctx, kind); unserved != nil {
			return unserved
		}
	}
	return err
}

// notServedError has the text of a watch's error: a condition has the same message, whether its check was by a watch or by a read.
func notServedError(err error) error { return fmt.Errorf("the kind isn't served: %w", err) }

// List reads with the client; an empty list of a live one is reliable, too.
func (c VerifyingClient) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	err := c.Client.List(ctx, into, options...)
	switch {
	case meta.IsNoMatchError(err):
		return notServedError(err)
	case err != nil || c.Live != nil || c.CheckServed == nil || meta.LenList(into) > 0:
		return err
	}
	kind, err := c.GroupVersionKindFor(into)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	return c.CheckServed(ctx, kind)
}

// resourceOf returns a kind's resource among those of its group and version; nil for none.
func resourceOf(all *metav1.APIResourceList, kind string) *metav1.APIResource {
	i := slices.IndexFunc(all.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind && !strings.Contains(r.Name, "/") })
	if i < 0 {
		return nil
	}
	return &all.APIResources[i]
}

// NewVerifyingClient makes one that reads live.
func NewVerifyingClient(config *rest.Config, options client.Options) (VerifyingClient, error) {
	live, errLive := client.New(config, options)
	served, errServed := NewCheckServed(config, options.HTTPClient)
	return VerifyingClient{Client: live, CheckServed: served}, errors.Join(errLive, errServed)
}

// Nodes lists a cluster's nodes from the API server's watch cache (resourceVersion 0): slightly stale ones do, and the list may be long.
func Nodes(ctx context.Context, shoot client.Reader) ([]*corev1.Node, error) {
	var list corev1.NodeList
	if err := shoot.List(ctx, &list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return nil, fmt.Errorf("list the shoot's nodes: %w", err)
	}
	nodes := make([]*corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	return nodes, nil
}

// NewCheckServed makes one that reads an API server's discovery, which everybody may read.
func NewCheckServed(config *rest.Config, httpClient *http.Client) (CheckServed, error) {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
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
		switch is := resourceOf(all, kind.Kind); {
		case is == nil:
			return fmt.Errorf("the kind %s isn't served", kind.Kind)
		case slices.Contains(is.Verbs, "delete") && !slices.Contains(is.Verbs, "create"):
			// The API server serves a kind like this after its definition was deleted, until its objects are.
			return fmt.Errorf("the kind %s is being removed, with all its objects", kind.Kind)
		}
		return nil
	}, nil
}

// mapper maps those kinds of one shoot's API server that are used. The whole discovery, of which checks need a few lines, would be hundreds
// of KiB for each shoot.
type mapper struct {
	// RESTMapper handles all other calls. Only then does it read the whole discovery.
	meta.RESTMapper
	discovery discovery.DiscoveryInterface

	mu    sync.Mutex
	known map[schema.GroupVersionKind]*meta.RESTMapping // needs mu
}

func newMapper(config *rest.Config, httpClient *http.Client) (*mapper, error) {
	rest, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	return &mapper{RESTMapper: rest, discovery: d, known: map[schema.GroupVersionKind]*meta.RESTMapping{}}, nil
}

// RESTMapping discovers a kind of a group and version once. A kind that isn't served is discovered again each time.
func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	of := kind.WithVersion(versions[0])
	m.mu.Lock()
	known := m.known[of]
	m.mu.Unlock()
	if known != nil {
		return known, nil
	}
	found, err := m.find(of)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[of] = found
	return found, nil
}

func (m *mapper) find(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	all, err := m.discovery.ServerResourcesForGroupVersion(kind.GroupVersion().String())
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("ask where %s is served: %w", kind.Kind, err)
	}
	var is *metav1.APIResource
	if err == nil {
		is = resourceOf(all, kind.Kind)
	}
	if is == nil {
		return nil, &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	}
	mapping := &meta.RESTMapping{Resource: kind.GroupVersion().WithResource(strings.Clone(is.Name)), GroupVersionKind: kind, Scope: meta.RESTScopeRoot}
	if is.Namespaced {
		mapping.Scope = meta.RESTScopeNamespace
	}
	return mapping, nil
}

package dependents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	decl "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

const (
	// chunkSize keeps an answer at a few megabytes.
	chunkSize = 500
	// mostFound bounds what a check that selects by labels reads for one target.
	mostFound = 500
)

var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Live reads from the API server.
type Live struct {
	// Reader must not be a cache: that would begin to watch each kind that somebody names.
	Reader client.Reader
	Mapper Mapper
	// Policy judges kubeconfigs as the checks do.
	Policy kubeconfig.Policy
	// Schemas tell the types of fields.
	Schemas *Schemas
}

// Mapper tells how a kind is served.
type Mapper interface {
	RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error)
}

var _ Objects = (*Live)(nil)

// Targets lists chunk by chunk, until there are enough.
func (l *Live) Targets(ctx context.Context, kind schema.GroupVersionKind, selector labels.Selector, most int) (objects []*unstructured.Unstructured, more bool, err error) {
	next := ""
	for {
		chunk, token, err := l.chunk(ctx, kind, &client.ListOptions{LabelSelector: selector, Limit: int64(min(chunkSize, most-len(objects))), Continue: next})
		if err != nil {
			return nil, false, err
		}
		objects, next = append(objects, chunk...), token
		if next == "" || len(chunk) == 0 || len(objects) >= most {
			return objects, next != "", nil
		}
	}
}

func (l *Live) chunk(ctx context.Context, kind schema.GroupVersionKind, options *client.ListOptions) (objects []*unstructured.Unstructured, next string, err error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := l.Reader.List(ctx, list, options); err != nil {
		return nil, "", err
	}
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
	}
	return objects, list.GetContinue(), nil
}

// Find reads what a check looks at. That a kind isn't served is an error, not an object that doesn't exist.
func (l *Live) Find(ctx context.Context, ref registration.Ref) ([]*unstructured.Unstructured, error) {
	if ref.Name == "" {
		objects, next, err := l.chunk(ctx, ref.Kind, &client.ListOptions{Namespace: ref.Namespace, LabelSelector: ref.Selector, Limit: mostFound})
		if err == nil && next != "" {
			err = fmt.Errorf("the check selects more than %d objects, and a forecast reads no more", mostFound)
		}
		return objects, err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(ref.Kind)
	err := l.Reader.Get(ctx, ref.Key(), object)
	switch {
	case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return nil, fmt.Errorf("the kind isn't served: %v", err) //nolint:errorlint // wrapped, it would still be taken for NotFound
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []*unstructured.Unstructured{object}, nil
}

// Resolve asks discovery. A file of facts doesn't tell which kinds have namespaces.
func (l *Live) Resolve(ref registration.Ref) registration.Ref {
	if mapping, err := l.Mapper.RESTMapping(ref.Kind.GroupKind(), ref.Kind.Version); err == nil && mapping.Scope == meta.RESTScopeRoot {
		ref.Namespace = ""
	}
	return ref
}

// Namespace reads a namespace's labels.
func (l *Live) Namespace(ctx context.Context, name string) (labels.Set, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := l.Reader.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return nil, err
	}
	return namespace.Labels, nil
}

// Layout reads how a kind keeps conditions from its CustomResourceDefinition. Kinds that Kubernetes itself or an aggregated API server
// serves have none, and take no conditions.
func (l *Live) Layout(ctx context.Context, kind schema.GroupVersionKind) (health.Layout, error) {
	mapping, err := l.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return health.Layout{}, fmt.Errorf("find the resource of %s: %w", kind.Kind, err)
	}
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(definitionKind)
	switch err := l.Reader.Get(ctx, client.ObjectKey{Name: mapping.Resource.GroupResource().String()}, definition); {
	case apierrors.IsNotFound(err):
		return health.Layout{Problem: "it has no CustomResourceDefinition, and only custom resources take conditions of health checks"}, nil
	case err != nil:
		return health.Layout{}, fmt.Errorf("read how %s keeps conditions: %w", kind.Kind, err)
	}
	return health.LayoutOf(definition, kind.Version), nil
}

// Served asks discovery.
func (l *Live) Served(_ context.Context, kind schema.GroupVersionKind) (bool, error) {
	_, err := l.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// Types asks for the kinds' schemas.
func (l *Live) Types(ctx context.Context, kinds []schema.GroupVersionKind) (map[schema.GroupVersionKind]*decl.DeclType, error) {
	return l.Schemas.Types(ctx, kinds)
}

// Kubeconfig reads a Secret, and keeps of it only why it is never used.
func (l *Live) Kubeconfig(ctx context.Context, namespace string, at v1alpha1.SecretKey) (unsafe string, err error) {
	secret := &corev1.Secret{}
	if err := l.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: at.SecretName}, secret); err != nil {
		return "", err
	}
	if found := l.Policy.Inspect(secret, at.Key); found.Refusal.Unsafe() {
		return found.Refusal.Error(), nil // in our own words, with nothing of the Secret
	}
	return "", nil
}

// mostTypes are kept: of a Deployment they are half a megabyte, of most kinds far less.
const mostTypes = 32

// Schemas tells the types of an API server's kinds by their OpenAPI documents. It is safe for concurrent use. What every account may read
// is enough for it (the ClusterRole system:discovery).
type Schemas struct {
	client openapi.ClientWithContext
	kept   *lru.Cache // of *decl.DeclType by typeKey
}

// typeKey has a document's URL with the hash of its content: what is kept is never old.
type typeKey struct{ url, kind string }

// NewSchemas takes the client of an API server.
func NewSchemas(client openapi.ClientWithContext) *Schemas {
	return &Schemas{client: client, kept: lru.New(mostTypes)}
}

// Types gives those of kinds, as far as they can be known; the error is why others can't.
func (s *Schemas) Types(ctx context.Context, kinds []schema.GroupVersionKind) (map[schema.GroupVersionKind]*decl.DeclType, error) {
	if len(kinds) == 0 {
		return nil, nil
	}
	documents, err := s.client.PathsWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("read which schemas there are: %w", err)
	}
	types := map[schema.GroupVersionKind]*decl.DeclType{}
	var failed []error
	for _, kind := range kinds {
		document := documents[path.Join("apis", kind.Group, kind.Version)]
		if kind.Group == "" {
			document = documents[path.Join("api", kind.Version)]
		}
		if document == nil {
			continue
		}
		key := typeKey{document.ServerRelativeURL(), kind.Kind}
		if kept, is := s.kept.Get(key); is {
			types[kind] = kept.(*decl.DeclType)
			continue
		}
		if types[kind], err = typeIn(ctx, document, kind); err != nil {
			failed = append(failed, fmt.Errorf("read the schema of %s of %s: %w", kind.Kind, kind.GroupVersion(), err))
			continue
		}
		s.kept.Add(key, types[kind])
	}
	return types, errors.Join(failed...)
}

// typeIn reads a kind's type from the document of its group and version; nil where that doesn't tell it.
func typeIn(ctx context.Context, document openapi.GroupVersionWithContext, kind schema.GroupVersionKind) (*decl.DeclType, error) {
	text, err := document.SchemaWithContext(ctx, runtime.ContentTypeJSON)
	if err != nil {
		return nil, err
	}
	var has struct {
		Components struct {
			Schemas map[string]*spec.Schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &has); err != nil {
		return nil, err
	}
	all := has.Components.Schemas
	maps.DeleteFunc(all, func(_ string, s *spec.Schema) bool { return s == nil })
	for name, s := range all {
		var kinds []schema.GroupVersionKind
		if err := s.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err != nil {
			return nil, err
		}
		if !slices.Contains(kinds, kind) {
			continue
		}
		whole, err := resolver.PopulateRefs(func(ref string) (*spec.Schema, bool) {
			s, there := all[strings.TrimPrefix(ref, inDocument)]
			return s, there
		}, inDocument+name)
		if err != nil {
			return nil, err
		}
		return registration.TypeOf(kind, whole), nil
	}
	return nil, nil
}

// inDocument begins a reference to a schema of the same document.
const inDocument = "#/components/schemas/"

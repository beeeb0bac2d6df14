package dependents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	decl "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/lru"

	"github.com/resourcestack/autohealer/internal/domain/registration"
)

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

// Types gives those of kinds, as far as they can be told; the error is why others can't.
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

package guard

import (
	"context"
	"iter"
	"time"

	decl "k8s.io/apiserver/pkg/cel"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Facts is what is known of the cluster, kept by informers: nothing is listed while a request waits.
type Facts interface {
	// Synced says whether every informer behind the facts has synced.
	Synced() bool
	// Age is the time since the facts were last known to be current.
	Age(now time.Time) time.Duration
	// Nodes counts those of which limits take a share: neither control plane nor being deleted.
	Nodes() int
}

// Stored finds stored objects of our own kinds in caches.
type Stored interface {
	// Synced says whether the cache of a kind is filled.
	Synced(ctx context.Context, kind string) bool
	// Get gives an object, nil when there is none.
	Get(ctx context.Context, kind, namespace, name string) (client.Object, error)
	// All are the objects of a kind, in the order of their names, so that equal questions get equal answers. They are the cache's own: nobody may change them.
	All(ctx context.Context, kind string) (iter.Seq[client.Object], error)
}

// factsType declares what rules see as facts.
func factsType() *decl.DeclType {
	return decl.NewObjectType("Facts", map[string]*decl.DeclField{
		"synced":     decl.NewDeclField("synced", decl.BoolType, true, nil, nil),
		"ageSeconds": decl.NewDeclField("ageSeconds", decl.IntType, true, nil, nil),
		"nodes":      decl.NewDeclField("nodes", decl.IntType, true, nil, nil),
	})
}

func stringType(length int64) *decl.DeclType {
	t := *decl.StringType
	t.MaxElements = length
	return &t
}

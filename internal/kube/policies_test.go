package kube

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// policyShelf is a cache with some objects and an informer that has synced or not.
type policyShelf struct {
	cache.Cache
	reader client.Reader
	synced bool
	err    error
	asked  schema.GroupVersionKind
}

type policyInformer struct {
	cache.Informer
	synced bool
}

func (i policyInformer) HasSynced() bool { return i.synced }

func (s *policyShelf) GetInformerForKind(_ context.Context, kind schema.GroupVersionKind, _ ...cache.InformerGetOption) (cache.Informer, error) {
	s.asked = kind
	return policyInformer{synced: s.synced}, s.err
}

func (s *policyShelf) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return s.reader.Get(ctx, key, object, options...)
}

// List gives them in another order than their names': a cache has none.
func (s *policyShelf) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := s.reader.List(ctx, list, options...)
	items, extracted := meta.ExtractList(list)
	slices.Reverse(items)
	return errors.Join(err, extracted, meta.SetList(list, items))
}

func policiesOver(t *testing.T, s *policyShelf, names ...string) *Policies {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, name := range names {
		set := &v1alpha1.ConditionSet{}
		set.Name = name
		builder.WithObjects(set)
	}
	s.reader = builder.Build()
	return &Policies{Cache: s, Scheme: scheme}
}

func TestPoliciesAreFoundInTheCache(t *testing.T) {
	p := policiesOver(t, &policyShelf{}, "a", "b", "c")
	if got, err := p.Get(t.Context(), "ConditionSet", "", "b"); err != nil || got == nil || got.GetName() != "b" {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := p.Get(t.Context(), "ConditionSet", "", "z"); err != nil || got != nil {
		t.Errorf("an object that isn't there: got %v, %v", got, err)
	}
	if _, err := p.Get(t.Context(), "Unicorn", "", "z"); err == nil {
		t.Error("a kind that doesn't exist gives no error")
	}
	all, err := p.All(t.Context(), "ConditionSet")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for object := range all {
		if names = append(names, object.GetName()); len(names) == 2 {
			break // whoever has no more time leaves the loop
		}
	}
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("got %v", names)
	}
	if _, err := p.All(t.Context(), "Unicorn"); err == nil {
		t.Error("a kind that doesn't exist gives no error")
	}
}

func TestACacheThatIsNotFilledIsNotAsked(t *testing.T) {
	for name, c := range map[string]struct {
		policyShelf policyShelf
		want        bool
	}{
		"filled":          {policyShelf{synced: true}, true},
		"being filled":    {policyShelf{}, false},
		"no CRD for that": {policyShelf{synced: true, err: errors.New("no match")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := policiesOver(t, &c.policyShelf).Synced(t.Context(), "ConditionSet"); got != c.want {
				t.Errorf("synced %v", got)
			}
			if c.policyShelf.asked.Kind != "ConditionSet" || c.policyShelf.asked.Group != "autohealer.resourcestack.com" {
				t.Errorf("asked for %v", c.policyShelf.asked)
			}
		})
	}
}

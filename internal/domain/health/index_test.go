package health

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestWhoIsAffected(t *testing.T) {
	deployment := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	worker := schema.GroupVersionKind{Group: "e.org", Version: "v1", Kind: "Worker"}
	target := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: "a", Name: name}
	}
	selector := labels.SelectorFromSet(labels.Set{"app": "x"})
	x := &Index[types.NamespacedName]{}
	x.SetRefs(target("by-name"), []Ref{{Kind: deployment, Namespace: "a", Name: "d"}})
	x.SetRefs(target("by-labels"), []Ref{{Kind: deployment, Namespace: "a", Selector: selector}})
	x.SetRefs(target("everywhere"), []Ref{{Kind: deployment, Selector: selector}})
	x.SetRefs(target("another"), []Ref{{Kind: worker, Namespace: "a", Name: "d"}, {Kind: deployment, Namespace: "b", Name: "d"}})
	for name, c := range map[string]struct {
		namespace, name string
		before, after   labels.Set
		want            []string
	}{
		"of that name":           {"a", "d", nil, nil, []string{"by-name"}},
		"of these labels":        {"a", "e", labels.Set{"app": "x"}, labels.Set{"app": "x"}, []string{"by-labels", "everywhere"}},
		"that had these labels":  {"a", "e", labels.Set{"app": "x"}, labels.Set{"app": "y"}, []string{"by-labels", "everywhere"}},
		"that gets these labels": {"a", "e", nil, labels.Set{"app": "x"}, []string{"by-labels", "everywhere"}},
		"in another namespace":   {"c", "d", labels.Set{"app": "x"}, labels.Set{"app": "x"}, []string{"everywhere"}},
		"that nobody looks at":   {"a", "e", nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := x.Affected(deployment, types.NamespacedName{Namespace: c.namespace, Name: c.name}, c.before, c.after)
			if len(got) != len(c.want) {
				t.Fatalf("affected are %v, not %v", got, c.want)
			}
			for _, name := range c.want {
				if !got.Has(target(name)) {
					t.Errorf("%s isn't affected", name)
				}
			}
		})
	}
	x.SetRefs(target("by-name"), []Ref{{Kind: deployment, Namespace: "a", Name: "other"}})
	if got := x.Affected(deployment, types.NamespacedName{Namespace: "a", Name: "d"}); len(got) != 0 {
		t.Errorf("affected by what isn't looked at any more: %v", got)
	}
	x.SetRefs(target("by-labels"), []Ref{{Kind: deployment, Namespace: "a", Selector: labels.SelectorFromSet(labels.Set{"app": "z"})}})
	if got := x.Affected(deployment, types.NamespacedName{Namespace: "a", Name: "e"}, labels.Set{"app": "x"}); len(got) != 1 {
		t.Errorf("affected by a selector of before: %v", got)
	}
	x.SetRefs(target("nothing"), []Ref{{Kind: deployment, Namespace: "a"}}) // as a check in Go may say
	if got := x.Affected(deployment, types.NamespacedName{Namespace: "a", Name: "e"}, labels.Set{"app": "x"}); got.Has(target("nothing")) {
		t.Error("affected by objects of any name")
	}
	for _, name := range []string{"by-name", "by-labels", "everywhere", "another", "nothing"} {
		x.SetRefs(target(name), nil)
	}
	if len(x.watchers)+len(x.refs) != 0 {
		t.Errorf("left behind: %v, %v", x.watchers, x.refs)
	}
}

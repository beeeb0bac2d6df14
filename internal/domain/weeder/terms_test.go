package weeder_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

func requirement(key string, operator metav1.LabelSelectorOperator, values ...string) v1alpha1.LabelSelectorRequirement {
	return v1alpha1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func TestContradictionsOfSelectors(t *testing.T) {
	for name, test := range map[string]struct {
		labels       map[string]string
		expressions  []v1alpha1.LabelSelectorRequirement
		contradicted bool
	}{
		"one label":                          {labels: map[string]string{"app": "a"}},
		"a label and itself":                 {labels: map[string]string{"app": "a"}, expressions: []v1alpha1.LabelSelectorRequirement{requirement("app", "In", "a", "b")}},
		"a label and others":                 {labels: map[string]string{"app": "a"}, expressions: []v1alpha1.LabelSelectorRequirement{requirement("app", "In", "b")}, contradicted: true},
		"two lists that meet":                {expressions: []v1alpha1.LabelSelectorRequirement{requirement("app", "In", "a", "b"), requirement("app", "In", "b", "c")}},
		"two lists apart":                    {expressions: []v1alpha1.LabelSelectorRequirement{requirement("app", "In", "a"), requirement("app", "In", "b")}, contradicted: true},
		"a list without all of it":           {expressions: []v1alpha1.LabelSelectorRequirement{requirement("app", "In", "a"), requirement("app", "NotIn", "a", "b")}, contradicted: true},
		"a list without some of it":          {expressions: []v1alpha1.LabelSelectorRequirement{requirement("app", "In", "a", "c"), requirement("app", "NotIn", "a", "b")}},
		"there and not there":                {expressions: []v1alpha1.LabelSelectorRequirement{requirement("app", "Exists"), requirement("app", "DoesNotExist")}, contradicted: true},
		"a value of what isn't there":        {labels: map[string]string{"app": "a"}, expressions: []v1alpha1.LabelSelectorRequirement{requirement("app", "DoesNotExist")}, contradicted: true},
		"no value of what isn't there":       {expressions: []v1alpha1.LabelSelectorRequirement{requirement("app", "NotIn", "a"), requirement("app", "DoesNotExist")}},
		"different labels never contradict":  {labels: map[string]string{"app": "a"}, expressions: []v1alpha1.LabelSelectorRequirement{requirement("role", "DoesNotExist")}},
		"there, and none of several values":  {expressions: []v1alpha1.LabelSelectorRequirement{requirement("app", "Exists"), requirement("app", "NotIn", "a")}},
		"the seed's selector of controllers": {expressions: []v1alpha1.LabelSelectorRequirement{requirement("gardener.cloud/role", "In", "controlplane"), requirement("role", "NotIn", "main", "apiserver")}},
	} {
		t.Run(name, func(t *testing.T) {
			selector := v1alpha1.LabelSelector{MatchLabels: test.labels, MatchExpressions: test.expressions}
			wc := &v1alpha1.WeederConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: v1alpha1.WeederConfigSpec{
				ServicesAndDependantSelectors: map[string]v1alpha1.DependantSelectors{"db": {PodSelectors: []v1alpha1.LabelSelector{selector}}},
			}}
			terms := weeder.TermsOf(wc, "autohealer-system")
			var want []string
			if test.contradicted {
				want = []string{"podSelectors[0] of db: app"}
			}
			if !slices.Equal(terms.ContradictorySelectors, want) || len(terms.InvalidSelectors) > 0 {
				t.Errorf("contradictory %q, invalid %q", terms.ContradictorySelectors, terms.InvalidSelectors)
			}
		})
	}
}

func TestTermsOfTenants(t *testing.T) {
	for _, test := range []struct {
		namespace, own, account string
		want                    weeder.Terms
	}{
		{"shop", "autohealer-system", "", weeder.Terms{Tenant: true, OwnNamespace: "autohealer-system", Account: "default"}},
		{"shop", "autohealer-system", "weeder", weeder.Terms{Tenant: true, OwnNamespace: "autohealer-system", Account: "weeder"}},
		{"autohealer-system", "autohealer-system", "", weeder.Terms{OwnNamespace: "autohealer-system", Account: "default"}},
		{"", "", "", weeder.Terms{Tenant: true, Account: "default"}},
	} {
		wc := &v1alpha1.WeederConfig{ObjectMeta: metav1.ObjectMeta{Namespace: test.namespace}, Spec: v1alpha1.WeederConfigSpec{ServiceAccountName: test.account}}
		if got := weeder.TermsOf(wc, test.own); got.Tenant != test.want.Tenant || got.OwnNamespace != test.want.OwnNamespace || got.Account != test.want.Account {
			t.Errorf("%s under %q: %+v", test.namespace, test.own, got)
		}
	}
}

func TestSelectorsThatCantBeRead(t *testing.T) {
	wc := &v1alpha1.WeederConfig{Spec: v1alpha1.WeederConfigSpec{
		NamespaceSelector: &v1alpha1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}},
		ServicesAndDependantSelectors: map[string]v1alpha1.DependantSelectors{"db": {PodSelectors: []v1alpha1.LabelSelector{
			{MatchLabels: map[string]string{"app": "api"}},
			{MatchExpressions: []v1alpha1.LabelSelectorRequirement{requirement("app", "In")}},
		}}},
	}}
	got := weeder.TermsOf(wc, "").InvalidSelectors
	if len(got) != 2 || got[0] != `podSelectors[1] of db: for 'in', 'notin' operators, values set can't be empty` && got[0][:24] != "podSelectors[1] of db: v" {
		t.Errorf("%q", got)
	}
}

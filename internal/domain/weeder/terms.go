package weeder

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Terms are what a config says by itself, whatever the cluster is like.
type Terms struct {
	// Tenant: the config is outside Autohealer's own namespace, and acts with its account's rights.
	Tenant bool
	// OwnNamespace is Autohealer's, "" when it isn't known.
	OwnNamespace string
	// Account is the ServiceAccount, by its default where the spec names none.
	Account string
	// InvalidSelectors can't be read, ContradictorySelectors match no pod: where they are and why, up to sample.Size.
	InvalidSelectors       []string
	ContradictorySelectors []string
	// Unreadable says why the spec can't be read.
	Unreadable string
}

// TermsOf reads a config's terms.
func TermsOf(wc *v1alpha1.WeederConfig, ownNamespace string) Terms {
	t := Terms{Tenant: ownNamespace == "" || wc.Namespace != ownNamespace, OwnNamespace: ownNamespace, Account: wc.Spec.ServiceAccountName}
	if t.Account == "" {
		t.Account = defaultAccount
	}
	for _, service := range slices.Sorted(maps.Keys(wc.Spec.ServicesAndDependantSelectors)) {
		for i, s := range wc.Spec.ServicesAndDependantSelectors[service].PodSelectors {
			t.judge(fmt.Sprintf("podSelectors[%d] of %s", i, service), &s)
		}
	}
	if wc.Spec.NamespaceSelector != nil {
		t.judge("namespaceSelector", wc.Spec.NamespaceSelector)
	}
	if _, err := NewConfig(wc, ownNamespace); err != nil {
		t.Unreadable = err.Error()
	}
	return t
}

func (t *Terms) judge(where string, s *v1alpha1.LabelSelector) {
	if _, err := s.AsSelector(); err != nil {
		sample.Once(&t.InvalidSelectors, where+": "+strings.Join(strings.Fields(err.Error()), " "))
		return
	}
	if key := contradiction(s); key != "" {
		sample.Once(&t.ContradictorySelectors, where+": "+key)
	}
}

// demand is what a selector asks of one label.
type demand struct {
	present, absent bool
	// among are the values that it must be one of, nil for any; not are those that it must not have.
	among, not sets.Set[string]
}

// contradiction is the first key of which a selector asks what no object can have; "" when there is none.
func contradiction(s *v1alpha1.LabelSelector) string {
	demands := map[string]*demand{}
	of := func(key string) *demand {
		if demands[key] == nil {
			demands[key] = &demand{not: sets.New[string]()}
		}
		return demands[key]
	}
	for key, value := range s.MatchLabels {
		of(key).beAmong(value)
	}
	for _, r := range s.MatchExpressions {
		d := of(r.Key)
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			d.beAmong(r.Values...)
		case metav1.LabelSelectorOpNotIn:
			d.not.Insert(r.Values...)
		case metav1.LabelSelectorOpExists:
			d.present = true
		case metav1.LabelSelectorOpDoesNotExist:
			d.absent = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(demands)) {
		if demands[key].impossible() {
			return key
		}
	}
	return ""
}

func (d *demand) beAmong(values ...string) {
	d.present = true
	if d.among == nil {
		d.among = sets.New(values...)
		return
	}
	d.among = d.among.Intersection(sets.New(values...))
}

func (d *demand) impossible() bool {
	return d.present && d.absent || d.among != nil && d.among.Difference(d.not).Len() == 0
}

package probe

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/docs"
)

// HintTargetRole tells whoever Autohealer isn't let read or scale things for what to do.
const HintTargetRole = "bind the ClusterRole autohealer-probe-target to Autohealer's account there (" + docs.Base + "docs/concepts/probe-configs.md)"

// Terms are what a config says by itself, whatever the cluster is like.
type Terms struct {
	// Tenant: the config is outside Autohealer's own namespace, and acts with its account's rights.
	Tenant bool
	// OwnNamespace is Autohealer's, "" when it isn't known.
	OwnNamespace string
	// Account is the ServiceAccount, by its default where the spec names none.
	Account string
	// Scales are the dependents as the authorizer knows them: group/resource/name, such as apps/deployments/web. A resource
	// is the usual plural of its kind; for a kind with another one the account is asked for a right that nobody gives.
	Scales []string
	// Unreadable says why the spec can't be read.
	Unreadable string
}

// TermsOf reads a config's terms.
func TermsOf(pc *v1alpha1.ProbeConfig, ownNamespace string) Terms {
	t := Terms{Tenant: ownNamespace == "" || pc.Namespace != ownNamespace, OwnNamespace: ownNamespace, Account: AccountOf(pc)}
	for _, d := range pc.Spec.DependentResourceInfos {
		plural, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(d.Ref.APIVersion, d.Ref.Kind))
		t.Scales = append(t.Scales, plural.Group+"/"+plural.Resource+"/"+d.Ref.Name)
	}
	if _, err := NewConfig(pc, ownNamespace); err != nil {
		t.Unreadable = err.Error()
	}
	return t
}

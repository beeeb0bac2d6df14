// Package kinds is the registry: one entry a kind, plain data. Whoever goes over the kinds walks it; what a kind does beside that, such
// as its controller, is given to whoever walks by the kind's name, and a kind that lacks it is an error there.
package kinds

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Object is of one of our kinds: their statuses have this in common.
type Object interface {
	client.Object
	GetObservedGeneration() int64
	GetConditions() []metav1.Condition
}

// Kind is one of ours.
type Kind struct {
	// Object and List are empty ones, to be copied.
	Object Object
	List   client.ObjectList
	// Namespaced is what its CRD says, too.
	Namespaced bool
	// Tenants may write it: who is admin of a namespace, without a word of the cluster's. That is only for a namespaced kind whose policies
	// need the rights of an account of that namespace for what they do, or touch nothing but that namespace's own; else the namespace's
	// admins would act with the manager's rights.
	Tenants bool
	// RulesOver policies, and is none: it does nothing by itself, and no exception is made for it.
	RulesOver bool
	// Finalizer: what its policies did is undone before they go.
	Finalizer bool
	// Terms are what rules may read of an object and of the rules in force; nil when there is nothing of the kind.
	Terms *Terms
	// Forecast is the type of what rules may read of the cluster and the object in it; nil when there is nothing of the kind.
	Forecast reflect.Type
}

// Terms are what an object says by itself, worked out by more than CEL could do within its costs.
type Terms struct {
	Type reflect.Type
	// Of an object that is stored in place of an old one: nil when there is none, an empty one when it can't be read. Nil for a kind
	// whose terms the guard itself knows.
	Of func(object, old client.Object, s Setting) any
}

// Setting is where terms are asked for.
type Setting struct {
	// Requested: somebody wants the object to be stored. Else it is.
	Requested bool
	// OwnNamespace is Autohealer's; "" when it isn't known.
	OwnNamespace string
}

func terms[T Object, R any](of func(object, old T, s Setting) R) *Terms {
	return &Terms{Type: reflect.TypeFor[R](), Of: func(object, old client.Object, s Setting) any {
		stored, _ := old.(T)
		return of(object.(T), stored, s)
	}}
}

// Name is the kind's, as in ConditionSet.
func (k *Kind) Name() string { return reflect.TypeOf(k.Object).Elem().Name() }

// Plural is the name of its resource, as in conditionsets.
func (k *Kind) Plural() string {
	plural, _ := meta.UnsafeGuessKindToResource(k.GVK())
	return plural.Resource
}

// GVK of its objects.
func (k *Kind) GVK() schema.GroupVersionKind { return v1alpha1.GroupVersion.WithKind(k.Name()) }

// New gives an empty object.
func (k *Kind) New() Object { return k.Object.DeepCopyObject().(Object) }

// NewList gives an empty list.
func (k *Kind) NewList() client.ObjectList { return k.List.DeepCopyObject().(client.ObjectList) }

// Policies are the kinds that act, or would.
func Policies() []*Kind {
	return slices.DeleteFunc(slices.Clone(All), func(k *Kind) bool { return k.RulesOver })
}

// Named gives the kind of a name; nil when none of ours has it.
func Named(name string) *Kind {
	for _, k := range All {
		if k.Name() == name {
			return k
		}
	}
	return nil
}

// Names of kinds.
func Names(kinds []*Kind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name()
	}
	return names
}

package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

// known has the types of what planners read.
var known = func() *runtime.Scheme {
	types := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(types))
	utilruntime.Must(v1alpha1.AddToScheme(types))
	return types
}()

// Objects are those of a cluster at one moment, with what they are the answers to. They answer as an API server does: what isn't in an
// answer doesn't exist. Of what wasn't asked for nothing is known, which is guard.ErrNotKnown. They are safe for concurrent use.
type Objects struct {
	mu sync.RWMutex
	by map[schema.GroupKind]map[types.NamespacedName]object // needs mu
	// answered is what was asked for, as the arguments of kubectl get; needs mu.
	answered sets.Set[string]
}

// object is as the API server has it, and as Go knows it; typed is nil for kinds that it doesn't know.
type object struct {
	raw   *unstructured.Unstructured
	typed client.Object
}

// Behind what was asked for: there is more, there is no such kind, or it may not be read.
const (
	notAll    = " (not all)"
	notServed = " (not served)"
	forbidden = " (forbidden)"
	ofScale   = " --subresource=scale"
)

// query is how an object of a name is asked for, or all of a namespace, or all that there are.
func query(kind schema.GroupKind, key types.NamespacedName, selector string) string {
	text := kind.String()
	if key.Name != "" {
		text += "/" + key.Name
	}
	if key.Namespace != "" {
		text += " -n " + key.Namespace
	} else if key.Name == "" {
		text += " -A"
	}
	if selector != "" {
		text += " -l " + selector
	}
	return text
}

// unserved says that there is no kind of a version, or nothing of it by that name.
func unserved(kind schema.GroupVersionKind, of string) string {
	return inVersion(kind) + of + notServed
}

// scaleless says that an object has no scale in a version, since it doesn't exist; whether another version has scales it doesn't say.
func scaleless(kind schema.GroupVersionKind, key types.NamespacedName) string {
	return inVersion(kind) + "/" + key.Name + " -n " + key.Namespace + ofScale
}

func inVersion(kind schema.GroupVersionKind) string {
	return kind.Kind + "." + kind.Version + "." + kind.Group
}

func newObjects() *Objects {
	return &Objects{by: map[schema.GroupKind]map[types.NamespacedName]object{}, answered: sets.New[string]()}
}

func notInFacts(what string, args ...any) error {
	return fmt.Errorf("%w: %s not in the facts", guard.ErrNotKnown, fmt.Sprintf(what, args...))
}

// store takes in an object in place of the one of its name.
func (o *Objects) store(raw *unstructured.Unstructured) error {
	one := object{raw: raw}
	if of, err := known.New(raw.GroupVersionKind()); err == nil {
		typed, is := of.(client.Object)
		if !is {
			return errors.New("it is a list or an answer, and what belongs here is an object")
		}
		if err := into(raw, typed); err != nil {
			return err
		}
		one.typed = typed
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	kind := raw.GroupVersionKind().GroupKind()
	if o.by[kind] == nil {
		o.by[kind] = map[types.NamespacedName]object{}
	}
	o.by[kind][keyOf(raw)] = one
	return nil
}

var (
	secretKind     = corev1.SchemeGroupVersion.WithKind("Secret")
	scaleKind      = autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	definitionKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
)

// keyOf names an object among those of its kind. Scales have the names of what they are of, whatever kind and version that is of.
func keyOf(raw *unstructured.Unstructured) types.NamespacedName {
	key := client.ObjectKeyFromObject(raw)
	if raw.GroupVersionKind().GroupKind() == scaleKind.GroupKind() {
		for _, of := range raw.GetOwnerReferences() {
			key.Name = inVersion(schema.FromAPIVersionAndKind(of.APIVersion, of.Kind)) + "/" + of.Name
		}
	}
	return key
}

// into copies an object. The error is in the words of a manifest.
func into(raw *unstructured.Unstructured, object client.Object) error {
	if whole, ok := object.(*unstructured.Unstructured); ok {
		whole.Object = runtime.DeepCopyJSON(raw.Object)
		return nil
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, object)
	if err == nil {
		return nil
	}
	text, _ := json.Marshal(raw.Object) // which was JSON before
	if again := json.Unmarshal(text, object); again != nil {
		err = again
	}
	if message, isMisfit := guard.TypeMismatch(err, ""); isMisfit {
		return errors.New(message)
	}
	return err
}

// answer takes in that all is there that was asked for.
func (o *Objects) answer(query string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered.Insert(query)
	o.answered.Delete(query + notAll)
}

// forget drops all of a kind.
func (o *Objects) forget(kind schema.GroupKind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.by, kind)
}

// covers says whether that was asked for, or all of the kind or the namespace.
func (o *Objects) covers(kind schema.GroupKind, key types.NamespacedName, selector string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.answered.HasAny(query(kind, types.NamespacedName{}, ""), query(kind, types.NamespacedName{Namespace: key.Namespace}, ""), query(kind, key, selector))
}

func (o *Objects) has(answered string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.answered.Has(answered)
}

func (o *Objects) find(kind schema.GroupKind, key types.NamespacedName) (object, bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	one, there := o.by[kind][key]
	return one, there
}

// all of a kind, by namespace and name.
func (o *Objects) all(kind schema.GroupKind) []object {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return slices.SortedFunc(maps.Values(o.by[kind]), func(a, b object) int { return kube.ByName(a.raw, b.raw) })
}

// allOf are the objects of a Go type's kind, by namespace and name. Nobody may change them.
func allOf[T any, P interface {
	*T
	client.Object
}](o *Objects) (all []P) {
	kind, err := apiutil.GVKForObject(P(new(T)), known)
	utilruntime.Must(err)
	for _, one := range o.all(kind.GroupKind()) {
		all = append(all, one.typed.(P))
	}
	return all
}

// one is the object of a Go type's kind and a name; nil when there is none. Nobody may change it.
func one[T any, P interface {
	*T
	client.Object
}](o *Objects, key types.NamespacedName) P {
	kind, err := apiutil.GVKForObject(P(new(T)), known)
	utilruntime.Must(err)
	found, _ := o.find(kind.GroupKind(), key)
	typed, _ := found.typed.(P)
	return typed
}

// Get gives an object.
func (o *Objects) Get(_ context.Context, key client.ObjectKey, as client.Object, _ ...client.GetOption) error {
	kind, err := apiutil.GVKForObject(as, known)
	if err != nil {
		return err
	}
	one, there := o.find(kind.GroupKind(), key)
	switch {
	case there && one.raw.GroupVersionKind() == kind:
		return into(one.raw, as)
	case !there && o.covers(kind.GroupKind(), key, ""):
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		return apierrors.NewNotFound(plural.GroupResource(), key.Name)
	}
	return o.unknown(kind, query(kind.GroupKind(), key, ""), "%s %s is", kind.Kind, strings.TrimPrefix(key.String(), "/"))
}

// unknown is the error of what isn't known; that a kind isn't served, or that something may not be read, is.
func (o *Objects) unknown(kind schema.GroupVersionKind, query, what string, args ...any) error {
	switch plural, _ := meta.UnsafeGuessKindToResource(kind); {
	case o.has(unserved(kind, "")):
		return &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	case o.has(query + forbidden):
		return apierrors.NewForbidden(plural.GroupResource(), "", errors.New("the user who wrote the facts may not read it"))
	}
	return notInFacts(what, args...)
}

// List gives objects by namespace and labels. Of fields there is no index: who asks for one looks at all that it gets. The answer goes on
// where it isn't all there is, but there is nothing more to get.
func (o *Objects) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	kind, err := apiutil.GVKForObject(list, known)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	of := client.ListOptions{LabelSelector: labels.Everything()}
	of.ApplyOptions(options)
	key, selector := types.NamespacedName{Namespace: of.Namespace}, of.LabelSelector.String()
	more := o.has(query(kind.GroupKind(), key, selector) + notAll)
	switch {
	case !more && !o.covers(kind.GroupKind(), key, selector):
		return o.unknown(kind, query(kind.GroupKind(), key, selector), "objects of %s are", kind.Kind)
	case more:
		list.SetContinue("more")
	}
	var found []runtime.Object
	for _, one := range o.all(kind.GroupKind()) {
		if of.Continue != "" || of.Namespace != "" && one.raw.GetNamespace() != of.Namespace || !of.LabelSelector.Matches(labels.Set(one.raw.GetLabels())) {
			continue
		}
		if _, isRaw := list.(*unstructured.UnstructuredList); isRaw {
			found = append(found, one.raw)
		} else {
			found = append(found, one.typed)
		}
	}
	return meta.SetList(list, found)
}

package guard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Validated is an object that the rules in force admitted. Only Admit makes one that is valid, so code that asks for a
// Validated can't be given an object that nobody checked.
type Validated[T client.Object] struct {
	object      T
	uid         types.UID
	generation  int64
	ruleSetHash string
	observes    bool
}

// Valid is false for the zero value, on which nothing may act.
func (v Validated[T]) Valid() bool { return v.ruleSetHash != "" && v.uid != "" }

// Enforces says that it is valid and that its policy isn't in mode Observe: some rules admit a policy only because that does nothing.
func (v Validated[T]) Enforces() bool { return v.Valid() && !v.observes }

// Object is a copy of what was judged. It panics on the zero value.
func (v Validated[T]) Object() T {
	if !v.Valid() {
		panic("guard: the object of a Validated that nobody made")
	}
	return v.object.DeepCopyObject().(T)
}

// UID of the object.
func (v Validated[T]) UID() types.UID { return v.uid }

// Generation that was judged.
func (v Validated[T]) Generation() int64 { return v.generation }

// RuleSetHash names the rules that judged.
func (v Validated[T]) RuleSetHash() string { return v.ruleSetHash }

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}()

// Admit judges a stored object by the rules that hold at run time: those over the object itself. Rules over plan, facts,
// the request or the old object judge creations and changes only; acting on them later would undo a policy because the
// cluster, not the policy, changed. The Validated is the zero value unless the verdict admits the object.
func Admit[T client.Object](ctx context.Context, g *Guard, obj T) (Validated[T], Verdict) {
	obj = obj.DeepCopyObject().(T) // neither planners nor whoever acts share it with a cache
	verdict, content, err := g.admit(ctx, obj)
	if err == nil && obj.GetUID() == "" {
		err = fmt.Errorf("%q was never stored: it has no UID", obj.GetName())
	}
	if err != nil {
		verdict.skip(unreadable(err))
	}
	if !verdict.Allowed {
		return Validated[T]{}, verdict
	}
	return Validated[T]{
		object: obj, uid: obj.GetUID(), generation: obj.GetGeneration(),
		ruleSetHash: verdict.RuleSetHash, observes: observes(content),
	}, verdict
}

// unreadable refuses an object that can't be judged at all.
func unreadable(err error) Skip {
	return Skip{Rule: "guard/object", Severity: Deny, Reason: err.Error()}
}

func (g *Guard) admit(ctx context.Context, obj client.Object) (Verdict, map[string]any, error) {
	rules := g.rules.Load()
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return Verdict{}, nil, fmt.Errorf("find the kind of %T: %w", obj, err)
	}
	kind := rules.kinds[gvk.Kind]
	if kind == nil {
		return Verdict{}, nil, fmt.Errorf("there are no rules for kind %q", gvk.Kind)
	}
	judged, err := judgedOf(gvk.Kind, obj)
	if err != nil {
		return Verdict{RuleSetHash: kind.hash}, nil, err
	}
	return g.evaluation(ctx, rules, kind, judged).atRunTime(), judged.content, nil
}

// SpecHash is the SHA-256 of an object's spec, in hexadecimal: equal specs give equal hashes, whatever the order of their
// maps, and whether or not they write down fields that say nothing. It isn't cut short: who writes both specs could look
// for two with the same hash, one to be excepted and one to be used.
func SpecHash(obj client.Object) (string, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return "", fmt.Errorf("find the kind of %T: %w", obj, err)
	}
	judged, err := judgedOf(gvk.Kind, obj)
	if err != nil {
		return "", err
	}
	return hashOf(judged.content)
}

// hashOf hashes content that judgedOf gave: webhook, controllers and tools have the same text then.
func hashOf(content map[string]any) (string, error) {
	text, err := json.Marshal(content["spec"])
	if err != nil {
		return "", fmt.Errorf("encode spec: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

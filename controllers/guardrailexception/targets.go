package guardrailexception

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
)

// targets are the kinds that an exception may name, each with an empty object.
type targets map[string]client.Object

func newTargets(scheme *runtime.Scheme, objects []client.Object) (targets, error) {
	all := targets{}
	for _, object := range objects {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return nil, fmt.Errorf("find the kind of %T: %w", object, err)
		}
		all[kind.Kind] = object
	}
	return all, nil
}

// target is an exception's target as it is stored now.
type target struct {
	found bool
	hash  string
	// lifts are the rules that exceptions keep from refusing the target.
	lifts []guard.Lifted
	// recheckAt is when they may say something else without any event; zero for never.
	recheckAt time.Time
}

// read reads a target from the cache, and what the rules say of it.
func (t targets) read(ctx context.Context, reader client.Reader, g *guard.Guard, ref v1alpha1.ExceptionTarget) (target, error) {
	empty := t[ref.Kind]
	if empty == nil {
		return target{}, nil
	}
	object := empty.DeepCopyObject().(client.Object)
	if err := reader.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, object); apierrors.IsNotFound(err) {
		return target{}, nil
	} else if err != nil {
		return target{}, fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	hash, err := guard.SpecHash(object)
	if err != nil {
		return target{}, fmt.Errorf("hash the spec of %s %s: %w", ref.Kind, ref.Name, err)
	}
	_, verdict := guard.Admit(ctx, g, object)
	return target{found: true, hash: hash, lifts: verdict.Lifted, recheckAt: verdict.RecheckAt}, nil
}

package guardrailexception

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// target is an exception's target as it is stored now.
type target struct {
	found bool
	hash  string
	// lifts are the rules that exceptions keep from refusing the target.
	lifts []guard.Lifted
	// recheckAt is when they may say something else without any event; zero for never.
	recheckAt time.Time
}

// readTarget reads a target from the cache, and what the rules say of it.
func readTarget(ctx context.Context, reader client.Reader, g *guard.Guard, ref v1alpha1.ExceptionTarget) (target, error) {
	kind := kinds.Named(ref.Kind)
	if kind == nil || kind.RulesOver {
		return target{}, nil
	}
	object := kind.New()
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

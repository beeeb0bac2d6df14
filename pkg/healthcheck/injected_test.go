package healthcheck

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// sourceAndTarget is a check with the methods of Gardener's library since it calls the seed source, and the shoot target.
type sourceAndTarget struct{ source, target client.Client }

// InjectSourceClient takes that of the seed.
func (s *sourceAndTarget) InjectSourceClient(c client.Client) { s.source = c }

// InjectTargetClient takes that of the shoot.
func (s *sourceAndTarget) InjectTargetClient(c client.Client) { s.target = c }

// Check compares what both say.
func (s *sourceAndTarget) Check(context.Context, types.NamespacedName) (*SingleCheckResult, error) {
	return &SingleCheckResult{Status: ConditionFalse, Detail: s.source.(*world).says + " and " + s.target.(*world).says}, nil
}

func TestChecksMayCallTheSeedSourceAndTheShootTarget(t *testing.T) {
	r, stored := reconcilerOf(For(gadget).Check("X", "x", func() HealthCheck { return &sourceAndTarget{} }), interceptor.Funcs{})
	r.runner.seed, r.runner.shoots = &world{says: "seed"}, theShoot{&world{says: "shoot"}}
	if _, err := r.Reconcile(t.Context(), ofG); err != nil {
		t.Fatal(err)
	}
	if got := conditionOf(t, stored, "X"); !strings.HasSuffix(got, "x: seed and shoot") {
		t.Errorf("it is %s", got)
	}
}

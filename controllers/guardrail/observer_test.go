package guardrail

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/policy"
)

// rights say the same of every account.
type rights struct{ granted bool }

func (r *rights) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	if r.granted {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestRightsThatARuleOverGuardrailsAsksForAreAskedAgain(t *testing.T) {
	rails := []*v1alpha1.Guardrail{stored(t, "{limits: {maxTaintedNodes: 50%}}"), stored(t, `{rules: [{name: owned, kinds: [Guardrail],
		expression: "authorizer.serviceAccount('a', 'owner').group('').resource('nodes').check('patch').allowed()"}]}`)}
	rails[1].Name = "org"
	asked, clock := &rights{granted: true}, testingclock.NewFakePassiveClock(noon)
	g, err := guard.New(guard.Options{Authorizer: asked, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	o := &controller{Options: Options{Guard: g}}
	if again := o.use(t.Context(), rails); !again.Equal(noon.Add(45*time.Second)) || g.Policy().Limits.MaxTaintedNodes.String() != "50%" {
		t.Fatalf("asked again at %s, limit %s", again, g.Policy().Limits.MaxTaintedNodes)
	}
	asked.granted = false
	clock.SetTime(noon.Add(45 * time.Second))
	if again := o.use(t.Context(), rails); !again.Equal(noon.Add(90*time.Second)) || g.Policy().Limits.MaxTaintedNodes.String() != "10%" {
		t.Errorf("asked again at %s, limit %s: a Guardrail that is refused loosens nothing", again, g.Policy().Limits.MaxTaintedNodes)
	}
	if result, ok := o.outcomeOf(rails[0]); !ok || result.Verdict.Allowed {
		t.Errorf("its status won't say so: %+v", result)
	}
}

func TestGuardrailsWithoutSuchRulesAreNotJudgedAgain(t *testing.T) {
	g, err := guard.New(guard.Options{Clock: testingclock.NewFakePassiveClock(noon)})
	if err != nil {
		t.Fatal(err)
	}
	if again := (&controller{Options: Options{Guard: g}}).use(t.Context(), []*v1alpha1.Guardrail{stored(t, "{paused: true}")}); !again.IsZero() {
		t.Errorf("judged again at %s", again)
	}
}

func TestAGuardrailThatIsGoneIsForgotten(t *testing.T) {
	key := types.NamespacedName{Name: "platform"}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	k := &policy.Keeper[*v1alpha1.Guardrail]{
		Steps: (&controller{}).steps(), Client: fake.NewClientBuilder().WithScheme(scheme).Build(), Clock: testingclock.NewFakePassiveClock(noon),
	}
	rejectsGauge.WithLabelValues(key.Name).Set(3)
	if _, err := k.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	left := make(chan prometheus.Metric, 10)
	if rejectsGauge.Collect(left); len(left) != 0 {
		t.Errorf("%d series are left", len(left))
	}
}

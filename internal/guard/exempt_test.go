package guard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	clocktesting "k8s.io/utils/clock/testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// weeding is a guard for which each WeederConfig would do this.
func weeding(t *testing.T, forecast weeder.Forecast, opts Options) *Guard {
	t.Helper()
	opts.Facts = &plainFacts{}
	opts.Planners = map[string]Planner{"WeederConfig": PlannerOf(func(*v1alpha1.WeederConfig, limit.Limits, time.Time) weeder.Forecast { return forecast })}
	if opts.Authorizer == nil {
		opts.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	}
	return under(t, newTestGuard(t, nil), opts)
}

// weederConfig has further fields in its spec.
func weederConfig(t *testing.T, more string) map[string]any {
	t.Helper()
	return object(t, fmt.Sprintf("{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: WeederConfig, metadata: {name: w, namespace: shop, uid: u1}, "+
		"spec: {servicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: api}}]}}%s}}", more))
}

func edited(t *testing.T, g *Guard, old, object map[string]any) Verdict {
	t.Helper()
	return g.Review(t.Context(), updating(t, old, object))
}

// TestAnExceptionEnds: who edits something else after its end is refused as before its beginning.
func TestAnExceptionEnds(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(noon)
	g := weeding(t, weeder.Forecast{BackingPods: 1, BackingPodNames: []string{"shop/api-0 (etcd)"}, Cycles: 1, CyclePaths: []string{"shop: api → etcd → api"}}, Options{Clock: clock})
	rules := []string{"weederconfig/dependency-cycle", "weederconfig/selects-own-pods"}
	stored := weederConfig(t, "")
	hash, err := hashOf(stored)
	if err != nil {
		t.Fatal(err)
	}
	g.SetExceptions([]*v1alpha1.GuardrailException{{
		ObjectMeta: metav1.ObjectMeta{Name: "migration", UID: "e1", CreationTimestamp: metav1.NewTime(noon)},
		Spec: v1alpha1.GuardrailExceptionSpec{
			RuleIDs: rules, TargetRef: v1alpha1.ExceptionTarget{Kind: "WeederConfig", Namespace: "shop", Name: "w"}, SpecHash: hash,
			Reason: "until etcd has moved, OPS-1", ExpiresAt: v1alpha1.Timestamp(noon.Add(time.Hour).Format(time.RFC3339)),
		},
	}})
	create := func() Verdict {
		return g.Review(t.Context(), creating(t, stored))
	}
	if v := create(); !v.Allowed || len(v.Lifted) != 2 {
		t.Fatalf("lifted %v: %s", v.Lifted, v.Message())
	}
	for _, after := range []time.Duration{30 * time.Minute, 2 * time.Hour} {
		clock.SetTime(noon.Add(after))
		for _, more := range []string{", watchDuration: 2m", ", cooldown: 20s", ", maxDeletionsPerWatch: 1"} {
			if v := edited(t, g, stored, weederConfig(t, more)); !slices.Equal(v.RuleIDs(), rules) {
				t.Errorf("after %s%s: refused by %v, want %v", after, more, v.RuleIDs(), rules)
			}
		}
		if v := edited(t, g, stored, weederConfig(t, ", mode: Observe")); !v.Allowed {
			t.Errorf("after %s it may not observe: %s", after, v.Message())
		}
	}
	if v := create(); !slices.Equal(v.RuleIDs(), rules) {
		t.Errorf("after its end: refused by %v", v.RuleIDs())
	}
}

// TestAnEditThatLetsAConfigActIsJudgedAnew: what did nothing because one rule refused it, and meanwhile breaks another, that
// isn't asked at run time, doesn't begin to act by an edit that mends the one.
func TestAnEditThatLetsAConfigActIsJudgedAnew(t *testing.T) {
	const rule = "weederconfig/selects-autohealer"
	may := map[string]bool{"system:serviceaccount:shop:able": true}
	g := weeding(t, weeder.Forecast{AutohealerPods: 1, AutohealerPodNames: []string{"shop/autohealer-0"}}, Options{
		Authorizer: asking(func(a authorizer.Attributes) bool { return may[a.GetUser().GetName()] }),
	})
	for name, c := range map[string]struct {
		old, object string
		refused     []string
	}{
		"it acted, and something else is edited":        {", serviceAccountName: able", ", serviceAccountName: able, cooldown: 20s", nil},
		"its account could not, and another can":        {", serviceAccountName: unable", ", serviceAccountName: able", []string{rule}},
		"its watchDuration was too long":                {", serviceAccountName: able, watchDuration: 1h", ", serviceAccountName: able, watchDuration: 5m", []string{rule}},
		"its account could not and can't, and it edits": {", serviceAccountName: unable", ", serviceAccountName: unable, cooldown: 20s", []string{rule}},
		"it turns to observation":                       {", serviceAccountName: unable", ", serviceAccountName: unable, mode: Observe", nil},
	} {
		t.Run(name, func(t *testing.T) {
			v := edited(t, g, weederConfig(t, c.old), weederConfig(t, c.object))
			if !slices.Equal(v.RuleIDs(), c.refused) || !strings.Contains(v.Message()+strings.Join(v.Warnings(), "\n"), rule) {
				t.Errorf("refused by %v, want %v\n%s", v.RuleIDs(), c.refused, strings.Join(v.Warnings(), "\n"))
			}
		})
	}
}

// TestNoRuleKeepsAPolicyFromObserving: turning to observation ends acts, whoever wrote the rule and whatever else it is.
func TestNoRuleKeepsAPolicyFromObserving(t *testing.T) {
	rails := []*v1alpha1.Guardrail{gr(t, "org", "{rules: [{name: short, kinds: [WeederConfig], expression: \"limits.maxPodDeletionsPerMinute > 90\"},"+
		"{name: enforce, kinds: [WeederConfig], expression: \"object.spec.?mode.orValue('Enforce') == 'Enforce'\"},"+
		"{name: nobody, kinds: [WeederConfig], expression: \"request.operation == 'CREATE'\"},"+
		"{name: unsure, kinds: [WeederConfig], expression: \"object.spec.servicesAndDependantSelectors['none'] != null\"}]}")}
	for name, c := range map[string]struct {
		old, object string
		refuses     bool
	}{
		"that only":                {"", ", mode: Observe", false},
		"written down before":      {", mode: Enforce", ", mode: Observe", false},
		"with something else":      {"", ", mode: Observe, cooldown: 20s", true},
		"something else":           {"", ", cooldown: 20s", true},
		"back to enforcement":      {", mode: Observe", ", mode: Enforce", true},
		"what observes is changed": {", mode: Observe", ", mode: Observe, cooldown: 20s", true},
	} {
		g := weeding(t, weeder.Forecast{AutohealerPods: 1}, Options{})
		g.SetGuardrails(rails)
		if v := edited(t, g, weederConfig(t, c.old), weederConfig(t, c.object)); v.Allowed == c.refuses || len(v.Violations)+len(v.Skipped) < 4 {
			t.Errorf("%s: allowed %v; %d violations, %d not checked: %s", name, v.Allowed, len(v.Violations), len(v.Skipped), v.Message())
		}
	}
	starting := weeding(t, weeder.Forecast{}, Options{AwaitGuardrails: true})
	if v := edited(t, starting, weederConfig(t, ""), weederConfig(t, ", mode: Observe")); !v.Allowed {
		t.Errorf("while Guardrails aren't read: %s", v.Message())
	}
}

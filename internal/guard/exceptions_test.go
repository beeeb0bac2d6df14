package guard

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// healthySpec breaks conditionset/matches-healthy-nodes, which may be lifted.
const healthySpec = "{type: Ready, effect: NoSchedule, taintKey: example.com/ready, conditions: {Ready: {status: true}}}"

const healthyRule = "conditionset/matches-healthy-nodes"

// lifting is an exception for the ConditionSet x with a spec, made at noon.
func lifting(t testing.TB, spec string, ends time.Time, rules ...string) *v1alpha1.GuardrailException {
	t.Helper()
	hash, err := SpecHash(stored(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.GuardrailException{
		ObjectMeta: metav1.ObjectMeta{Name: "maintenance", UID: types.UID("e1"), CreationTimestamp: metav1.NewTime(noon)},
		Spec: v1alpha1.GuardrailExceptionSpec{
			RuleIDs: rules, TargetRef: v1alpha1.ExceptionTarget{Kind: "ConditionSet", Name: "x"}, SpecHash: hash,
			Reason: "the rack is being moved, OPS-1", ExpiresAt: v1alpha1.Timestamp(ends.Format(time.RFC3339)),
		},
	}
}

// storedNow is an API server with these exceptions.
type storedNow struct {
	client.Reader
	exceptions []v1alpha1.GuardrailException
	err        error
	asked      int
}

func (s *storedNow) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.asked++
	list.(*v1alpha1.GuardrailExceptionList).Items = s.exceptions
	return s.err
}

func TestAReviewThatWouldRefuseSeesTheExceptionsThatAreStoredNow(t *testing.T) {
	exception := lifting(t, healthySpec, noon.Add(time.Hour), healthyRule)
	for name, c := range map[string]struct {
		known   []*v1alpha1.GuardrailException
		stored  storedNow
		spec    string
		allowed bool
		asked   int
	}{
		"created a moment ago":    {nil, storedNow{exceptions: []v1alpha1.GuardrailException{*exception}}, healthySpec, true, 1},
		"deleted a moment ago":    {[]*v1alpha1.GuardrailException{exception}, storedNow{}, healthySpec, false, 1},
		"known where nobody says": {[]*v1alpha1.GuardrailException{exception}, storedNow{err: errors.New("down")}, healthySpec, true, 1},
		"none where nobody says":  {nil, storedNow{err: errors.New("down")}, healthySpec, false, 1},
		"not needed":              {nil, storedNow{err: errors.New("down")}, goodSpec, true, 0},
		"for what none can lift": {
			nil, storedNow{}, "{type: Disk, effect: NoSchedule, taintKey: node.kubernetes.io/disk, conditions: {KernelDeadlock: {status: true}}}", false, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			compiled, err := builtin()
			if err != nil {
				t.Fatal(err)
			}
			g := under(t, compiled, Options{Clock: clocktesting.NewFakePassiveClock(noon), Live: &c.stored})
			g.SetExceptions(c.known)
			if v := create(t, g, c.spec); v.Allowed != c.allowed || c.stored.asked != c.asked {
				t.Errorf("allowed %v after %d questions instead of %v after %d: %s", v.Allowed, c.stored.asked, c.allowed, c.asked, v.Message())
			}
			before := c.stored.asked
			if Admit(t.Context(), g, stored(t, c.spec)); c.stored.asked != before {
				t.Error("it asked at run time, where its events tell")
			}
		})
	}
}

func TestExceptions(t *testing.T) {
	const day = 24 * time.Hour
	good := func() *v1alpha1.GuardrailException { return lifting(t, healthySpec, noon.Add(day), healthyRule) }
	with := func(change func(*v1alpha1.GuardrailException)) *v1alpha1.GuardrailException {
		x := good()
		change(x)
		return x
	}
	for name, c := range map[string]struct {
		exception *v1alpha1.GuardrailException
		after     time.Duration
		lifted    bool
		until     time.Duration
	}{
		"it holds":                     {good(), 0, true, day},
		"it holds just before its end": {good(), day - time.Second, true, day},
		"it ends":                      {good(), day, false, 0},
		"it holds 7 days at most":      {lifting(t, healthySpec, noon.Add(7*day), healthyRule), 7*day - time.Second, true, 7 * day},
		"one of 8 days lifts nothing, since the rules refuse it": {lifting(t, healthySpec, noon.Add(8*day), healthyRule), 0, false, 0},
		"for another spec":               {lifting(t, goodSpec, noon.Add(day), healthyRule), 0, false, 0},
		"for another rule":               {lifting(t, healthySpec, noon.Add(day), "conditionset/unknown-only-evicts"), 0, false, 0},
		"for another object":             {with(func(x *v1alpha1.GuardrailException) { x.Spec.TargetRef.Name = "y" }), 0, false, 0},
		"for another kind":               {with(func(x *v1alpha1.GuardrailException) { x.Spec.TargetRef.Kind = "Guardrail" }), 0, false, 0},
		"in a namespace":                 {with(func(x *v1alpha1.GuardrailException) { x.Spec.TargetRef.Namespace = "default" }), 0, false, 0},
		"with a rule that doesn't exist": {lifting(t, healthySpec, noon.Add(day), healthyRule, "conditionset/matches-healthy-node"), 0, false, 0},
		"with a rule that can't be lifted": {
			lifting(t, healthySpec, noon.Add(day), healthyRule, "conditionset/reserved-taint-key"), 0, false, 0,
		},
		"while it is being deleted": {with(func(x *v1alpha1.GuardrailException) { x.DeletionTimestamp = &metav1.Time{Time: noon} }), 0, false, 0},
		"with a date that is none":  {with(func(x *v1alpha1.GuardrailException) { x.Spec.ExpiresAt = "tomorrow" }), 0, false, 0},
		"from a file, not stored":   {with(func(x *v1alpha1.GuardrailException) { x.CreationTimestamp = metav1.Time{} }), 0, true, day},
	} {
		t.Run(name, func(t *testing.T) {
			compiled, err := builtin()
			if err != nil {
				t.Fatal(err)
			}
			g := under(t, compiled, Options{Clock: clocktesting.NewFakePassiveClock(noon.Add(c.after))})
			g.SetExceptions([]*v1alpha1.GuardrailException{c.exception})
			validated, atRunTime := Admit(t.Context(), g, stored(t, healthySpec))
			atAdmission := create(t, g, healthySpec)
			if atRunTime.Allowed != c.lifted || atAdmission.Allowed != c.lifted || validated.Valid() != c.lifted {
				t.Fatalf("allowed %v at run time and %v at admission, want %v: %s", atRunTime.Allowed, atAdmission.Allowed, c.lifted, atRunTime.Message())
			}
			if !c.lifted {
				if len(atRunTime.Lifted) != 0 || !atRunTime.RecheckAt.IsZero() {
					t.Errorf("refused, with %v lifted and a look again at %s", atRunTime.Lifted, atRunTime.RecheckAt)
				}
				return
			}
			want := Lifted{Rule: healthyRule, Exception: "maintenance", Until: noon.Add(c.until)}
			if !slices.Equal(atRunTime.Lifted, []Lifted{want}) || !slices.Equal(atAdmission.Lifted, []Lifted{want}) || !atRunTime.RecheckAt.Equal(want.Until) {
				t.Errorf("lifted %v and %v, look again at %s; want %v", atRunTime.Lifted, atAdmission.Lifted, atRunTime.RecheckAt, want)
			}
			warning := "; GuardrailException maintenance lifts this rule until " + want.Until.Format(time.RFC3339)
			if w := atAdmission.Warnings(); !strings.HasPrefix(w[0], healthyRule+": every condition") || !strings.HasSuffix(w[0], warning) {
				t.Errorf("warnings %q", w)
			}
		})
	}
}

func TestAnExceptionLiftsOneRuleAndNoOther(t *testing.T) {
	const twoRules = "{type: Ready, effect: NoSchedule, taintKey: k8s.io/ready, conditions: {Ready: {status: true}}}"
	g := newTestGuard(t, nil)
	g.SetExceptions([]*v1alpha1.GuardrailException{lifting(t, twoRules, noon.Add(time.Hour), healthyRule)})
	if v := create(t, g, twoRules); v.Allowed || !slices.Equal(v.RuleIDs(), []string{"conditionset/reserved-taint-key"}) {
		t.Errorf("allowed %v, refused by %v", v.Allowed, v.RuleIDs())
	}
}

func TestOfSeveralExceptionsTheOneThatHoldsLongestIsNamed(t *testing.T) {
	g := newTestGuard(t, nil)
	var all []*v1alpha1.GuardrailException
	for name, hours := range map[string]time.Duration{"a": 2, "b": 5, "c": 3} {
		x := lifting(t, healthySpec, noon.Add(hours*time.Hour), healthyRule)
		x.Name = name
		all = append(all, x)
	}
	g.SetExceptions(all)
	if v := create(t, g, healthySpec); len(v.Lifted) != 1 || v.Lifted[0].Exception != "b" {
		t.Errorf("lifted %v", v.Lifted)
	}
}

func TestAGuardrailsRuleIsLiftedOnlyIfItSaysSo(t *testing.T) {
	for exceptable, allowed := range map[string]bool{"": false, ", exceptable: true": true} {
		g := newTestGuard(t, nil)
		g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", strings.Replace(noEviction, "{name", "{name", 1))})
		g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", strings.Replace(noEviction, "}]}", exceptable+"}]}", 1))})
		g.SetExceptions([]*v1alpha1.GuardrailException{lifting(t, evictingSpec, noon.Add(time.Hour), "platform/no-eviction")})
		if _, v := Admit(t.Context(), g, stored(t, evictingSpec)); v.Allowed != allowed {
			t.Errorf("%q: allowed %v: %s", exceptable, v.Allowed, v.Message())
		}
	}
}

func TestRulesOfGuardrailsHoldForExceptions(t *testing.T) {
	g := newTestGuard(t, nil)
	g.SetExceptions([]*v1alpha1.GuardrailException{lifting(t, healthySpec, noon.Add(time.Hour), healthyRule)})
	var told []Change
	g.OnChange(func(c Change) { told = append(told, c) })
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", `{rules: [{name: ticket, kinds: [GuardrailException], expression: "object.spec.reason.contains('TICKET-')"}]}`)})
	if v := create(t, g, healthySpec); v.Allowed {
		t.Error("an exception that a rule refuses lifts something")
	}
	if len(told) != 1 || !slices.Equal(told[0].Targets, []Target{{Kind: "ConditionSet", Name: "x"}}) {
		t.Errorf("told %+v", told)
	}
}

func TestTargetsOfChangedExceptionsAreTold(t *testing.T) {
	g := newTestGuard(t, nil)
	var told [][]Target
	g.OnChange(func(c Change) { told = append(told, c.Targets) })
	at := func(name string, ends time.Duration) *v1alpha1.GuardrailException {
		x := lifting(t, healthySpec, noon.Add(ends), healthyRule)
		x.Name, x.Spec.TargetRef.Name = "for-"+name, name
		return x
	}
	g.SetExceptions([]*v1alpha1.GuardrailException{at("b", time.Hour), at("a", time.Hour)})
	g.SetExceptions([]*v1alpha1.GuardrailException{at("a", time.Hour), at("b", time.Hour)})
	g.SetExceptions([]*v1alpha1.GuardrailException{at("a", 2*time.Hour), at("b", time.Hour)})
	g.SetExceptions([]*v1alpha1.GuardrailException{at("b", time.Hour)})
	a, b := Target{Kind: "ConditionSet", Name: "a"}, Target{Kind: "ConditionSet", Name: "b"}
	if want := [][]Target{{a, b}, {a}, {a}}; !slices.EqualFunc(told, want, slices.Equal[[]Target]) {
		t.Errorf("told %v, want %v", told, want)
	}
}

func TestTheHashIsTheSameForWebhookControllersAndTools(t *testing.T) {
	typed, err := SpecHash(stored(t, healthySpec))
	if err != nil {
		t.Fatal(err)
	}
	if want := "^[0-9a-f]{64}$"; !regexp.MustCompile(want).MatchString(typed) {
		t.Errorf("the hash %s isn't %s: a shorter one could be met by another spec", typed, want)
	}
	explicit := "{type: Ready, effect: NoSchedule, taintKey: example.com/ready, includeControlPlane: false, conditions: {Ready: {status: true}}}"
	for _, spec := range []string{healthySpec, explicit} {
		if raw, err := SpecHash(&unstructured.Unstructured{Object: conditionSet(t, spec)}); err != nil || raw != typed {
			t.Errorf("%s has the hash %s, %v; want %s", spec, raw, err, typed)
		}
	}
	if other, err := SpecHash(&unstructured.Unstructured{Object: conditionSet(t, goodSpec)}); err != nil || other == typed {
		t.Errorf("another spec has the hash %s, %v", other, err)
	}
}

func TestTheRulesOverExceptionsKnowWhenTheyAreMade(t *testing.T) {
	g := newTestGuard(t, nil)
	for expires, want := range map[string][]string{
		"2026-11-21T13:00:00Z": nil, "2026-11-28T12:00:00Z": nil,
		"2026-11-21T11:59:00Z": {"Warn guardrailexception/expired"}, "2026-11-28T12:00:01Z": {"Deny guardrailexception/too-long"},
	} {
		content := object(t, `{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: GuardrailException, metadata: {name: x}, spec: {ruleIDs: [`+healthyRule+
			`], targetRef: {kind: ConditionSet, name: x}, specHash: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef, reason: "it is so, OPS-1", expiresAt: "`+expires+`"}}`)
		v := g.Review(t.Context(), creating(t, content))
		var said []string
		for _, violation := range v.Violations {
			said = append(said, string(violation.Severity)+" "+violation.Rule)
		}
		if !slices.Equal(said, want) {
			t.Errorf("%s, made at noon from a file: %v, want %v", expires, said, want)
		}
		if metadata := content["metadata"].(map[string]any); metadata["creationTimestamp"] != nil {
			t.Error("the caller's object was changed")
		}
	}
}

// A Guardrail may not be called like a kind. One that is, stored past the webhook, has rules with ids of built-in ones.
func TestAnExceptionForABuiltInRuleDoesNotLiftOneOfTheSameName(t *testing.T) {
	g := newTestGuard(t, nil)
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "conditionset", `{rules: [{name: matches-healthy-nodes, kinds: [ConditionSet], expression: "object.spec.type != 'Ready'"}]}`)})
	g.SetExceptions([]*v1alpha1.GuardrailException{lifting(t, healthySpec, noon.Add(time.Hour), healthyRule)})
	if v := create(t, g, healthySpec); v.Allowed || len(v.Lifted) != 1 || !strings.HasSuffix(v.Message(), "(Guardrail conditionset)") {
		t.Errorf("allowed %v, lifted %v: %s", v.Allowed, v.Lifted, v.Message())
	}
}

// Nothing judges a Guardrail or an exception again when an exception for it ends, so it would lift for ever.
func TestNothingIsLiftedForWhatDoesNotAct(t *testing.T) {
	compiled, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	// The rules over exceptions would refuse these; without them the engine must not lift anything, either.
	kinds := maps.Clone(compiled.kinds)
	lax := *kinds[kindGuardrailException]
	lax.rules = nil
	kinds[kindGuardrailException] = &lax
	for name, kinds := range map[string]map[string]*builtinKind{"as it is": compiled.kinds, "without rules over exceptions": kinds} {
		g, err := startGuard(Options{Clock: clocktesting.NewFakePassiveClock(noon)}, kinds)
		if err != nil {
			t.Fatal(err)
		}
		org := gr(t, "org", `{rules: [{name: team, kinds: [Guardrail, GuardrailException], exceptable: true, expression: "has(object.metadata.labels)"}]}`)
		loose := gr(t, "loose", "{limits: {maxTaintedNodes: 50%}}")
		other := lifting(t, healthySpec, noon.Add(time.Hour), healthyRule)
		all := []*v1alpha1.GuardrailException{other}
		for _, of := range []client.Object{loose, other} {
			x := lifting(t, healthySpec, noon.Add(time.Hour), "org/team")
			if x.Spec.SpecHash, err = SpecHash(of); err != nil {
				t.Fatal(err)
			}
			kind := map[bool]string{true: kindGuardrail, false: kindGuardrailException}[of == client.Object(loose)]
			x.Name, x.Labels, x.Spec.TargetRef = "for-"+of.GetName(), map[string]string{"a": "b"}, v1alpha1.ExceptionTarget{Kind: kind, Name: of.GetName()}
			all = append(all, x)
		}
		g.SetExceptions(all)
		results := g.SetGuardrails([]*v1alpha1.Guardrail{org, loose})
		if v := results[1].Verdict; v.Allowed || len(v.Lifted) > 0 || g.Policy().Limits.MaxTaintedNodes.String() != "10%" {
			t.Errorf("%s: the Guardrail: allowed %v, lifted %v, limit %s", name, v.Allowed, v.Lifted, g.Policy().Limits.MaxTaintedNodes)
		}
		if _, v := Admit(t.Context(), g, other); v.Allowed || len(v.Lifted) > 0 {
			t.Errorf("%s: the exception: allowed %v, lifted %v", name, v.Allowed, v.Lifted)
		}
	}
}

package guardrail_test

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// declared is a Guardrail of a spec in YAML; one whose name begins with "refused" is.
func declared(t testing.TB, name, spec string) guardrail.Declared {
	t.Helper()
	g := &v1alpha1.Guardrail{}
	g.Name = name
	if err := yaml.UnmarshalStrict([]byte(spec), &g.Spec); err != nil {
		t.Fatal(err)
	}
	return guardrail.Declared{Guardrail: g, Refused: len(name) >= 7 && name[:7] == "refused"}
}

func TestMerge(t *testing.T) {
	type rails map[string]string
	for name, c := range map[string]struct {
		rails             rails
		tainted, evicting string
		deletions         int
		pausedBy          []string
		precedence        v1alpha1.ConditionSetPrecedence
		types             map[string][]corev1.ConditionStatus
	}{
		"without Guardrails the built-in limits hold": {rails{}, "10%", "5%", 60, nil, "Key", nil},
		"a limit replaces the built-in one, up":       {rails{"a": "{limits: {maxTaintedNodes: 50%, maxPodDeletionsPerMinute: 600}}"}, "50%", "5%", 600, nil, "Key", nil},
		"and down":                                    {rails{"a": "{limits: {maxTaintedNodes: 2, maxEvictingNodes: 0}}"}, "2", "0", 60, nil, "Key", nil},
		"of several values the strictest holds": {
			rails{"a": "{limits: {maxTaintedNodes: 50%, maxPodDeletionsPerMinute: 600}}", "b": "{limits: {maxTaintedNodes: 30%, maxPodDeletionsPerMinute: 90}}", "c": "{limits: {maxTaintedNodes: 40}}"},
			"30% and 40", "5%", 90, nil, "Key", nil,
		},
		"one that is refused can't loosen a limit":     {rails{"refused": "{limits: {maxTaintedNodes: 50%, maxPodDeletionsPerMinute: 600}}"}, "10%", "5%", 60, nil, "Key", nil},
		"it can tighten one":                           {rails{"refused": "{limits: {maxTaintedNodes: 3, maxEvictingNodes: 1%, maxPodDeletionsPerMinute: 6}}"}, "10% and 3", "1%", 6, nil, "Key", nil},
		"it can tighten what another loosened":         {rails{"a": "{limits: {maxTaintedNodes: 50%}}", "refused": "{limits: {maxTaintedNodes: 20%}}"}, "20%", "5%", 60, nil, "Key", nil},
		"it can't undo what another loosened":          {rails{"a": "{limits: {maxTaintedNodes: 50%}}", "refused": "{limits: {maxTaintedNodes: 90%}}"}, "50%", "5%", 60, nil, "Key", nil},
		"any one pauses all, also one that is refused": {rails{"b": "{paused: true}", "a": "{paused: false}", "refused": "{paused: true}"}, "10%", "5%", 60, []string{"b", "refused"}, "Key", nil},
		"one asks for precedence of the node":          {rails{"a": "{conditionSetPrecedence: Node}", "b": "{}"}, "10%", "5%", 60, nil, "Node", nil},
		"where they disagree Key holds":                {rails{"a": "{conditionSetPrecedence: Node}", "b": "{conditionSetPrecedence: Key}"}, "10%", "5%", 60, nil, "Key", nil},
		"one that is refused asks for Node":            {rails{"refused": "{conditionSetPrecedence: Node}"}, "10%", "5%", 60, nil, "Node", nil},
		"one that is refused doesn't ask for Key":      {rails{"a": "{conditionSetPrecedence: Node}", "refused": "{conditionSetPrecedence: Key}"}, "10%", "5%", 60, nil, "Node", nil},
		"an accepted one does, whoever asks for Node":  {rails{"a": "{conditionSetPrecedence: Key}", "refused": "{conditionSetPrecedence: Node}"}, "10%", "5%", 60, nil, "Key", nil},
		"declared types are joined": {
			rails{"a": `{conditionTypes: [{type: GPUHealthy, healthyStatus: "True"}]}`, "b": `{conditionTypes: [{type: GPUHealthy, healthyStatus: "True"}, {type: FanBroken, healthyStatus: "False"}]}`},
			"10%", "5%", 60, nil, "Key", map[string][]corev1.ConditionStatus{"GPUHealthy": {"True"}, "FanBroken": {"False"}},
		},
		"of a disputed type both statuses are healthy": {
			rails{"a": `{conditionTypes: [{type: GPUHealthy, healthyStatus: "True"}]}`, "b": `{conditionTypes: [{type: GPUHealthy, healthyStatus: "False"}]}`, "c": `{conditionTypes: [{type: GPUHealthy, healthyStatus: "True"}]}`},
			"10%", "5%", 60, nil, "Key", map[string][]corev1.ConditionStatus{"GPUHealthy": {"False", "True"}},
		},
		"a built-in type can't be declared anew": {rails{"a": `{conditionTypes: [{type: Ready, healthyStatus: "False"}]}`}, "10%", "5%", 60, nil, "Key", nil},
		"one that is refused declares types all the same": {
			rails{"refused": `{conditionTypes: [{type: GPUHealthy, healthyStatus: "True"}]}`},
			"10%", "5%", 60, nil, "Key", map[string][]corev1.ConditionStatus{"GPUHealthy": {"True"}},
		},
		"it can't cancel what another declares": {
			rails{"a": `{conditionTypes: [{type: GPUHealthy, healthyStatus: "True"}]}`, "refused": `{conditionTypes: [{type: GPUHealthy, healthyStatus: "False"}]}`},
			"10%", "5%", 60, nil, "Key", map[string][]corev1.ConditionStatus{"GPUHealthy": {"False", "True"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var all []guardrail.Declared
			for name, spec := range c.rails {
				all = append(all, declared(t, name, spec))
			}
			if c.types == nil {
				c.types = map[string][]corev1.ConditionStatus{}
			}
			p := guardrail.Merge(limit.Builtin(), all)
			if p.Limits.MaxTaintedNodes.String() != c.tainted || p.Limits.MaxEvictingNodes.String() != c.evicting || p.Limits.MaxPodDeletionsPerMinute != c.deletions {
				t.Errorf("limits %s, %s, %d; want %s, %s, %d", p.Limits.MaxTaintedNodes, p.Limits.MaxEvictingNodes, p.Limits.MaxPodDeletionsPerMinute, c.tainted, c.evicting, c.deletions)
			}
			if !slices.Equal(p.PausedBy, c.pausedBy) || p.Paused() != (len(c.pausedBy) > 0) || p.Precedence != c.precedence {
				t.Errorf("paused by %v, precedence %s; want %v, %s", p.PausedBy, p.Precedence, c.pausedBy, c.precedence)
			}
			if !reflect.DeepEqual(p.ConditionTypes, c.types) {
				t.Errorf("types %v; want %v", p.ConditionTypes, c.types)
			}
			for name, statuses := range c.types {
				if slices.Contains(p.DeclaredTypes(), name) != (len(statuses) == 1) {
					t.Errorf("declared without a dispute: %v; %s is healthy at %v", p.DeclaredTypes(), name, statuses)
				}
			}
		})
	}
}

func TestWitnessesOfEachGuardrailMustVouch(t *testing.T) {
	const a, b = "{witnesses: [{name: a, address: 'a:443'}]}", "{witnesses: [{name: b, address: 'b:443'}]}"
	one := declared(t, "one", a)
	edited := declared(t, "one", b)
	if got := guardrail.Merge(limit.Builtin(), []guardrail.Declared{one}).Tightened([]*v1alpha1.Guardrail{edited.Guardrail}).Witnesses["one"]; len(got) > 0 {
		t.Errorf("%v vouch before their Guardrail is judged", got)
	}
	for name, c := range map[string]struct {
		accepted, early map[string]string // early: of which nothing else is known yet
		want            []string
	}{
		"none":           {nil, nil, nil},
		"of one":         {map[string]string{"one": a}, nil, []string{"one"}},
		"of each of two": {map[string]string{"one": a, "two": b}, nil, []string{"one", "two"}},
		"one that is refused vouches for nothing":   {map[string]string{"refused": a}, nil, nil},
		"it only makes it harder":                   {map[string]string{"one": a, "refused": b}, nil, []string{"one", "refused"}},
		"one that isn't judged vouches for nothing": {nil, map[string]string{"new": a}, nil},
		"it only makes it harder, too":              {map[string]string{"one": a}, map[string]string{"new": b}, []string{"new", "one"}},
	} {
		var all []guardrail.Declared
		var early []*v1alpha1.Guardrail
		for name, spec := range c.accepted {
			all = append(all, declared(t, name, spec))
		}
		for name, spec := range c.early {
			early = append(early, declared(t, name, spec).Guardrail)
		}
		merged := guardrail.Merge(limit.Builtin(), all)
		before := maps.Clone(merged.Witnesses)
		if got := slices.Sorted(maps.Keys(merged.Tightened(early).Witnesses)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
		if !reflect.DeepEqual(merged.Witnesses, before) {
			t.Errorf("%s: what was in force is changed", name)
		}
	}
}

func TestUnreadGuardrailsFreezeEverything(t *testing.T) {
	p, unread := guardrail.Unread(limit.Builtin()), []string{"Guardrails not read"}
	if !p.Paused() || !slices.Equal(p.PausedBy, unread) || !slices.Equal(p.FrozenBy, unread) || p.Limits != limit.Builtin() {
		t.Errorf("unread: got %+v", p)
	}
	if p := guardrail.Unjudged(limit.Builtin()); !slices.Equal(p.PausedBy, unread) || p.Frozen() {
		t.Errorf("unjudged: got %+v", p)
	}
}

func TestWhatFreezesPausesToo(t *testing.T) {
	frozen, paused, refused := declared(t, "b", "{frozen: true}"), declared(t, "c", "{paused: true}"), declared(t, "refused", "{frozen: true}")
	p := guardrail.Merge(limit.Builtin(), []guardrail.Declared{refused, paused, frozen})
	if !slices.Equal(p.FrozenBy, []string{"b", "refused"}) || !slices.Equal(p.PausedBy, []string{"b", "c", "refused"}) {
		t.Errorf("frozen by %v, paused by %v", p.FrozenBy, p.PausedBy)
	}
	p = guardrail.Merge(limit.Builtin(), []guardrail.Declared{paused}).Tightened([]*v1alpha1.Guardrail{frozen.Guardrail, paused.Guardrail})
	if !slices.Equal(p.FrozenBy, []string{"b"}) || !slices.Equal(p.PausedBy, []string{"b", "c"}) {
		t.Errorf("tightened: frozen by %v, paused by %v", p.FrozenBy, p.PausedBy)
	}
}

// TestNothingLoosensButAnAcceptedGuardrail: the order doesn't matter, a further Guardrail that sets the same limit never
// loosens it, a refused one never loosens anything, and no word on a condition type takes another's back.
func TestNothingLoosensButAnAcceptedGuardrail(t *testing.T) {
	value := rapid.Custom(func(t *rapid.T) intstr.IntOrString {
		return intstr.Parse(rapid.SampledFrom([]string{"0", "1", "5", "40", "0%", "1%", "10%", "50%", "100%"}).Draw(t, "value"))
	})
	one := rapid.Custom(func(t *rapid.T) guardrail.Declared {
		tainted := value.Draw(t, "tainted")
		g := &v1alpha1.Guardrail{}
		g.Spec.Limits = &v1alpha1.GuardrailLimits{MaxTaintedNodes: &tainted}
		if healthy := rapid.SampledFrom([]corev1.ConditionStatus{"", "True", "False"}).Draw(t, "healthy"); healthy != "" {
			g.Spec.ConditionTypes = []v1alpha1.ConditionType{{Type: "GPUHealthy", HealthyStatus: healthy}}
		}
		g.Spec.ConditionSetPrecedence = rapid.SampledFrom([]v1alpha1.ConditionSetPrecedence{"", "Key", "Node"}).Draw(t, "precedence")
		return guardrail.Declared{Guardrail: g, Refused: rapid.Bool().Draw(t, "refused")}
	})
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(one, 0, 6).Draw(t, "guardrails")
		further := one.Draw(t, "further")
		before := guardrail.Merge(limit.Builtin(), all)
		shuffled := slices.Clone(all)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if again := guardrail.Merge(limit.Builtin(), shuffled); again.Limits != before.Limits || !reflect.DeepEqual(again.ConditionTypes, before.ConditionTypes) {
			t.Fatalf("in another order %+v, not %+v", again, before)
		}
		after := guardrail.Merge(limit.Builtin(), append(all, further))
		for _, healthy := range before.ConditionTypes["GPUHealthy"] {
			if !slices.Contains(after.ConditionTypes["GPUHealthy"], healthy) {
				t.Fatalf("GPUHealthy is no longer healthy at %s", healthy)
			}
		}
		if further.Refused && before.Precedence == "Node" && after.Precedence != "Node" {
			t.Fatalf("a refused one turns the precedence to %s", after.Precedence)
		}
		refused := further
		refused.Refused = true
		if given, refused := after.Precedence, guardrail.Merge(limit.Builtin(), append(slices.Clone(all), refused)).Precedence; given == "Node" && refused != "Node" {
			t.Fatalf("once it is refused the precedence turns to %s", refused)
		}
		accepted := slices.ContainsFunc(all, func(d guardrail.Declared) bool { return !d.Refused })
		if !further.Refused && !accepted {
			return // the first one that is accepted may loosen the built-in limit
		}
		for total := range 300 {
			if after.Limits.MaxTaintedNodes.Of(total) > before.Limits.MaxTaintedNodes.Of(total) {
				t.Fatalf("of %d nodes %s allows more than %s", total, after.Limits.MaxTaintedNodes, before.Limits.MaxTaintedNodes)
			}
		}
	})
}

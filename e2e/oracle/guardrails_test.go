package oracle

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ruled gives the world after Guardrails came and went, each at a second after noon; "" is the end of one.
func ruled(t *testing.T, o Options, events []ruledAt) *World {
	t.Helper()
	o = o.withDefaults()
	j := &judging{options: o, rails: map[types.UID]rail{}, world: World{Rules: []Rules{merged(nil, o, time.Time{})}}}
	for i, e := range events {
		r := revision{revisionKey: revisionKey{objectKey{guardrails, types.UID(e.name)}, uint64(i + 1)}, at: noon.Add(time.Duration(e.second) * time.Second)}
		if e.spec != "" {
			r.object = []byte(`{"kind":"Guardrail","metadata":{"name":"` + e.name + `"},"spec":` + e.spec + `}`)
		}
		j.ruling(r)
	}
	if len(j.verdicts) > 0 {
		t.Fatal(j.verdicts)
	}
	return &j.world
}

type ruledAt struct {
	second     int
	name, spec string
}

func TestHowManyNodesTheGuardrailsAllow(t *testing.T) {
	const lag = 5 * time.Second
	refuseAll := func(*unstructured.Unstructured) error { return errors.New("no") }
	for _, test := range []struct {
		name    string
		options Options
		events  []ruledAt
		second  int
		allowed int // tainted of 100 nodes
	}{
		{"none", Options{}, nil, 0, 10},
		{"one that sets nothing", Options{}, []ruledAt{{0, "a", `{}`}}, 60, 10},
		{"a number", Options{}, []ruledAt{{0, "a", `{"limits":{"maxTaintedNodes":3}}`}}, 60, 3},
		{"a percentage, upwards", Options{}, []ruledAt{{0, "a", `{"limits":{"maxTaintedNodes":"50%"}}`}}, 60, 50},
		{"none at all", Options{}, []ruledAt{{0, "a", `{"limits":{"maxTaintedNodes":"0%"}}`}}, 60, 0},
		{"the strictest of several", Options{}, []ruledAt{{0, "a", `{"limits":{"maxTaintedNodes":"50%"}}`}, {1, "b", `{"limits":{"maxTaintedNodes":20}}`}, {2, "c", `{}`}}, 60, 20},
		{"one that is gone", Options{}, []ruledAt{{0, "a", `{"limits":{"maxTaintedNodes":3}}`}, {60, "a", ""}}, 90, 10},
		{"tightened just now, which the manager may not know", Options{}, []ruledAt{{0, "a", `{"limits":{"maxTaintedNodes":3}}`}}, 4, 10},
		{"tightened long ago", Options{}, []ruledAt{{0, "a", `{"limits":{"maxTaintedNodes":3}}`}}, 6, 3},
		{"loosened just now", Options{}, []ruledAt{{0, "a", `{"limits":{"maxTaintedNodes":"50%"}}`}}, 1, 50},
		{"not loosened yet", Options{}, []ruledAt{{10, "a", `{"limits":{"maxTaintedNodes":"50%"}}`}}, 9, 10},
		{"a refused one that would loosen", Options{Admissible: refuseAll}, []ruledAt{{0, "a", `{"limits":{"maxTaintedNodes":"50%"}}`}}, 60, 10},
		{"a refused one that tightens", Options{Admissible: refuseAll}, []ruledAt{{0, "a", `{"limits":{"maxTaintedNodes":3}}`}}, 60, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := ruled(t, test.options, test.events)
			at := noon.Add(time.Duration(test.second) * time.Second)
			got := w.allowed(func(r Rules) []intstr.IntOrString { return r.Tainted }, 100, 100, at, lag)
			if got != test.allowed {
				t.Errorf("%d are allowed, want %d", got, test.allowed)
			}
		})
	}
}

func TestWhenAGuardrailPauses(t *testing.T) {
	pause := []ruledAt{{0, "a", `{"paused":true}`}, {60, "a", `{"paused":false}`}}
	for second, want := range map[int]string{-1: "", 0: "", 4: "", 6: "a", 59: "a", 60: "", 90: ""} {
		if got := ruled(t, Options{}, pause).paused(noon.Add(time.Duration(second)*time.Second), 5*time.Second); got != want {
			t.Errorf("at second %d it is %q, want %q", second, got, want)
		}
	}
}

func TestWhenAGuardrailFreezes(t *testing.T) {
	frozen := []ruledAt{{0, "a", `{"frozen":true}`}, {60, "a", ""}, {90, "b", `{"paused":true}`}, {100, "c", `{"frozen":true}`}}
	w := ruled(t, Options{}, frozen)
	at := func(second int) time.Time { return noon.Add(time.Duration(second) * time.Second) }
	for second, want := range map[int]string{-1: "", 4: "", 6: "a", 59: "a", 60: "", 99: "", 106: "c"} {
		if got := w.frozen(at(second), 5*time.Second); got != want {
			t.Errorf("at second %d it is %q, want %q", second, got, want)
		}
	}
	if got := w.paused(at(30), 5*time.Second); got != "a" {
		t.Errorf("what freezes pauses: it is %q", got)
	}
	for _, span := range []struct{ from, to, want int }{{-10, 30, 30}, {10, 20, 10}, {50, 80, 10}, {61, 99, 0}, {0, 130, 90}} {
		if got := w.frozenFor(at(span.from), at(span.to)); got != time.Duration(span.want)*time.Second {
			t.Errorf("from %d to %d it was frozen for %s, want %ds", span.from, span.to, got, span.want)
		}
	}
}

func TestAnActWhilePausedIsFound(t *testing.T) {
	set := types.UID("set")
	j := &judging{options: Options{}.withDefaults(), world: World{
		Policies: map[types.UID]*Policy{set: {Resource: schema.GroupVersionResource{}, Name: "s", Specs: []Spec{{Generation: 1, Object: &unstructured.Unstructured{Object: map[string]any{}}}}}},
		Rules:    []Rules{{PausedBy: "freeze"}},
	}}
	if got := j.unfounded(Act{Policy: set, Generation: 1}, noon); got != "Guardrail freeze pauses all new acts" {
		t.Errorf("it says %q", got)
	}
}

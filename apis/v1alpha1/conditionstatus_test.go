package v1alpha1_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

func TestAStatusIsGivenBackAsItWasWritten(t *testing.T) {
	tests := []struct {
		yaml, json string
		normalized string // "" for what the schema refuses
	}{
		{"true", `true`, "True"},
		{"false", `false`, "False"},
		{"True", `true`, "True"}, // a boolean in YAML
		{`"True"`, `"True"`, "True"},
		{`"False"`, `"False"`, "False"},
		{`"true"`, `"true"`, "True"},
		{`"false"`, `"false"`, "False"},
		{"Unknown", `"Unknown"`, "Unknown"},
		{"unknown", `"unknown"`, "Unknown"},
		{`"TRUE"`, `"TRUE"`, ""},
		{"maybe", `"maybe"`, ""},
		{"1", `1`, ""},
		{"null", `null`, ""},
		{`""`, `""`, ""},
		{"{a: [1, true]}", `{"a":[1,true]}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.yaml, func(t *testing.T) {
			manifest := "spec: {type: T, effect: NoSchedule, taintKey: k, conditions: {KubeletUnhealthy: {status: " + tt.yaml + "}}}"
			var cs v1alpha1.ConditionSet
			if err := yaml.UnmarshalStrict([]byte(manifest), &cs); err != nil {
				t.Fatalf("read: %v", err)
			}
			status := cs.Spec.Conditions["KubeletUnhealthy"].Status
			if status.JSON != tt.json && tt.json != "null" {
				t.Errorf("read as %q, want %q", status.JSON, tt.json)
			}
			if got, ok := status.Normalized(); string(got) != tt.normalized || ok != (tt.normalized != "") {
				t.Errorf("normalized to %q, %t; want %q", got, ok, tt.normalized)
			}
			text, err := json.Marshal(&cs)
			if err != nil || !strings.Contains(string(text), `{"status":`+tt.json+`}`) {
				t.Errorf("written as %s, %v; want status %s", text, err, tt.json)
			}
		})
	}
}

func TestTheUnstructuredConverterKeepsBooleansAndStringsApart(t *testing.T) {
	in := map[string]any{"spec": map[string]any{
		"type": "T", "effect": "NoSchedule", "taintKey": "k",
		"conditions": map[string]any{
			"A": map[string]any{"status": true}, "B": map[string]any{"status": "true"},
			"C": map[string]any{"status": "Unknown"}, "D": map[string]any{"status": false},
		},
	}}
	var cs v1alpha1.ConditionSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(in, &cs); err != nil {
		t.Fatalf("from unstructured: %v", err)
	}
	for conditionType, want := range map[string]string{"A": `true`, "B": `"true"`, "C": `"Unknown"`, "D": `false`} {
		if got := cs.Spec.Conditions[conditionType].Status.JSON; got != want {
			t.Errorf("%s is %s, want %s", conditionType, got, want)
		}
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&cs)
	if err != nil {
		t.Fatalf("to unstructured: %v", err)
	}
	if diff := cmp.Diff(in["spec"], out["spec"]); diff != "" {
		t.Errorf("spec differs after a round trip:\n%s", diff)
	}
}

func TestConditionSetsCompare(t *testing.T) {
	read := func(status string) *v1alpha1.ConditionSet {
		var cs v1alpha1.ConditionSet
		if err := json.Unmarshal([]byte(`{"spec":{"conditions":{"A":{"status": `+status+` }}}}`), &cs); err != nil {
			t.Fatalf("read: %v", err)
		}
		return &cs
	}
	a, same, other := read(`true`), read(` true`), read(`"true"`)
	if !equality.Semantic.DeepEqual(a, same) || equality.Semantic.DeepEqual(a, other) {
		t.Error("Semantic.DeepEqual doesn't compare the text that was read")
	}
	if cmp.Diff(a, same) != "" || cmp.Diff(a, other) == "" {
		t.Error("cmp.Diff doesn't compare the text that was read")
	}
	deep := a.DeepCopy()
	deep.Spec.Conditions["A"] = v1alpha1.MemberCondition{Status: v1alpha1.RequiredStatus{JSON: `false`}}
	if !reflect.DeepEqual(a, same) {
		t.Error("a deep copy shares its conditions")
	}
}

func TestAMissingStatusIsWrittenAsNull(t *testing.T) {
	text, err := json.Marshal(v1alpha1.MemberCondition{})
	if err != nil || string(text) != `{"status":null}` {
		t.Errorf("written as %s, %v", text, err)
	}
}

package health_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

const foreign = "{type: Foreign, status: 'True', extra: kept, lastTransitionTime: '2020-01-01T00:00:00Z'}"

var mine = health.Condition{Type: "Mine", Status: "False", Reason: "HealthCheckUnsuccessful", Message: "m", Codes: []string{"ERR_A"},
	LastTransition: start, LastUpdate: start.Add(time.Minute), ObservedGeneration: 3}

// patched applies a patch as the API server does.
func patched(t *testing.T, target *unstructured.Unstructured, patch []byte) (*unstructured.Unstructured, error) {
	t.Helper()
	before, err := target.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := operations.Apply(before)
	if err != nil {
		return nil, err
	}
	result := &unstructured.Unstructured{}
	return result, result.UnmarshalJSON(after)
}

func statusOf(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	content, err := json.Marshal(o.Object["status"])
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestPatches(t *testing.T) {
	const (
		gardener = `{"codes":["ERR_A"],"lastTransitionTime":"2026-03-01T03:00:00Z","lastUpdateTime":"2026-03-01T03:01:00Z","message":"m","reason":"HealthCheckUnsuccessful","status":"False","type":"Mine"}`
		meta     = `{"lastTransitionTime":"2026-03-01T03:00:00Z","message":"m","observedGeneration":3,"reason":"HealthCheckUnsuccessful","status":"False","type":"Mine"}`
		other    = `{"extra":"kept","lastTransitionTime":"2020-01-01T00:00:00Z","status":"True","type":"Foreign"}`
	)
	for name, tt := range map[string]struct {
		status string
		shape  health.Shape
		want   string
	}{
		"no status":               {"", "Gardener", `{"conditions":[` + gardener + `]}`},
		"null status":             {"status: null", "Gardener", `{"conditions":[` + gardener + `]}`},
		"no conditions":           {"status: {phase: x}", "Gardener", `{"conditions":[` + gardener + `],"phase":"x"}`},
		"null conditions":         {"status: {conditions: null}", "Conditions", `{"conditions":[` + meta + `]}`},
		"no condition":            {"status: {conditions: []}", "Conditions", `{"conditions":[` + meta + `]}`},
		"another's":               {"status: {conditions: [" + foreign + "]}", "Gardener", `{"conditions":[` + other + `,` + gardener + `]}`},
		"ours before another's":   {"status: {conditions: [{type: Mine, status: 'True', codes: [OLD]}, " + foreign + "]}", "Gardener", `{"conditions":[` + gardener + `,` + other + `]}`},
		"ours after another's":    {"status: {conditions: [" + foreign + ", {type: Mine, status: 'True'}]}", "Conditions", `{"conditions":[` + other + `,` + meta + `]}`},
		"an entry that is no map": {"status: {conditions: [7, {type: Mine}]}", "Conditions", `{"conditions":[7,` + meta + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			target := worker(t, tt.status)
			patch, err := health.Patch(target, mine, tt.shape)
			if err != nil {
				t.Fatal(err)
			}
			after, err := patched(t, target, patch)
			if err != nil {
				t.Fatalf("apply %s: %v", patch, err)
			}
			if got := statusOf(t, after); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			back := health.Find(after, "Mine")
			want := mine
			if tt.shape == "Gardener" {
				want.ObservedGeneration = 0
			} else {
				want.Codes, want.LastUpdate = nil, time.Time{}
			}
			if diff := cmp.Diff(&want, back); diff != "" {
				t.Errorf("read back: %s", diff)
			}
		})
	}
}

func TestPatchesAreRefusedWhereTheTargetIsAnother(t *testing.T) {
	for name, tt := range map[string]struct{ seen, is string }{
		"an entry came before ours":        {"status: {conditions: [{type: Mine}]}", "status: {conditions: [" + foreign + ", {type: Mine}]}"},
		"ours is gone":                     {"status: {conditions: [" + foreign + ", {type: Mine}]}", "status: {conditions: [" + foreign + "]}"},
		"ours was written by another":      {"status: {conditions: [{type: Mine, status: 'True'}]}", "status: {conditions: [{type: Mine, status: 'False'}]}"},
		"one of our type was added":        {"status: {conditions: []}", "status: {conditions: [{type: Mine}]}"},
		"another's was added":              {"status: {conditions: []}", "status: {conditions: [" + foreign + "]}"},
		"the list came to be, and changed": {"status: {}", "status: {conditions: [" + foreign + "]}"},
		"the status came to be":            {"", "status: {conditions: [" + foreign + "]}"},
	} {
		t.Run(name, func(t *testing.T) {
			seen, is := worker(t, tt.seen), worker(t, tt.is)
			is.SetResourceVersion("8")
			patch, err := health.Patch(seen, mine, "Gardener")
			if err != nil {
				t.Fatal(err)
			}
			if after, err := patched(t, is, patch); err == nil {
				t.Errorf("%s gave %s", patch, statusOf(t, after))
			}
		})
	}
}

func TestPatchesAreForOneObject(t *testing.T) {
	seen, is := worker(t, "status: {conditions: []}"), worker(t, "status: {conditions: []}")
	is.SetUID("another")
	patch, err := health.Patch(seen, mine, "Gardener")
	if err != nil {
		t.Fatal(err)
	}
	if after, err := patched(t, is, patch); err == nil {
		t.Errorf("%s gave %s", patch, statusOf(t, after))
	}
}

func TestRemoval(t *testing.T) {
	seen := worker(t, "status: {conditions: ["+foreign+", {type: Mine, status: 'True'}]}")
	patch, err := health.RemovalPatch(seen, "Mine")
	if err != nil {
		t.Fatal(err)
	}
	after, err := patched(t, seen, patch)
	if err != nil || health.Find(after, "Mine") != nil || health.Find(after, "Foreign") == nil {
		t.Errorf("after %s: %v, %v", patch, after, err)
	}
	if _, err := patched(t, worker(t, "status: {conditions: [{type: Mine, status: 'True'}, "+foreign+"]}"), patch); err == nil {
		t.Error("another's was removed")
	}
	if none, err := health.RemovalPatch(seen, "Other"); none != nil || err != nil {
		t.Errorf("%s, %v", none, err)
	}
}

func TestApplied(t *testing.T) {
	with := health.ApplyObject(worker(t, "status: {conditions: ["+foreign+"], phase: x}"), mine, "Conditions")
	if got, want := statusOf(t, with), `{"conditions":[{"lastTransitionTime":"2026-03-01T03:00:00Z","message":"m","observedGeneration":3,"reason":"HealthCheckUnsuccessful","status":"False","type":"Mine"}]}`; got != want {
		t.Errorf("got %s", got)
	}
	healed := health.Condition{Type: "Mine", Status: "True", Reason: "HealthCheckSuccessful", Message: "m"}
	coded := health.ApplyObject(worker(t, "status: {conditions: [{type: Mine, codes: [ERR_A]}]}"), healed, "Gardener")
	if got, want := statusOf(t, coded), `"codes":[]`; !strings.Contains(got, want) {
		t.Errorf("codes that another manager has, too, stay: %s", got)
	}
	if with.GetUID() != "u" || with.GetNamespace() != "shoot--a" || with.GetKind() != "Worker" || with.Object["spec"] != nil {
		t.Errorf("%v", with.Object)
	}
}

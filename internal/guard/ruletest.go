package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// RunTest judges a test's object of a kind by all rules, in a cluster that is as the test says.
func (g *Guard) RunTest(ctx context.Context, kind string, test Test) (Verdict, error) {
	object, err := testObject(kind, test.Object)
	if err != nil {
		return Verdict{}, fmt.Errorf("read object: %w", err)
	}
	req := Request{Operation: admissionv1.Create, Object: object}
	if test.OldObject != nil {
		req.Operation = admissionv1.Update
		if req.OldObject, err = testObject(kind, test.OldObject); err != nil {
			return Verdict{}, fmt.Errorf("read oldObject: %w", err)
		}
	}
	in := &Guard{clock: g.clock, facts: TestFacts{Complete: true}}
	in.rules.Store(g.rules.Load())
	in.policy.Store(g.policy.Load())
	if test.Facts != nil {
		in.facts = *test.Facts
	}
	if planType := builtinKinds()[kind].plan; planType != nil {
		preview, err := readPlan(planType, test.Plan)
		if err != nil {
			return Verdict{}, fmt.Errorf("read plan: %w", err)
		}
		in.planners = map[string]Planner{kind: {plan: planType, ask: func(map[string]any, limit.Limits, time.Time) (any, error) { return preview, nil }}}
	}
	return in.Review(ctx, req), nil
}

// testObject completes what a test may leave out.
func testObject(kind string, text json.RawMessage) (map[string]any, error) {
	var object map[string]any
	if err := utiljson.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, fmt.Errorf("is no object")
	}
	object["apiVersion"], object["kind"] = v1alpha1.GroupVersion.String(), kind
	if object["metadata"] == nil {
		object["metadata"] = map[string]any{"name": "example"}
	}
	return object, nil
}

// readPlan reads what a test says of the plan. Fields that the plan doesn't have are errors; a limit that isn't given is
// none.
func readPlan(planType reflect.Type, text json.RawMessage) (any, error) {
	preview := reflect.New(planType)
	for _, name := range []string{"Limit", "UnionLimit"} {
		if f := preview.Elem().FieldByName(name); f.IsValid() && text == nil {
			f.SetInt(limit.None)
		}
	}
	if text != nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(preview.Interface()); err != nil {
			return nil, err
		}
	}
	return preview.Elem().Interface(), nil
}

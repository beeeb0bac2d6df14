package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/guard/catalog"
)

// RunTest judges a test's object of a kind by all rules in force, in a cluster that is as the test says. Exceptions lift
// nothing there.
func (g *Guard) RunTest(ctx context.Context, name string, test Test) (Verdict, error) {
	e, err := g.testEvaluation(ctx, name, test)
	if err != nil {
		return Verdict{}, err
	}
	return e.atAdmission(), nil
}

// Example is a test with what its rule says of the object.
type Example struct {
	Test
	// Label is the verdict in one word.
	Label string
	// Messages of the rule.
	Messages []string
}

// Examples are the first of a rule's tests for each verdict.
func (g *Guard) Examples(ctx context.Context, kind string, rule RuleInfo) (examples []Example, err error) {
	for _, test := range rule.Tests {
		if slices.ContainsFunc(examples, func(e Example) bool { return e.Expect == test.Expect }) {
			continue
		}
		verdict, err := g.RunTest(ctx, kind, test)
		if err != nil {
			return nil, fmt.Errorf("show test %q of %s: %w", test.Name, rule.ID, err)
		}
		e := Example{Test: test, Label: map[string]string{ExpectAdmit: "Admitted", ExpectWarn: "Warned", ExpectDeny: "Refused"}[test.Expect]}
		for _, v := range verdict.Violations {
			if v.Rule == rule.ID {
				e.Messages = append(e.Messages, v.Message)
			}
		}
		examples = append(examples, e)
	}
	return examples, nil
}

func (g *Guard) testEvaluation(ctx context.Context, name string, test Test) (*evaluation, error) {
	kind := g.rules.Load().kinds[name]
	if kind == nil {
		return nil, fmt.Errorf("there are no rules for kind %q", name)
	}
	req := Request{Operation: admissionv1.Create, Kind: name}
	if u := test.UserInfo; u != nil {
		req.UserInfo = authenticationv1.UserInfo{Username: u.Username, Groups: append([]string{user.AllAuthenticated}, u.Groups...)}
	}
	object, old, err := test.Objects(name)
	if err != nil {
		return nil, err
	}
	if req.Object, err = json.Marshal(object); err != nil {
		return nil, fmt.Errorf("write object: %w", err)
	}
	if old != nil {
		req.Operation = admissionv1.Update
		if req.OldObject, err = json.Marshal(old); err != nil {
			return nil, fmt.Errorf("write oldObject: %w", err)
		}
	}
	e, err := g.admission(ctx, g.rules.Load(), kind, req)
	if err != nil {
		return nil, err
	}
	e.exceptions, e.facts = nil, testFacts{ptr.Deref(test.Facts, v1alpha1.GuardrailTestFacts{})}
	if e.authorizer = authorizerfactory.NewAlwaysAllowAuthorizer(); test.AccountsMay != nil && !*test.AccountsMay {
		e.authorizer = authorizerfactory.NewAlwaysDenyAuthorizer()
	}
	known := e.facts.Synced()
	e.liveKnown = &known
	if err := e.plan.fixture(test.Plan, kind.kindInfo); err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	return e, nil
}

// Objects gives the test's objects, of the kind, with what a test may leave out; old is nil where the test is a creation.
func (t Test) Objects(kind string) (object, old map[string]any, err error) {
	if object, err = testObject(kind, t.Object.Raw); err != nil {
		return nil, nil, fmt.Errorf("read object: %w", err)
	}
	if t.OldObject == nil {
		return object, nil, nil
	}
	if old, err = testObject(kind, t.OldObject.Raw); err != nil {
		return nil, nil, fmt.Errorf("read oldObject: %w", err)
	}
	return object, old, nil
}

// testObject completes what a test may leave out.
func testObject(kind string, text []byte) (map[string]any, error) {
	var object map[string]any
	if err := utiljson.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, errors.New("it is no object")
	}
	object["apiVersion"], object["kind"] = v1alpha1.GroupVersion.String(), kind
	if object["metadata"] == nil {
		object["metadata"] = map[string]any{"name": "example", "namespace": "example"}
	}
	return object, nil
}

// fixture takes the plan from a test. The known part is worked out all the same where the test says nothing of the plan.
func (p *plan) fixture(fixture *runtime.RawExtension, info kindInfo) error {
	if fixture == nil {
		return p.live.fix(map[string]json.RawMessage{}, info.live, true)
	}
	var said map[string]json.RawMessage
	if err := json.Unmarshal(fixture.Raw, &said); err != nil {
		return err
	}
	for name := range said {
		_, known := p.known.fields[name]
		if _, live := p.live.fields[name]; !known && !live {
			return fmt.Errorf("there is no field %q", name)
		}
	}
	return errors.Join(p.known.fix(said, info.known, false), p.live.fix(said, info.live, false))
}

// fix answers with what a test said. When it said nothing at all, a limit is none.
func (p *planSection) fix(said map[string]json.RawMessage, of reflect.Type, unlimited bool) error {
	if of == nil {
		return nil
	}
	value := reflect.New(of).Elem()
	for name, i := range p.fields {
		if unlimited && (name == "limit" || name == "unionLimit") {
			value.Field(i).SetInt(limit.None)
		}
		if said[name] == nil {
			continue
		}
		decoder := json.NewDecoder(bytes.NewReader(said[name]))
		if err := decoder.Decode(value.Field(i).Addr().Interface()); err != nil {
			if what, isMisfit := TypeMismatch(err, name); isMisfit {
				return errors.New(what)
			}
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	p.ask = func() (any, error) { return value.Interface(), nil }
	return nil
}

// Specimen is an object that shows its kind.
type Specimen struct {
	Kind string
	// Rule has the case that it comes from; it refuses the object that is refused.
	Rule string
	Test
}

// Specimens of a kind are those cases of its catalogue that are marked so.
func Specimens(kind string) (admitted, refused Specimen, err error) {
	c, err := parseCatalogue(catalog.FS, strings.ToLower(kind)+".yaml")
	if err != nil {
		return admitted, refused, err
	}
	for _, r := range c.Rules {
		for _, t := range r.Tests {
			switch s := (Specimen{Kind: kind, Rule: r.ID, Test: t}); {
			case t.Specimen && t.Expect == ExpectAdmit:
				admitted = s
			case t.Specimen && t.Expect == ExpectDeny:
				refused = s
			}
		}
	}
	if admitted.Kind == "" || refused.Kind == "" {
		return admitted, refused, fmt.Errorf("the catalogue of %s needs two specimens, one that is admitted and one that is refused", kind)
	}
	return admitted, refused, nil
}

// Made is the object as if it were made now: the times in its spec are as far away as they were when the test's object was made.
func (s Specimen) Made(now time.Time) (*unstructured.Unstructured, error) {
	content, err := testObject(s.Kind, s.Object.Raw)
	if err != nil {
		return nil, fmt.Errorf("read a specimen of %s: %w", s.Kind, err)
	}
	object := &unstructured.Unstructured{Object: content}
	spec, _ := content["spec"].(map[string]any)
	for field, value := range spec {
		text, _ := value.(string)
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			spec[field] = now.Add(at.Sub(object.GetCreationTimestamp().Time)).UTC().Format(time.RFC3339)
		}
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return object, nil
}

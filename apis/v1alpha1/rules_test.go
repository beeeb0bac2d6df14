package v1alpha1_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// TestTheRulesOfASchemaSpeakForThemselves: whatever text a field has, its rules answer with their own messages. A rule whose expression
// fails instead, as duration() does of a time beyond all, has the API server tell what CEL said.
func TestTheRulesOfASchemaSpeakForThemselves(t *testing.T) {
	texts := []string{
		"", "x", "h", ".", ".s", "1", "-1s", "5 minutes", "1d", "é", "100%", "101%", "5m", "0h", "8761h", "9999999h", "99999999999h", "9999h9999h9999h",
		"9999999h9999999h9999999h", "999999999999999999m", "99999999999999999999999999s", "99999999999999999999ms", "0.99999999999999999999h",
	}
	files, err := filepath.Glob("../../crds/autohealer.resourcestack.com_*.yaml")
	if err != nil || len(files) < 7 {
		t.Fatal(files, err)
	}
	asked := 0
	for _, file := range files {
		_, plural, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".yaml"), "_")
		schema, err := structural.NewStructural(schemaOf(t, plural).Spec.Validation.OpenAPIV3Schema)
		if err != nil {
			t.Fatal(err)
		}
		eachText(field.NewPath(plural), schema, func(at *field.Path, s *structural.Structural) {
			var messages []string
			for _, rule := range s.XValidations {
				messages = append(messages, rule.Message)
			}
			rules := schemacel.NewValidator(s, false, celconfig.PerCallLimit)
			for _, text := range texts {
				errs, _ := rules.Validate(t.Context(), at, s, text, nil, celconfig.RuntimeCELCostBudget)
				asked++
				for _, e := range errs {
					if !slices.Contains(messages, e.Detail) {
						t.Error(e)
					}
				}
			}
		})
	}
	if asked < 30*len(texts) {
		t.Errorf("%d texts were judged", asked)
	}
}

// TestNoSchemaHasAPattern: of text that doesn't match one the API server shows the regular expression. A rule says what to write.
func TestNoSchemaHasAPattern(t *testing.T) {
	files, err := filepath.Glob("*_types.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "kubebuilder:validation:Pattern") {
			t.Errorf("%s: write +kubebuilder:validation:XValidation with self.matches() and a message", file)
		}
	}
}

// eachText visits the texts with rules, and those in them.
func eachText(at *field.Path, s *structural.Structural, visit func(*field.Path, *structural.Structural)) {
	if s.Type == "string" && len(s.XValidations) > 0 {
		visit(at, s)
	}
	for name := range s.Properties {
		property := s.Properties[name]
		eachText(at.Child(name), &property, visit)
	}
	if s.Items != nil {
		eachText(at.Index(0), s.Items, visit)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		eachText(at.Key("key"), s.AdditionalProperties.Structural, visit)
	}
}

package v1alpha1_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// schemaOf reads a generated CRD, with the defaults that the API server gives one.
func schemaOf(t *testing.T, plural string) *apiextensions.CustomResourceDefinition {
	t.Helper()
	text, err := os.ReadFile("../../crds/autohealer.resourcestack.com_" + plural + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd extv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		t.Fatal(err)
	}
	extv1.SetDefaults_CustomResourceDefinition(&crd)
	extv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	crd.Status.StoredVersions = []string{"v1alpha1"}
	var internal apiextensions.CustomResourceDefinition
	if err := extv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd, &internal, nil); err != nil {
		t.Fatal(err)
	}
	return &internal
}

// judgeOf gives a function that judges a spec by its CRD's schema as the API server does. Wrong is a part of the error that
// is wanted, "" when the spec is to be admitted.
func judgeOf(t *testing.T, kind, plural string) func(t *testing.T, text, wrong string) {
	t.Helper()
	crd := schemaOf(t, plural)
	openapi, _, err := validation.NewSchemaValidator(crd.Spec.Validation.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := structural.NewStructural(crd.Spec.Validation.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	rules := schemacel.NewValidator(schema, true, celconfig.PerCallLimit)
	return func(t *testing.T, text, wrong string) {
		t.Helper()
		var spec map[string]any
		if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
			t.Fatal(err)
		}
		object := map[string]any{"apiVersion": "autohealer.resourcestack.com/v1alpha1", "kind": kind, "metadata": map[string]any{"name": "w"}, "spec": spec}
		errs := validation.ValidateCustomResource(nil, object, openapi)
		ruleErrs, _ := rules.Validate(t.Context(), field.NewPath("root"), schema, object, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, ruleErrs...)
		switch {
		case wrong == "" && len(errs) > 0:
			t.Error(errs.ToAggregate())
		case wrong != "" && (len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), wrong)):
			t.Errorf("want %q, got %v", wrong, errs.ToAggregate())
		}
	}
}

func canonical(t *testing.T, text []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

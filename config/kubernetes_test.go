package config

import (
	"fmt"
	"io/fs"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/util/compatibility"
	basecompatibility "k8s.io/component-base/compatibility"

	"github.com/resourcestack/autohealer/crds"
)

// An API server compiles what is new to it for the minor before its own, so that it could still be rolled back.
func TestTheOldestKubernetesCompilesEveryExpression(t *testing.T) {
	effective := compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).(basecompatibility.MutableEffectiveVersion)
	effective.SetMinCompatibilityVersion(version.MajorMinor(1, 32))
	if got := environment.DefaultCompatibilityVersion().String(); got != "1.32" {
		t.Fatalf("compiles for %s", got)
	}
	scheme := runtime.NewScheme()
	if err := apiextensions.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := extv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for definition := range read[extv1.CustomResourceDefinition](t, crds.FS, "*.yaml", "CustomResourceDefinition") {
		t.Run(definition.Name, func(t *testing.T) {
			extv1.SetDefaults_CustomResourceDefinition(definition)
			extv1.SetDefaults_CustomResourceDefinitionSpec(&definition.Spec)
			var internal apiextensions.CustomResourceDefinition
			if err := scheme.Convert(definition, &internal, nil); err != nil {
				t.Fatal(err)
			}
			for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), &internal) {
				t.Error(err)
			}
		})
	}
	for policy := range read[admissionregistrationv1.ValidatingAdmissionPolicy](t, FS, "policy/*.yaml", "ValidatingAdmissionPolicy") {
		t.Run(policy.Name, func(t *testing.T) { compilePolicy(t, policy.Spec) })
	}
	for hooks := range read[admissionregistrationv1.ValidatingWebhookConfiguration](t, FS, "webhook/configuration/*.yaml", "ValidatingWebhookConfiguration") {
		t.Run(hooks.Name, func(t *testing.T) {
			c := newCompiler(t, false)
			for _, hook := range hooks.Webhooks {
				c.conditions(hook.MatchConditions)
			}
		})
	}
}

// read gives the objects of a kind in the files, and at least one.
func read[T any](t *testing.T, from fs.FS, pattern, kind string) func(yield func(*T) bool) {
	t.Helper()
	objects, err := Objects(from, pattern, kind)
	if err != nil || len(objects) == 0 {
		t.Fatalf("%d of kind %s in %s: %v", len(objects), kind, pattern, err)
	}
	return func(yield func(*T) bool) {
		for _, object := range objects {
			typed := new(T)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true); err != nil {
				t.Errorf("%s: %v", object.GetName(), err)
				continue
			}
			if !yield(typed) {
				return
			}
		}
	}
}

// compiler compiles as an API server does when one stores a policy.
type compiler struct {
	*plugincel.CompositedCompiler
	t        *testing.T
	declared plugincel.OptionalVariableDeclarations
}

func newCompiler(t *testing.T, hasParams bool) compiler {
	t.Helper()
	composited, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	return compiler{composited, t, plugincel.OptionalVariableDeclarations{HasParams: hasParams, HasAuthorizer: true}}
}

func (c compiler) compile(what string, expression plugincel.ExpressionAccessor) {
	c.t.Helper()
	if result := c.CompileCELExpression(expression, c.declared, environment.NewExpressions); result.Error != nil {
		c.t.Errorf("%s: %v\n%s", what, result.Error, expression.GetExpression())
	}
}

func (c compiler) conditions(all []admissionregistrationv1.MatchCondition) {
	c.t.Helper()
	for _, m := range all {
		c.compile("match condition "+m.Name, new(matchconditions.MatchCondition(m)))
	}
}

func compilePolicy(t *testing.T, spec admissionregistrationv1.ValidatingAdmissionPolicySpec) {
	c := newCompiler(t, spec.ParamKind != nil)
	c.conditions(spec.MatchConditions)
	for _, v := range spec.Variables {
		result := c.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, c.declared, environment.NewExpressions)
		if result.Error != nil {
			t.Errorf("variable %s: %v\n%s", v.Name, result.Error, v.Expression)
		}
	}
	for i, v := range spec.Validations {
		c.compile(fmt.Sprintf("validation %d", i+1), &validating.ValidationCondition{Expression: v.Expression})
		if v.MessageExpression != "" {
			c.compile(fmt.Sprintf("message %d", i+1), &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
		}
	}
	for _, a := range spec.AuditAnnotations {
		c.compile("audit annotation "+a.Key, &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression})
	}
}

package check

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/resourcestack/autohealer/internal/domain/suggest"
	"github.com/resourcestack/autohealer/internal/guard"
)

// definition is one version of a CRD, compiled as the API server compiles it to serve the kind.
type definition struct {
	gvk        schema.GroupVersionKind
	namespaced bool
	hasStatus  bool
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator // nil when the schema has none
}

// readDefinitions compiles every served version of the CRDs in a folder.
func readDefinitions(files fs.FS) (map[schema.GroupVersionKind]*definition, error) {
	crds, err := guard.ReadCRDs(files)
	if err != nil {
		return nil, err
	}
	definitions := map[schema.GroupVersionKind]*definition{}
	for _, crd := range crds {
		for i := range crd.Spec.Versions {
			if !crd.Spec.Versions[i].Served {
				continue
			}
			d, err := compile(crd, &crd.Spec.Versions[i])
			if err != nil {
				return nil, fmt.Errorf("compile CRD %s: %w", crd.Name, err)
			}
			definitions[d.gvk] = d
		}
	}
	return definitions, nil
}

func compile(crd *extv1.CustomResourceDefinition, version *extv1.CustomResourceDefinitionVersion) (*definition, error) {
	props, structural, err := guard.Structural(version.Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	structural = structural.DeepCopy() // shares its defaults with props otherwise
	if err := defaulting.PruneDefaults(structural); err != nil {
		return nil, fmt.Errorf("prune defaults: %w", err)
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	return &definition{
		gvk:        schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind},
		namespaced: crd.Spec.Scope == extv1.NamespaceScoped,
		hasStatus:  version.Subresources != nil && version.Subresources.Status != nil,
		structural: structural,
		schema:     validator,
		rules:      cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}, nil
}

// decode does to an object, in place, what the API server does before it validates: unknown fields go and are named,
// nulls go, defaults come.
func (d *definition) decode(object map[string]any) (unknown []string, err error) {
	meta, found, unknown, err := objectmeta.GetObjectMetaWithOptions(object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, err
	}
	kind, apiVersion := object["kind"], object["apiVersion"]
	unknown = append(unknown, pruning.PruneWithOptions(object, d.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, d.structural)
	coerceErr, paths := objectmeta.CoerceWithOptions(nil, object, d.structural, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if coerceErr != nil {
		return nil, coerceErr
	}
	object["kind"], object["apiVersion"] = kind, apiVersion
	if found {
		if err := objectmeta.SetObjectMeta(object, meta); err != nil {
			return nil, err
		}
	}
	defaulting.Default(object, d.structural)
	return append(unknown, paths...), nil
}

// similarFields ends a sentence about an unknown field with those that stand where it stands.
func (d *definition) similarFields(unknown string) string {
	segments := strings.Split(strings.ReplaceAll(unknown, "[", ".["), ".")
	return suggest.DidYouMean(segments[len(segments)-1], siblings(d.structural, segments))
}

// siblings are the fields beside the last segment of a path. A key of a map may have dots, and so be several segments.
func siblings(s *structuralschema.Structural, segments []string) []string {
	if len(segments) == 1 {
		return slices.Collect(maps.Keys(s.Properties))
	}
	if property, ok := s.Properties[segments[0]]; ok {
		return siblings(&property, segments[1:])
	}
	if s.Items != nil {
		return siblings(s.Items, segments[1:])
	}
	for i := 1; i < len(segments) && s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil; i++ {
		if found := siblings(s.AdditionalProperties.Structural, segments[i:]); len(found) > 0 {
			return found
		}
	}
	return nil
}

// validate says what the API server would of a creation, or, with an old object, of an update.
func (d *definition) validate(ctx context.Context, object, old map[string]any) field.ErrorList {
	errs := d.validateMeta(object, old)
	var options []cel.Option
	if old == nil {
		errs = append(errs, validation.ValidateCustomResource(nil, object, d.schema)...)
	} else {
		correlated := common.NewCorrelatedObject(object, old, &model.Structural{Structural: d.structural})
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, object, old, d.schema, validation.WithRatcheting(correlated))...)
		options = append(options, cel.WithRatcheting(correlated))
	}
	errs = append(errs, objectmeta.Validate(ctx, nil, object, d.structural, false)...)
	if old == nil || len(listtype.ValidateListSetsAndMaps(nil, d.structural, old)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.structural, object)...)
	}
	return d.validateRules(ctx, errs, object, old, options...)
}

func (d *definition) validateMeta(object, old map[string]any) field.ErrorList {
	meta := &unstructured.Unstructured{Object: object}
	errs := metavalidation.ValidateObjectMetaAccessor(meta, d.namespaced, metavalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if old != nil {
		errs = append(errs, metavalidation.ValidateObjectMetaAccessorUpdate(meta, &unstructured.Unstructured{Object: old}, field.NewPath("metadata"))...)
	}
	return errs
}

// validateRules evaluates x-kubernetes-validations. Types and bounds must be right before: an expression relies on them.
func (d *definition) validateRules(ctx context.Context, errs field.ErrorList, object, old map[string]any, options ...cel.Option) field.ErrorList {
	if d.rules == nil {
		return errs
	}
	for _, err := range errs {
		if blocking[err.Type] {
			return append(errs, field.Invalid(nil, nil, notChecked))
		}
	}
	var before any // a nil map in an interface would be taken for an old object
	if old != nil {
		before = old
	}
	ruleErrs, _ := d.rules.Validate(ctx, nil, d.structural, object, before, celconfig.RuntimeCELCostBudget, options...)
	return append(errs, ruleErrs...)
}

// blocking are the errors after which the API server evaluates no rule.
var blocking = map[field.ErrorType]bool{
	field.ErrorTypeNotSupported: true, field.ErrorTypeRequired: true, field.ErrorTypeTooLong: true,
	field.ErrorTypeTooMany: true, field.ErrorTypeTypeInvalid: true,
}

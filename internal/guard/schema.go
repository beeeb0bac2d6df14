package guard

import (
	"fmt"
	"io/fs"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	decl "k8s.io/apiserver/pkg/cel"
	"sigs.k8s.io/yaml"
)

// readCRDs reads every CRD of a folder, by kind.
func readCRDs(files fs.FS) (map[string]*extv1.CustomResourceDefinition, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list CRDs: %w", err)
	}
	crds := map[string]*extv1.CustomResourceDefinition{}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read CRD: %w", err)
		}
		crd := &extv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			return nil, fmt.Errorf("parse CRD %s: %w", name, err)
		}
		crds[crd.Spec.Names.Kind] = crd
	}
	return crds, nil
}

const (
	// untypedLength bounds a field without a type, of which the longest is a condition's status ("unknown").
	untypedLength = int64(8)
	// intOrStringLength bounds a number or a percentage, as text.
	intOrStringLength = int64(20)
)

// objectType is the declared type of a kind. SchemaDeclType leaves out fields without a type and nearly all of
// metadata; both are completed here, in memory, so that rules may read them. What they may not read is left out.
func objectType(crd *extv1.CustomResourceDefinition) (*decl.DeclType, error) {
	var in apiextensions.JSONSchemaProps
	err := extv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &in, nil)
	if err != nil {
		return nil, fmt.Errorf("convert schema of %s: %w", crd.Name, err)
	}
	s, err := schema.NewStructural(&in)
	if err != nil {
		return nil, fmt.Errorf("read schema of %s: %w", crd.Name, err)
	}
	visitor := schema.Visitor{Structural: func(s *schema.Structural) bool {
		if s.ValueValidation != nil && s.ValueValidation.Format != "" { // what is executed is the text, whatever it means
			s.ValueValidation.Format = ""
			return true
		}
		untyped := s.Type == "" && s.XPreserveUnknownFields
		length := intOrStringLength
		if untyped {
			length = untypedLength
		}
		if untyped || s.XIntOrString { // int-or-string is what declares a dyn
			s.XIntOrString, s.ValueValidation = true, &schema.ValueValidation{MaxLength: &length}
			return true
		}
		return false
	}}
	delete(s.Properties, "status")
	visitor.Visit(s)
	s.Properties["metadata"] = metadataSchema()
	for _, name := range []string{"apiVersion", "kind"} {
		s.Properties[name] = textSchema(63)
	}
	return model.SchemaDeclType(s, true).MaybeAssignTypeName(crd.Spec.Names.Kind), nil
}

func textSchema(length int64) schema.Structural {
	return schema.Structural{Generic: schema.Generic{Type: "string"}, ValueValidation: &schema.ValueValidation{MaxLength: &length}}
}

// metadataSchema has judgedMetadata; the bounds are the API server's own.
func metadataSchema() schema.Structural {
	text := textSchema
	texts := func(length int64) schema.Structural {
		value, entries := text(length), int64(256)
		return schema.Structural{
			Generic:              schema.Generic{Type: "object"},
			ValueValidation:      &schema.ValueValidation{MaxProperties: &entries},
			AdditionalProperties: &schema.StructuralOrBool{Structural: &value},
		}
	}
	return schema.Structural{Generic: schema.Generic{Type: "object"}, Properties: map[string]schema.Structural{
		"name": text(253), "generateName": text(253), "namespace": text(63), "uid": text(36),
		"creationTimestamp": text(32),
		"labels":            texts(63), "annotations": texts(262144),
		"generation": {Generic: schema.Generic{Type: "integer"}},
	}}
}

package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	decl "k8s.io/apiserver/pkg/cel"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/domain/guardrail"
)

// builtinKind is what judges one kind whatever Guardrails say. It never changes.
type builtinKind struct {
	name string
	kindInfo
	knownFields, liveFields planFields
	recheck                 string
	rules                   []*compiledRule
	variables               []*compiledVariable
	// index finds a variable by its root name, variables.<name>.
	index map[string]int
	// text is what decides verdicts, for the hash.
	text []byte

	// env and through compile rules: the environment with all variables, and what these read.
	env     *environments
	through map[string]reads
}

// compileBuiltin compiles every catalogue of a folder against the CRDs of another.
func compileBuiltin(catalogues, crds fs.FS) (map[string]*builtinKind, error) {
	definitions, err := ReadCRDs(crds)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(catalogues, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list catalogues: %w", err)
	}
	if len(names) == 0 {
		return nil, errors.New("the catalogue is empty")
	}
	compiled := make([]*builtinKind, len(names))
	var all errgroup.Group // most of what a start of the CLI takes
	for i, name := range names {
		all.Go(func() error {
			c, err := parseCatalogue(catalogues, name)
			if err != nil {
				return err
			}
			crd, known := definitions[c.Kind]
			if !known {
				return fmt.Errorf("catalogue %s: no CRD has kind %q", name, c.Kind)
			}
			if compiled[i], err = compileKind(c, crd); err != nil {
				return fmt.Errorf("catalogue %s: %w", name, err)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	kinds := map[string]*builtinKind{}
	for _, k := range compiled {
		kinds[k.name] = k
	}
	return kinds, nil
}

func compileKind(c Catalogue, definition *extv1.CustomResourceDefinition) (*builtinKind, error) {
	object, err := objectType(definition)
	if err != nil {
		return nil, err
	}
	k := &builtinKind{name: c.Kind, kindInfo: infoOf(c.Kind), recheck: c.Recheck, index: map[string]int{}, through: map[string]reads{}}
	if err := k.readPlan(); err != nil {
		return nil, err
	}
	if k.tables != nil {
		for _, t := range k.tables(guardrail.Policy{}) {
			c.Variables = slices.Insert(c.Variables, len(k.index), t.variable())
			k.index[variablePath+t.name] = len(k.index)
		}
	}
	if k.env, err = newEnvironments(object, k.kindInfo, c.Variables); err != nil {
		return nil, err
	}
	for _, v := range c.Variables {
		if err := k.addVariable(v); err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
	}
	if k.text, err = json.Marshal(decisiveContent(c)); err != nil {
		return nil, fmt.Errorf("hash catalogue: %w", err)
	}
	return k, k.addRules(c.Rules)
}

func (k *builtinKind) readPlan() (err error) {
	if k.knownFields, err = fieldsOf(k.known); err != nil {
		return err
	}
	k.liveFields, err = fieldsOf(k.live)
	return err
}

func (k *builtinKind) addRules(rules []Rule) error {
	ids := map[string]bool{}
	for _, r := range rules {
		if ids[r.ID] {
			return fmt.Errorf("rule %s is there twice", r.ID)
		}
		if !slices.Contains(r.Kinds, k.name) {
			return fmt.Errorf("rule %s: kinds %v lack the catalogue's %s", r.ID, r.Kinds, k.name)
		}
		ids[r.ID] = true
		compiled, fault := k.compileRule(r)
		if fault != nil {
			return fmt.Errorf("rule %s: %s: %s", r.ID, fault.Field, fault.Message)
		}
		k.rules = append(k.rules, compiled)
	}
	var spent costs
	for _, v := range k.variables {
		spent.add(v.program)
	}
	for _, r := range k.rules {
		spent.add(r.condition)
	}
	if excess := spent.excess(); excess != "" {
		return fmt.Errorf("all rules of %s together %s", k.name, excess)
	}
	return nil
}

// decisiveContent is what decides verdicts: a catalogue's tests and reasons may change without a new hash.
func decisiveContent(c Catalogue) Catalogue {
	c.Rules = slices.Clone(c.Rules)
	for i := range c.Rules {
		c.Rules[i].Tests, c.Rules[i].Rationale = nil, ""
	}
	return c
}

// addVariable compiles a variable, which may read those before it.
func (k *builtinKind) addVariable(v Variable) error {
	root := variablePath + v.Name
	p, _, err := k.env.compile(v.Expression, k.env.roots[root].CelType())
	if err != nil {
		return err
	}
	for path := range p.reads {
		if strings.HasPrefix(path, variablePath) && k.through[rootOf(path)] == nil {
			return fmt.Errorf("reads %s, which isn't declared before it", rootOf(path))
		}
	}
	all := p.reads.through(k.through)
	if all.anyOf(rootPlan, rootFacts, rootRequest, rootLimits, rootAuthorizer) {
		return fmt.Errorf("reads %v; a shared variable reads only object and oldObject", all.list())
	}
	k.index[root] = len(k.variables)
	k.variables = append(k.variables, &compiledVariable{Variable: v, program: p})
	k.through[root] = all
	return nil
}

// ReadCRDs reads every CRD of a folder, by kind.
func ReadCRDs(files fs.FS) (map[string]*extv1.CustomResourceDefinition, error) {
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
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
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
	_, s, err := Structural(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", crd.Name, err)
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

// Structural reads a version's schema in both ways that the API server does.
func Structural(of *extv1.JSONSchemaProps) (*apiextensions.JSONSchemaProps, *schema.Structural, error) {
	props := &apiextensions.JSONSchemaProps{}
	if err := extv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(of, props, nil); err != nil {
		return nil, nil, fmt.Errorf("convert: %w", err)
	}
	structural, err := schema.NewStructural(props)
	if err != nil {
		return nil, nil, fmt.Errorf("read: %w", err)
	}
	return props, structural, nil
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

package guard

import (
	"fmt"
	"iter"
	"reflect"
	"unicode"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	decl "k8s.io/apiserver/pkg/cel"

	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// planTextLength bounds a text in a plan: a condition type has at most 316 characters, a pod's namespace, name and role
// about as many, an error of a rule with its excerpt some more.
const planTextLength = 400

// planFields are the fields of terms or of a forecast by their names in CEL.
type planFields map[string]int

// forRules are the fields of a type of terms or of a forecast, which may be nil, that rules read, with their indexes: all but
// the items, which are for people.
func forRules(section reflect.Type) iter.Seq2[int, reflect.StructField] {
	return func(yield func(int, reflect.StructField) bool) {
		if section == nil {
			return
		}
		for i := range section.NumField() {
			if f := section.Field(i); f.Name != "Items" && !yield(i, f) {
				return
			}
		}
	}
}

// fieldsOf reads a type, which may be nil.
func fieldsOf(section reflect.Type) (planFields, error) {
	fields := planFields{}
	for i, f := range forRules(section) {
		if planFieldType(f.Type) == nil {
			return nil, fmt.Errorf("%v.%s is a %v; a plan has texts, lists of texts, whole numbers and booleans", section, f.Name, f.Type)
		}
		fields[lowerCamel(f.Name)] = i
	}
	return fields, nil
}

func planFieldType(t reflect.Type) *decl.DeclType {
	switch t {
	case reflect.TypeFor[[]string]():
		return decl.NewListType(stringType(planTextLength), sample.Size)
	case reflect.TypeFor[string]():
		return stringType(planTextLength)
	case reflect.TypeFor[int]():
		return decl.IntType
	case reflect.TypeFor[bool]():
		return decl.BoolType
	}
	return nil
}

// planType declares what rules see as plan: the fields of terms and forecast, in lowerCamelCase.
func planType(sections ...reflect.Type) *decl.DeclType {
	fields := map[string]*decl.DeclType{}
	for _, section := range sections {
		for _, f := range forRules(section) {
			fields[lowerCamel(f.Name)] = planFieldType(f.Type)
		}
	}
	return declare("Plan", fields)
}

func lowerCamel(name string) string {
	runes := []rune(name)
	runes[0] = unicode.ToLower(runes[0])
	return string(runes)
}

// planSection are terms or a forecast, asked for when a rule first reads one of its fields.
type planSection struct {
	fields planFields
	ask    func() (any, error)
	done   bool // it was asked for
	value  reflect.Value
	err    error
}

// incomplete is a forecast of which some fields may not be known.
type incomplete interface {
	// NotKnown is why a field isn't, by its name in Go, and wraps ErrNotKnown; nil when it is.
	NotKnown(field string) error
}

func (p *planSection) get(field int) ref.Val {
	if !p.done {
		p.done = true
		var section any
		if section, p.err = p.ask(); p.err == nil {
			p.value = reflect.ValueOf(section)
		}
	}
	if p.err != nil {
		return types.NewErr("plan: %w", p.err)
	}
	if section, is := p.value.Interface().(incomplete); is {
		if err := section.NotKnown(p.value.Type().Field(field).Name); err != nil {
			return types.NewErr("plan: %w", err)
		}
	}
	switch f := p.value.Field(field); f.Kind() {
	case reflect.Int:
		return types.Int(f.Int())
	case reflect.Bool:
		return types.Bool(f.Bool())
	case reflect.String:
		return types.String(sample.Cut(f.String(), planTextLength))
	default:
		return types.NewStringList(types.DefaultTypeAdapter, f.Interface().([]string))
	}
}

// plan is what rules read as plan. Only the fields that they read are made into CEL values; the whole is good for nothing else.
type plan struct{ known, live planSection }

var (
	_           traits.Indexer = (*plan)(nil)
	planCELType                = types.NewOpaqueType("plan")
)

// Get gives a field or an error.
func (p *plan) Get(key ref.Val) ref.Val {
	name, _ := key.(types.String)
	for _, section := range []*planSection{&p.known, &p.live} {
		if i, there := section.fields[string(name)]; there {
			return section.get(i)
		}
	}
	return types.NewErr("no such key: %v", key)
}

// ConvertToNative is for nobody.
func (p *plan) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("plan is no %v", t)
}

// ConvertToType is for nobody.
func (p *plan) ConvertToType(t ref.Type) ref.Val { return types.NewErr("plan is no %s", t.TypeName()) }

// Equal says whether it is this one; there is one a request.
func (p *plan) Equal(other ref.Val) ref.Val { return types.Bool(other == ref.Val(p)) }

// Type is its own.
func (p *plan) Type() ref.Type { return planCELType }

// Value is itself.
func (p *plan) Value() any { return p }

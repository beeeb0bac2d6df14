package guard

import (
	"fmt"
	"iter"
	"reflect"
	"strings"
	"unicode"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	decl "k8s.io/apiserver/pkg/cel"

	"github.com/resourcestack/autohealer/internal/domain/sample"
)

const (
	// planTextLength bounds a text in a plan: a condition type has at most 316 characters, a pod's namespace, name and role
	// about as many, an error of a rule with its excerpt some more.
	planTextLength = 400
	// cut ends a text that was longer.
	cut = " …"
)

// planFields are the fields of terms or of a forecast by their names in CEL.
type planFields map[string]int

// forRules are the fields of a type of terms or of a forecast, which may be nil, that rules read, with their indexes: all but
// the items, which are for people.
func forRules(part reflect.Type) iter.Seq2[int, reflect.StructField] {
	return func(yield func(int, reflect.StructField) bool) {
		if part == nil {
			return
		}
		for i := range part.NumField() {
			if f := part.Field(i); f.Name != "Items" && !yield(i, f) {
				return
			}
		}
	}
}

// fieldsOf reads a type, which may be nil.
func fieldsOf(part reflect.Type) (planFields, error) {
	fields := planFields{}
	for i, f := range forRules(part) {
		if planFieldType(f.Type) == nil {
			return nil, fmt.Errorf("%v.%s is a %v; a plan has texts, lists of texts, whole numbers and booleans", part, f.Name, f.Type)
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
func planType(parts ...reflect.Type) *decl.DeclType {
	fields := map[string]*decl.DeclType{}
	for _, part := range parts {
		for _, f := range forRules(part) {
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

// planPart are terms or a forecast, asked for when a rule first reads one of its fields.
type planPart struct {
	fields planFields
	ask    func() (any, error)
	asked  bool
	value  reflect.Value
	err    error
}

// incomplete is a forecast of which some fields may not be known.
type incomplete interface {
	// NotKnown is why a field isn't, by its name in Go, and wraps ErrNotKnown; nil when it is.
	NotKnown(field string) error
}

func (p *planPart) get(field int) ref.Val {
	if !p.asked {
		p.asked = true
		var part any
		if part, p.err = p.ask(); p.err == nil {
			p.value = reflect.ValueOf(part)
		}
	}
	if p.err != nil {
		return types.NewErr("plan: %w", p.err)
	}
	if part, is := p.value.Interface().(incomplete); is {
		if err := part.NotKnown(p.value.Type().Field(field).Name); err != nil {
			return types.NewErr("plan: %w", err)
		}
	}
	switch f := p.value.Field(field); f.Kind() {
	case reflect.Int:
		return types.Int(f.Int())
	case reflect.Bool:
		return types.Bool(f.Bool())
	case reflect.String:
		return types.String(shorten(f.String()))
	default:
		return types.NewStringList(types.DefaultTypeAdapter, f.Interface().([]string))
	}
}

func shorten(text string) string {
	if len(text) <= planTextLength {
		return text
	}
	return strings.ToValidUTF8(text[:planTextLength-len(cut)], "") + cut
}

// planValue is what rules read as plan. Only the fields that they read are made into CEL values.
type planValue struct {
	known, live planPart
}

var _ traits.Mapper = (*planValue)(nil)

// Find gives a field.
func (p *planValue) Find(key ref.Val) (ref.Val, bool) {
	name, isText := key.(types.String)
	if !isText {
		return types.MaybeNoSuchOverloadErr(key), false
	}
	for _, part := range []*planPart{&p.known, &p.live} {
		if i, there := part.fields[string(name)]; there {
			value := part.get(i)
			return value, !types.IsError(value)
		}
	}
	return nil, false
}

// whole is all fields, for the rare expression that looks at plan as a map.
func (p *planValue) whole() traits.Mapper {
	all := map[string]ref.Val{}
	for _, part := range []*planPart{&p.known, &p.live} {
		for name, i := range part.fields {
			all[name] = part.get(i)
		}
	}
	return types.DefaultTypeAdapter.NativeToValue(all).(traits.Mapper)
}

// Get gives a field or an error.
func (p *planValue) Get(key ref.Val) ref.Val {
	value, found := p.Find(key)
	if found || value != nil {
		return value
	}
	return types.ValOrErr(key, "no such key: %v", key)
}

// Contains says whether there is such a field.
func (p *planValue) Contains(key ref.Val) ref.Val {
	value, found := p.Find(key)
	if value != nil && !found {
		return value
	}
	return types.Bool(found)
}

// Size counts the fields.
func (p *planValue) Size() ref.Val { return types.Int(len(p.known.fields) + len(p.live.fields)) }

// Iterator walks over the fields' names.
func (p *planValue) Iterator() traits.Iterator { return p.whole().Iterator() }

// ConvertToNative converts as a map does.
func (p *planValue) ConvertToNative(t reflect.Type) (any, error) { return p.whole().ConvertToNative(t) }

// ConvertToType converts as a map does.
func (p *planValue) ConvertToType(t ref.Type) ref.Val { return p.whole().ConvertToType(t) }

// Equal compares as a map does.
func (p *planValue) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*planValue); ok {
		other = o.whole()
	}
	return p.whole().Equal(other)
}

// Type is a map's.
func (p *planValue) Type() ref.Type { return types.MapType }

// Value is the map.
func (p *planValue) Value() any { return p.whole().Value() }

package guard

import (
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"

	decl "k8s.io/apiserver/pkg/cel"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

// Facts is what is known of the cluster, kept by informers: nothing is listed while a request waits.
type Facts interface {
	// Synced says whether every informer behind the facts has synced.
	Synced() bool
	// Age is the time since the facts were last known to be current.
	Age(now time.Time) time.Duration
}

// planTextLength bounds a text in a plan: a condition type has at most 316 characters, a pod's namespace, name and role
// about as many.
const planTextLength = 400

// cut ends a text that was longer.
const cut = " …"

// planType declares what rules see as plan: the fields of a preview, in lowerCamelCase.
func planType(preview reflect.Type) (*decl.DeclType, error) {
	text := stringType(planTextLength)
	fields := map[string]*decl.DeclField{}
	for i := range preview.NumField() {
		name := lowerCamel(preview.Field(i).Name)
		var fieldType *decl.DeclType
		switch preview.Field(i).Type {
		case reflect.TypeFor[[]string]():
			fieldType = decl.NewListType(text, condition.SampleSize)
		case reflect.TypeFor[string]():
			fieldType = text
		case reflect.TypeFor[int]():
			fieldType = decl.IntType
		case reflect.TypeFor[bool]():
			fieldType = decl.BoolType
		default:
			return nil, fmt.Errorf("%v.%s is a %v; a plan has texts, lists of texts, whole numbers and booleans", preview, name, preview.Field(i).Type)
		}
		fields[name] = decl.NewDeclField(name, fieldType, true, nil, nil)
	}
	return decl.NewObjectType("Plan", fields), nil
}

// planValue gives a preview to CEL.
func planValue(preview any) map[string]any {
	v := reflect.ValueOf(preview)
	value := make(map[string]any, v.NumField())
	for i := range v.NumField() {
		name := lowerCamel(v.Type().Field(i).Name)
		value[name] = v.Field(i).Interface()
		if text, isText := value[name].(string); isText && len(text) > planTextLength {
			value[name] = strings.ToValidUTF8(text[:planTextLength-len(cut)], "") + cut
		}
	}
	return value
}

func lowerCamel(name string) string {
	runes := []rune(name)
	runes[0] = unicode.ToLower(runes[0])
	return string(runes)
}

// factsType declares what rules see as facts.
func factsType() *decl.DeclType {
	return decl.NewObjectType("Facts", map[string]*decl.DeclField{
		"synced":     decl.NewDeclField("synced", decl.BoolType, true, nil, nil),
		"ageSeconds": decl.NewDeclField("ageSeconds", decl.IntType, true, nil, nil),
	})
}

func stringType(length int64) *decl.DeclType {
	t := *decl.StringType
	t.MaxElements = length
	return &t
}

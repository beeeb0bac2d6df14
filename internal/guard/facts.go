package guard

import (
	"reflect"
	"strings"
	"time"
	"unicode"

	decl "k8s.io/apiserver/pkg/cel"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// Facts is what is known of the cluster, kept by informers: nothing is listed while a request waits.
type Facts interface {
	// Synced says whether every informer behind the facts has synced.
	Synced() bool
	// Age is the time since the facts were last known to be current.
	Age(now time.Time) time.Duration
	// PreviewConditionSet is what the set would do if it were in force now.
	PreviewConditionSet(set *v1alpha1.ConditionSet, limits limit.Limits, now time.Time) condition.Preview
}

// planTextLength bounds a text in a plan: a condition type has at most 316 characters, a pod's namespace, name and role
// about as many.
const planTextLength = 400

// cut ends a text that was longer.
const cut = " …"

// planType declares what rules see as plan: the fields of the preview, in lowerCamelCase.
func planType() *decl.DeclType {
	text := stringType(planTextLength)
	fields := map[string]*decl.DeclField{}
	t := reflect.TypeFor[condition.Preview]()
	for i := range t.NumField() {
		name, fieldType := lowerCamel(t.Field(i).Name), decl.IntType
		switch t.Field(i).Type.Kind() {
		case reflect.Slice:
			fieldType = decl.NewListType(text, condition.SampleSize)
		case reflect.String:
			fieldType = text
		}
		fields[name] = decl.NewDeclField(name, fieldType, true, nil, nil)
	}
	return decl.NewObjectType("Plan", fields)
}

// planValue gives a preview to CEL.
func planValue(p condition.Preview) map[string]any {
	v := reflect.ValueOf(p)
	value := make(map[string]any, v.NumField())
	for i := range v.NumField() {
		value[planFields[i]] = v.Field(i).Interface()
		if text, isText := value[planFields[i]].(string); isText && len(text) > planTextLength {
			value[planFields[i]] = strings.ToValidUTF8(text[:planTextLength-len(cut)], "") + cut
		}
	}
	return value
}

var planFields = func() []string {
	t := reflect.TypeFor[condition.Preview]()
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = lowerCamel(t.Field(i).Name)
	}
	return names
}()

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

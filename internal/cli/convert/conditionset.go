package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// conditionSets is the list of combined node conditions that was in a ConfigMap before the kind ConditionSet.
var conditionSets = source{
	kind:    "ConditionSet",
	keyword: "conditionSets",
	recognizes: func(object map[string]any) bool {
		_, hasList := object["conditionSets"]
		return object["type"] == "ConditionSets" || hasList && object["apiVersion"] == nil
	},
	convert: convertConditionSets,
}

func convertConditionSets(p *pass) {
	object := p.document.Object
	p.warnUnknown("", object, "type", "conditionSets")
	list, isList := object["conditionSets"].([]any)
	if !isList || len(list) == 0 {
		p.fail("conditionSets", "must be a list with at least one set")
		return
	}
	effects := map[string]bool{}
	keys := map[string]bool{}
	for i, item := range list {
		path := fmt.Sprintf("conditionSets[%d]", i)
		entry, isMap := item.(map[string]any)
		if !isMap {
			p.fail(path, "must be a map")
			continue
		}
		if spec, ok := p.conditionSet(path, entry); ok {
			effects[spec["effect"].(string)], keys[spec["taintKey"].(string)] = true, true
			p.policy(path, "ConditionSet", kebab(spec["type"].(string)), "", spec)
		}
	}
	if len(effects) > 1 && len(keys) > 1 {
		p.warn("conditionSets", "of all sets that match a node only the highest effect was applied; ConditionSets do so only among those of one "+
			"taintKey. For the former write conditionSetPrecedence: Node in a Guardrail")
	}
	p.warn("conditionSets", "control-plane nodes are left out now; a set that is to taint them too needs includeControlPlane: true")
}

// conditionSet is the spec that an entry becomes; ok is false when it can't.
func (p *pass) conditionSet(path string, entry map[string]any) (spec map[string]any, ok bool) {
	p.warnUnknown(path, entry, "type", "effect", "taintKey", "conditions")
	spec, ok = map[string]any{}, true
	for _, name := range []string{"type", "effect", "taintKey"} {
		text, isText := entry[name].(string)
		if !isText || text == "" {
			p.fail(path+"."+name, "must be a string, and not empty")
			ok = false
			continue
		}
		spec[name] = text
	}
	if ok && kebab(spec["type"].(string)) == "" {
		p.fail(path+".type", "%q has nothing that a name can be made of", spec["type"])
		ok = false
	}
	conditions, read := p.conditions(path+".conditions", entry["conditions"])
	spec["conditions"] = conditions
	return spec, ok && read
}

// conditions turns the list into a map. A list with a type twice can't be converted: a map has each key once, and which of the two was meant
// isn't known.
func (p *pass) conditions(path string, value any) (conditions map[string]any, ok bool) {
	list, isList := value.([]any)
	if !isList || len(list) == 0 {
		p.fail(path, "must be a list with at least one condition")
		return nil, false
	}
	conditions, ok = map[string]any{}, true
	first := map[string]int{}
	for i, item := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		conditionType, status, read := p.condition(at, item)
		index, twice := first[conditionType]
		switch {
		case !read:
			ok = false
		case twice:
			p.fail(at, "condition %s is in %s[%d] already; a set has each condition once: remove one, or make two sets of them", conditionType, path, index)
			ok = false
		default:
			first[conditionType] = i
			conditions[conditionType] = map[string]any{"status": status}
		}
	}
	return conditions, ok
}

// condition reads one; its fields begin with either case, as they did in practice.
func (p *pass) condition(path string, value any) (conditionType string, status any, ok bool) {
	entry, isMap := value.(map[string]any)
	if !isMap {
		p.fail(path, "must be a map")
		return "", nil, false
	}
	p.warnUnknown(path, entry, "ConditionType", "conditionType", "ConditionStatus", "conditionStatus")
	typeValue, typeOK := p.eitherField(path, entry, "ConditionType", "conditionType")
	statusValue, statusOK := p.eitherField(path, entry, "conditionStatus", "ConditionStatus")
	if !typeOK || !statusOK {
		return "", nil, false
	}
	conditionType, isText := typeValue.(string)
	if !isText || conditionType == "" {
		p.fail(path+".ConditionType", "must be a string, and not empty")
		return "", nil, false
	}
	if status, ok = statusOf(statusValue); !ok {
		p.fail(path+".conditionStatus", "%v is none of true, false, Unknown", statusValue)
	}
	return conditionType, status, ok
}

// eitherField is the value of a field that may be written in two ways, but not in both.
func (p *pass) eitherField(path string, entry map[string]any, name, other string) (value any, ok bool) {
	value, has := entry[name]
	second, hasOther := entry[other]
	switch {
	case has && hasOther:
		p.fail(path, "%s and %s are one field; remove one of them", name, other)
		return nil, false
	case hasOther:
		return second, true
	case !has:
		p.fail(path, "%s is missing", name)
	}
	return value, has
}

// statusOf keeps booleans, and spells strings as Kubernetes does.
func statusOf(value any) (status any, ok bool) {
	switch v := value.(type) {
	case bool:
		return v, true
	case string:
		for _, word := range []string{"True", "False", "Unknown"} {
			if strings.EqualFold(v, word) {
				return word, true
			}
		}
	}
	return nil, false
}

// warnUnknown warns of the fields that aren't converted.
func (p *pass) warnUnknown(path string, object map[string]any, known ...string) {
	for _, key := range sortedKeys(object) {
		if !slices.Contains(known, key) {
			p.warn(strings.TrimPrefix(path+"."+key, "."), "has no counterpart, and is left out")
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// kebab is the name of an object of a type in CamelCase: NTPProblem becomes ntp-problem.
func kebab(camel string) string {
	runes := []rune(camel)
	var b strings.Builder
	for i, r := range runes {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			r = '-'
		}
		if i > 0 && unicode.IsUpper(r) {
			followsLower := !unicode.IsUpper(runes[i-1])
			beginsWord := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if followsLower || beginsWord {
				b.WriteRune('-')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	segments := strings.FieldsFunc(b.String(), func(r rune) bool { return r == '-' })
	return strings.Join(segments, "-")
}

package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// metadata is Chart.yaml. The chart's version is Autohealer's.
func metadata(version string) string {
	return `apiVersion: v2
name: autohealer
description: Self-healing for Kubernetes, with rules that refuse dangerous policies
type: application
version: ` + strings.TrimPrefix(version, "v") + `
appVersion: ` + version + `
kubeVersion: ">=1.33.0-0"
home: https://github.com/resourcestack/autohealer
sources:
- https://github.com/resourcestack/autohealer
`
}

// imageOf config: the registry, the name there, and the tag.
func imageOf(objects []object) (registry, repository, tag string) {
	for _, o := range objects {
		if o.is(deployment) {
			image, _ := o.at(imagePath).(string)
			registry, name, _ := strings.Cut(image, "/")
			repository, tag, _ := strings.Cut(name, ":")
			return registry, repository, tag
		}
	}
	return "", "", ""
}

func versionOf(objects []object) string {
	_, _, tag := imageOf(objects)
	return tag
}

// withDefaults are the settings, with what config has.
func withDefaults(inConfig map[string]any) ([]setting, error) {
	all := make([]setting, len(settings))
	for i, s := range settings {
		if s.def == nil {
			s.def = inConfig[s.name]
		}
		if s.def == nil {
			return nil, fmt.Errorf("%s has no default: neither places.go nor values.go has one", s.name)
		}
		all[i] = s
		delete(inConfig, s.name)
	}
	if len(inConfig) > 0 {
		return nil, fmt.Errorf("not in values.go: %v", inConfig)
	}
	return all, nil
}

const generated = "make generate writes this, from hack/gen-chart/values.go and config/."

func valuesFile(all []setting) string {
	var text strings.Builder
	text.WriteString("# " + generated + "\n")
	for _, s := range all {
		path := strings.Split(s.name, ".")
		indent := strings.Repeat("  ", len(path)-1)
		if len(path) == 1 {
			text.WriteString("\n")
		}
		for _, line := range wrapped(plain(s.says), 110) {
			text.WriteString(indent + "# " + line + "\n")
		}
		key := path[len(path)-1]
		if _, group := s.def.(group); group {
			text.WriteString(indent + key + ":\n")
			continue
		}
		for line := range strings.Lines(toYAML(map[string]any{key: s.def})) {
			text.WriteString(indent + line)
		}
	}
	return text.String()
}

var link = regexp.MustCompile(`\[(.+?)\]\(\.\./(.+?)\)`)

// plain is a text without the links of its page.
func plain(text string) string { return link.ReplaceAllString(text, "$1 (docs/$2)") }

// wrapped is a text in lines of at most so many characters.
func wrapped(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// schema refuses values that there aren't. A chart that has this one as a part may add global and enabled.
func schema(all []setting) string {
	top := map[string]any{"global": map[string]any{}, "enabled": map[string]any{}}
	groups := map[string]map[string]any{"": top}
	for _, s := range all {
		of := map[string]any{"type": typeOf(s.def), "description": plain(s.says)}
		if s.schema != "" {
			if err := json.Unmarshal([]byte(s.schema), &of); err != nil {
				panic(fmt.Errorf("the schema of %s: %w", s.name, err)) // in values.go
			}
		}
		if _, is := s.def.(group); is {
			groups[s.name] = map[string]any{}
			of["properties"], of["additionalProperties"] = groups[s.name], false
		}
		parent, key := "", s.name
		if i := strings.LastIndex(s.name, "."); i >= 0 {
			parent, key = s.name[:i], s.name[i+1:]
		}
		groups[parent][key] = of
	}
	text, err := json.MarshalIndent(map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#", "$comment": generated, "type": "object", "properties": top, "additionalProperties": false,
	}, "", "  ")
	if err != nil {
		panic(err) // it is made of what JSON has
	}
	return string(text) + "\n"
}

func typeOf(value any) string {
	switch value.(type) {
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64, int64, int:
		return "integer"
	case []any, list:
		return "array"
	}
	return "object"
}

// page is the reference of all values.
func page(all []setting) string {
	text := "# Values of the Helm chart\n\n<!-- " + generated + " -->\n\n" +
		"[How to install it](../how-to/install.md). The same, with comments, is printed by `helm show values charts/autohealer`.\n\n| value | default | what it does |\n|---|---|---|\n"
	for _, s := range all {
		def := ""
		if _, is := s.def.(group); !is {
			def = "`" + toJSON(s.def) + "`"
		}
		text += fmt.Sprintf("| `%s` | %s | %s |\n", s.name, def, strings.ReplaceAll(s.says, "|", `\|`))
	}
	return text
}

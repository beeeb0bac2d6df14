package publish

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/guard"
)

//go:embed guardrails.md.tmpl
var page string

// described is what the page tells of a kind.
type described struct {
	Name, Hash string
	Rules      []guard.RuleInfo
	Variables  []guard.Variable
	Plan       []guard.PlanField
}

// Docs is the page of all rules.
func Docs(g *guard.Guard) ([]byte, error) {
	of := struct {
		Generated string
		Kinds     []described
	}{Generated: generated}
	for _, kind := range g.Kinds() {
		rules := g.Rules(kind)
		of.Kinds = append(of.Kinds, described{kind, g.RuleSetHash(kind), rules, variablesOf(rules), g.PlanFields(kind)})
	}
	t, err := template.New("").Funcs(template.FuncMap{
		"anchor": guard.Anchor,
		"code":   func(texts []string) string { return "`" + strings.Join(texts, "`, `") + "`" },
		"cell":   func(text string) string { return strings.ReplaceAll(text, "|", "\\|") },
		"yaml": func(object json.RawMessage) (string, error) {
			text, err := yaml.JSONToYAML(object)
			return string(text), err
		},
		"examples": func(kind string, rule guard.RuleInfo) ([]guard.Example, error) {
			return g.Examples(context.Background(), kind, rule)
		},
	}).Parse(page)
	if err != nil {
		return nil, fmt.Errorf("read the page's template: %w", err)
	}
	var text bytes.Buffer
	if err := t.Execute(&text, of); err != nil {
		return nil, fmt.Errorf("describe the rules: %w", err)
	}
	return text.Bytes(), nil
}

// variablesOf are the shared variables of rules, each once.
func variablesOf(rules []guard.RuleInfo) (all []guard.Variable) {
	for _, rule := range rules {
		for _, v := range rule.Variables {
			if !slices.ContainsFunc(all, func(known guard.Variable) bool { return known.Name == v.Name }) {
				all = append(all, v)
			}
		}
	}
	return all
}

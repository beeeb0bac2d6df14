package cli

import (
	"context"
	"fmt"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/guard"
)

// explain writes all that is known of a rule, with one example of each verdict.
func (a *App) explain(ctx context.Context, g *guard.Guard, kind string, r guard.RuleInfo) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n\n%s\n\n", r.ID, r.Rationale)
	for _, line := range [][2]string{
		{"Severity", string(r.Severity)},
		{"Kind", kind},
		{"Reads", strings.Join(r.Reads, ", ")},
		{"Asked", whenAsked(r)},
		{"Without facts", withoutFacts(r)},
		{"Exceptable", map[bool]string{true: "yes, by a GuardrailException", false: "no"}[r.Exceptable]},
		{"Docs", guard.Docs(r.ID)},
	} {
		if line[1] != "" {
			fmt.Fprintf(&out, "%-15s%s\n", line[0]+":", line[1])
		}
	}
	fmt.Fprintf(&out, "\nExpression:\n%s", indent(r.Expression))
	if r.MessageExpression != "" {
		fmt.Fprintf(&out, "\nMessage:\n%s", indent(r.MessageExpression))
	}
	for _, v := range r.Variables {
		fmt.Fprintf(&out, "\nvariables.%s:\n%s", v.Name, indent(v.Expression))
	}
	examples, err := g.Examples(ctx, kind, r)
	if err != nil {
		return err
	}
	for _, example := range examples {
		if err := writeExample(&out, example); err != nil {
			return fmt.Errorf("show test %q of %s: %w", example.Name, r.ID, err)
		}
	}
	_, err = fmt.Fprint(a.Out, out.String())
	return err
}

func whenAsked(r guard.RuleInfo) string {
	asked := "at creation, and when the spec changes"
	if r.AtRunTime {
		asked += "; again before anything acts on the object"
	}
	if r.Portable && r.Severity == guard.Deny {
		asked += "; by the API server itself while the webhook is away"
	}
	return asked
}

func withoutFacts(r guard.RuleInfo) string {
	if !r.NeedsFacts {
		return ""
	}
	if r.OnFactsUnavailable == guard.Deny {
		return "refuses"
	}
	return "warns that it wasn't asked"
}

func writeExample(out *strings.Builder, example guard.Example) error {
	fmt.Fprintf(out, "\n%s: %s\n", example.Label, example.Name)
	for _, part := range []struct {
		name string
		text []byte
	}{{"", example.Object}, {"was", example.OldObject}, {"plan", example.Plan}} {
		if len(part.text) == 0 {
			continue
		}
		var value any
		if err := utiljson.Unmarshal(part.text, &value); err != nil {
			return err
		}
		if part.name != "" {
			value = map[string]any{part.name: value}
		}
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		out.WriteString(indent(string(text)))
	}
	for _, message := range example.Messages {
		fmt.Fprintf(out, "  => %s\n", message)
	}
	return nil
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}

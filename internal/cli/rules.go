package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/domain/suggest"
	"github.com/resourcestack/autohealer/internal/guard"
)

func (a *App) rulesList() *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the built-in rules",
		Example: `  kubectl autohealer rules list
  kubectl autohealer rules list --kind ConditionSet -o json`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&kind, "kind", "", "only the rules for this kind")
	// It fails for a flag that isn't there, and this one is.
	_ = cmd.RegisterFlagCompletionFunc("kind", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return a.complete((*guard.Guard).Kinds)
	})
	output := outputFlag(cmd, "RuleList", map[string]printer[ruleList]{"": rulesTable})
	cmd.RunE = func(*cobra.Command, []string) error { return a.runRulesList(kind, output) }
	return cmd
}

// ruleList is what rules list shows.
type ruleList []guard.RuleInfo

// MarshalJSON has of each rule what its author wrote of it and what compiling it found out, but for its tests.
func (l ruleList) MarshalJSON() ([]byte, error) {
	items := []map[string]any{}
	for _, r := range l {
		items = append(items, map[string]any{
			"id": r.ID, "kinds": r.Kinds, "severity": r.Severity, "reads": r.Reads, "portable": r.Portable, "needsFacts": r.NeedsFacts,
			"atRunTime": r.AtRunTime, "exceptable": r.Exceptable, "rationale": r.Rationale, "docs": guard.Docs(r.ID),
		})
	}
	return json.Marshal(map[string]any{"items": items})
}

func (a *App) runRulesList(kind string, output *output[ruleList]) error {
	show, err := output.printer()
	if err != nil {
		return err
	}
	checker, err := a.newChecker()
	if err != nil {
		return err
	}
	kinds := checker.Guard().Kinds()
	if kind != "" {
		i := slices.IndexFunc(kinds, func(k string) bool { return strings.EqualFold(k, kind) })
		if i < 0 {
			return fmt.Errorf("--kind: there are no rules for %q, only for %s", kind, strings.Join(kinds, ", "))
		}
		kinds = kinds[i : i+1]
	}
	var rules ruleList
	for _, k := range kinds {
		rules = append(rules, checker.Guard().Rules(k)...)
	}
	return show.write(rules, a.Out)
}

// rulesTable writes rules for people.
func rulesTable(w io.Writer, rules ruleList) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RULE\tVERDICT\tNEEDS\tEXCEPTABLE")
	for _, r := range rules {
		exceptable := "no"
		if r.Exceptable {
			exceptable = "yes"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.ID, r.Severity, needs(r), exceptable)
	}
	return table.Flush()
}

// needs says what a rule must be able to ask beside the rules in force.
func needs(r guard.RuleInfo) string {
	asksRights := slices.ContainsFunc(r.Reads, func(path string) bool { return strings.HasPrefix(path, "authorizer") })
	switch {
	case r.NeedsFacts:
		return "cluster"
	case asksRights:
		return "authorizer"
	}
	return "object"
}

func (a *App) rulesExplain() *cobra.Command {
	return &cobra.Command{
		Use:     "explain RULE",
		Short:   "Show what a rule asks, why, and what it says of examples",
		Example: `  kubectl autohealer rules explain conditionset/would-exceed-limit`,
		Args:    cobra.ExactArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.complete(ruleIDs)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.runRulesExplain(cmd.Context(), args[0]) },
	}
}

// complete offers what the rules know.
func (a *App) complete(offers func(*guard.Guard) []string) ([]string, cobra.ShellCompDirective) {
	checker, err := a.newChecker()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return offers(checker.Guard()), cobra.ShellCompDirectiveNoFileComp
}

func ruleIDs(g *guard.Guard) []string {
	var ids []string
	for _, kind := range g.Kinds() {
		for _, r := range g.Rules(kind) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

func (a *App) runRulesExplain(ctx context.Context, id string) error {
	checker, err := a.newChecker()
	if err != nil {
		return err
	}
	g := checker.Guard()
	for _, kind := range g.Kinds() {
		for _, r := range g.Rules(kind) {
			if r.ID == id {
				return a.explain(ctx, g, kind, r)
			}
		}
	}
	meant := cmp.Or(suggest.DidYouMean(id, ruleIDs(g)), suggest.DidYouMean(path.Base(id), ruleIDs(g)), "; see rules list")
	return fmt.Errorf("there is no rule %q%s", id, meant)
}

// explain writes all that is known of a rule, with one example of each verdict.
func (a *App) explain(ctx context.Context, g *guard.Guard, kind string, r guard.RuleInfo) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n\n%s\n\n", r.ID, r.Rationale)
	for _, line := range [][2]string{
		{"Severity", string(r.Severity)},
		{"Kind", kind},
		{"Reads", strings.Join(r.Reads, ", ")},
		{"Asked", whenJudged(r)},
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

func whenJudged(r guard.RuleInfo) string {
	when := "at creation, and when the spec changes"
	if r.AtRunTime {
		when += "; again before anything acts on the object"
	}
	if r.Portable && r.Severity == guard.Deny {
		when += "; by the API server itself while the webhook is away"
	}
	return when
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
	for _, section := range []struct {
		name   string
		object *runtime.RawExtension
	}{{"", &example.Object}, {"was", example.OldObject}, {"plan", example.Plan}} {
		if section.object == nil {
			continue
		}
		var value any
		if err := utiljson.Unmarshal(section.object.Raw, &value); err != nil {
			return err
		}
		if section.name != "" {
			value = map[string]any{section.name: value}
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

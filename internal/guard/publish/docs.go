package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/guard"
)

const docsIntroduction = `# Guardrails

<!-- %s -->

Every policy is judged by these rules before it is stored, and again before anything acts on it. A rule is a CEL
expression that must be true.

- **Deny** refuses the object; **Warn** admits it with a warning.
- A rule that reads only ` + "`object`" + ` also holds while the webhook is away: the API server evaluates it by itself, from the
  generated ValidatingAdmissionPolicy in ` + "`config/policy`" + `; and it is judged again whenever the policy would act.
- A rule that reads ` + "`plan`" + ` asks what the object would do to the cluster as it is now. It judges creations and changes of
  the spec. While what is known of the cluster isn't complete, it is skipped with a warning.
- An update that touches none of the fields a rule reads turns its Deny into a warning: what was stored before stays
  editable. So does, where the rule says so, one that touches none of the fields that what it reads of ` + "`plan`" + ` follows
  from, if the stored object may act: what changed then is the cluster.
- Under a rule over what a ConditionSet would do now, so does an update after which the set does no more than before: none of
  conditions, nodeSelector, includeControlPlane and maxNodes is wider, and the effect isn't harder, the key another one, for or
  evictAfter shorter, or staleAfter longer. So a set can be made softer in the middle of an incident. Turning mode from Observe to Enforce is judged like
  a creation.
- No rule refuses an update that changes nothing but mode, from Enforce to Observe.
- Some rules deny what would be done, and only warn while mode is Observe.
- A GuardrailException lifts an exceptable rule for one object as it is now, for 7 days at most.

## Rules of your own

A Guardrail's ` + "`spec.rules`" + ` judge beside these rules, as they do, and can't weaken them. Their expressions are checked
against the CRD of each of their kinds before the Guardrail is stored. They may read:

| name | what | holds at run time |
|---|---|---|
| ` + "`object`" + ` | its ` + "`apiVersion`, `kind`, `spec`" + `, and of ` + "`metadata`" + ` annotations, creationTimestamp, generateName, generation, labels, name, namespace and uid: a change of anything else isn't judged; a field that may be absent needs ` + "`has()`" + ` or ` + "`.?field.orValue()`" + `; durations and times are texts: ` + "`duration(object.spec.for)`" + ` | yes |
| ` + "`oldObject`" + ` | the stored object on an update, else null | no: judges creations and updates |
| ` + "`request`" + ` | who asks, and for what: ` + "`request.userInfo.username`" + ` | no |
| ` + "`authorizer`" + ` | what an account may do: ` + "`authorizer.serviceAccount(namespace, name).group('').resource('pods').namespace(n).check('delete').allowed()`" + `; at most two questions a rule, asked anew within a minute; without an answer the rule isn't checked, whatever it says | where every use is ` + "`authorizer.serviceAccount(…)`" + ` |
| ` + "`limits`" + ` | the limits in force: ` + "`maxTaintedNodes`" + `, ` + "`maxEvictingNodes`" + ` and ` + "`maxScaledDownTargets`" + `, each with ` + "`percent`" + ` (100 when there is none) and ` + "`nodes`" + ` (2147483647 when there is none), ` + "`maxPodDeletionsPerMinute`" + `, ` + "`breakerPercent`" + `, ` + "`breakerMin`" + ` | yes |
| ` + "`plan`" + ` | what the object would do now; each kind's fields are below | the fields that need no facts |
| ` + "`facts`" + ` | ` + "`facts.synced`, `facts.ageSeconds` and `facts.nodes`" + `: how many nodes limits take a share of | no |
| ` + "`variables`" + ` | the kind's shared variables, below | yes |

A rule that holds at run time stops a stored object from acting; the others judge creations and changes only. One that
can't be evaluated counts as violated. A rule that reads ` + "`object`" + ` alone leaves what is stored editable, as above. Under one that
also reads anything else but ` + "`variables`" + `, such as ` + "`limits`" + `, each change of a spec is judged like a creation: what breaks it can be
mended, turned to mode Observe, or deleted. All rules of Guardrails for a kind have a common cost budget; where it is used up, the
rules of the oldest Guardrails hold.

Some variables are tables, such as the healthy status of each condition type. Condition types that Guardrails declare extend
them where Autohealer judges; ` + "`either`" + ` is the healthy status of a type on which they disagree. The generated policies
carry the built-in table, so that a rule over a declared type doesn't hold while the webhook is away; it holds when the object
would act.
`

// Docs is the page of all rules.
func Docs(g *guard.Guard) ([]byte, error) {
	var page strings.Builder
	fmt.Fprintf(&page, docsIntroduction, generated)
	for _, kind := range g.Kinds() {
		fmt.Fprintf(&page, "\n## %s\n\nRules in force: `%s` (the audit log names this hash with every verdict).\n\n| rule | verdict | reads |\n|---|---|---|\n", kind, g.RuleSetHash(kind))
		for _, rule := range g.Rules(kind) {
			fmt.Fprintf(&page, "| [%s](#%s) | %s | %s |\n", rule.ID, guard.Anchor(rule.ID), rule.Severity, code(rule.Reads, ", "))
		}
		for _, rule := range g.Rules(kind) {
			if err := writeRule(g, &page, kind, rule); err != nil {
				return nil, fmt.Errorf("describe rule %s: %w", rule.ID, err)
			}
		}
		writeVariables(&page, g.Rules(kind))
		writePlan(&page, g.PlanFields(kind))
	}
	return []byte(page.String()), nil
}

func code(texts []string, between string) string {
	return "`" + strings.Join(texts, "`"+between+"`") + "`"
}

func writeRule(g *guard.Guard, page *strings.Builder, kind string, rule guard.RuleInfo) error {
	fmt.Fprintf(page, "\n<a id=\"%s\"></a>\n### %s\n\n%s\n\n", guard.Anchor(rule.ID), rule.ID, rule.Rationale)
	exceptable := ""
	if rule.Exceptable {
		exceptable = " A GuardrailException may lift it."
	}
	softer := ""
	if rule.WhileObserving != "" {
		softer = " It only warns while `mode` is Observe."
	}
	if len(rule.RatchetOn) > 0 {
		softer += " It only warns of an update that leaves alone what it reads of `object`, and " + code(rule.RatchetOn, ", ") + "."
		if !rule.AtRunTime {
			softer = strings.TrimSuffix(softer, ".") + ", if no other rule keeps the stored object from acting."
		}
	}
	if rule.RatchetWhen != "" {
		softer += " It only warns of an update that makes nothing worse (`" + rule.RatchetWhen + "`), if no other rule keeps the stored object from acting."
	}
	fmt.Fprintf(page, "**%s**. Reads %s.%s%s\n\n```cel\n%s\n```\n", rule.Severity, code(rule.Reads, ", "), exceptable, softer, rule.Expression)
	shown := map[guard.Outcome]bool{}
	for _, test := range rule.Tests { // one example of each verdict
		if shown[test.Expect] {
			continue
		}
		shown[test.Expect] = true
		if err := writeExample(g, page, kind, rule, test); err != nil {
			return err
		}
	}
	return nil
}

func writeExample(g *guard.Guard, page *strings.Builder, kind string, rule guard.RuleInfo, test guard.Test) error {
	verdict, err := g.RunTest(context.Background(), kind, test)
	if err != nil {
		return err
	}
	object, err := example(test.Object)
	if err != nil {
		return err
	}
	label := map[guard.Outcome]string{guard.ExpectAdmit: "Admitted", guard.ExpectWarn: "Warned", guard.ExpectDeny: "Refused"}[test.Expect]
	fmt.Fprintf(page, "\n%s: %s\n\n", label, test.Name)
	if test.OldObject != nil {
		stored, err := example(test.OldObject)
		if err != nil {
			return err
		}
		fmt.Fprintf(page, "%sbecomes\n\n", stored)
	}
	page.WriteString(object)
	for _, violation := range verdict.Violations {
		if violation.Rule == rule.ID {
			fmt.Fprintf(page, "\n> %s\n", violation.Message)
		}
	}
	return nil
}

// example is an object as a block of YAML.
func example(object json.RawMessage) (string, error) {
	text, err := yaml.JSONToYAML(object)
	if err != nil {
		return "", fmt.Errorf("write an example: %w", err)
	}
	return fmt.Sprintf("```yaml\n%s```\n", text), nil
}

func writePlan(page *strings.Builder, fields []guard.PlanField) {
	if len(fields) == 0 {
		return
	}
	fmt.Fprint(page, "\n### Fields of plan\n\n| field | type | needs facts |\n|---|---|---|\n")
	for _, f := range fields {
		fmt.Fprintf(page, "| `plan.%s` | %s | %s |\n", f.Name, f.Type, map[bool]string{true: "yes", false: "no"}[f.NeedsFacts])
	}
}

func writeVariables(page *strings.Builder, rules []guard.RuleInfo) {
	fmt.Fprint(page, "\n### Shared variables\n\n| variable | type | expression |\n|---|---|---|\n")
	seen := map[string]bool{}
	for _, rule := range rules {
		for _, v := range rule.Variables {
			if !seen[v.Name] {
				seen[v.Name] = true
				fmt.Fprintf(page, "| `variables.%s` | %s | `%s` |\n", v.Name, v.Type, strings.ReplaceAll(v.Expression, "|", "\\|"))
			}
		}
	}
}

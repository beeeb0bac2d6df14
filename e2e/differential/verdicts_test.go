package differential

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/resourcestack/autohealer/internal/guard"
)

// verdicts of all judges over one object.
type verdicts struct {
	*one
	rules map[string]guard.RuleInfo // the built-in ones of its kind

	apply           answer // of the API server with both gates, of a server-side apply
	policy, webhook answer // of the API server with one of them
	// The same with a schema that lets values through; of kinds whose schema repeats rules.
	relaxedPolicy, relaxedWebhook answer
	engine                        answer // of the rules in this process
	offline, informed             answer // of the CLI, without and with facts
	// amongOthers: the CLI was asked about others with it, which judge it as well.
	amongOthers bool
}

// agree fails the spec with the first few of all differences.
func agree(all []*verdicts, compare func(*verdicts) []string) {
	GinkgoHelper()
	var differences []string
	for _, v := range all {
		for _, difference := range compare(v) {
			before := "nothing"
			if v.old != nil {
				before = string(encode(v.old))
			}
			differences = append(differences, fmt.Sprintf("%s\nof %s\nbefore %s", difference, encode(v.object), before))
		}
	}
	if len(differences) > 0 {
		Fail(fmt.Sprintf("%d differences, seed %d\n\n%s", len(differences), seed, strings.Join(differences[:min(5, len(differences))], "\n\n")))
	}
}

// differ tells where an answer isn't what it should be.
func differ(differences *[]string, judge string, got, want any) {
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		*differences = append(*differences, fmt.Sprintf("%s\n got %q\nwant %q", judge, got, want))
	}
}

func (v *verdicts) schemas() (differences []string) {
	for judge, a := range map[string]answer{"apply": v.apply, "API server with webhook": v.webhook, "CLI": v.offline, "CLI with facts": v.informed} {
		if a.invalid != v.policy.invalid && !a.emptied() {
			differences = append(differences, fmt.Sprintf("%s: refused by the schema: %v (%v)\nwant %v (%v)", judge, a.invalid, a.reason, v.policy.invalid, v.policy.reason))
		}
	}
	return differences
}

// isPortable says whether a built-in rule can be asked anywhere.
func (v *verdicts) isPortable(id string) bool { return v.rules[id].Portable }

// portable compares what needs no cluster. A policy has the rules that deny, unless the object is annotated for an exception.
func (v *verdicts) portable() (differences []string) {
	refused, warned := only(v.engine.refused, v.isPortable), only(v.engine.warned, v.isPortable)
	annotated := strings.Split(strings.ReplaceAll(v.object.GetAnnotations()[exceptedRules], " ", ""), ",")
	byPolicy := []string{}
	for _, line := range v.engine.refused {
		id, _, _ := strings.Cut(line, ": ")
		if v.isPortable(id) && (!v.rules[id].Exceptable || !slices.Contains(annotated, id)) {
			byPolicy = append(byPolicy, line)
		}
	}
	if v.pauses() {
		differ(&differences, "CLI: refused what only pauses", v.offline.refused, []string(nil))
		return append(differences, v.silent()...)
	}
	policies, webhooks := map[string]answer{"policy": v.policy}, map[string]answer{"webhook": v.webhook, "CLI": v.offline, "CLI with facts": v.informed}
	if v.unfit != "" {
		policies["policy behind a relaxed schema"], webhooks["webhook behind a relaxed schema"] = v.relaxedPolicy, v.relaxedWebhook
	}
	for judge, a := range policies {
		if !a.invalid {
			differ(&differences, judge+": refused", strings.Join(a.refused, "; "), strings.Join(byPolicy, "; "))
		}
	}
	for judge, a := range webhooks {
		if !a.invalid {
			differ(&differences, judge+": refused", only(a.refused, v.isPortable), refused)
			differ(&differences, judge+": warned", only(a.warned, v.isPortable), warned)
		}
	}
	return differences
}

// pauses: an update that turns a Guardrail's pause on and changes nothing else. The API server asks nobody, so that nothing
// is in its way; the others only warn.
func (v *verdicts) pauses() bool {
	if v.kind != "Guardrail" || v.old == nil {
		return false
	}
	was, _, _ := unstructured.NestedMap(v.old.Object, "spec")
	is, _, _ := unstructured.NestedMap(v.object.Object, "spec")
	turnsOn := is["paused"] == true && was["paused"] != true
	delete(was, "paused")
	delete(is, "paused")
	return turnsOn && equality.Semantic.DeepEqual(was, is)
}

func (v *verdicts) silent() (differences []string) {
	for judge, a := range map[string]answer{"policy": v.policy, "webhook": v.webhook, "apply": v.apply} {
		differ(&differences, judge+" about what only pauses", slices.Concat(a.refused, a.warned), []string(nil))
	}
	return differences
}

// whole compares all rules, those of Guardrails too, but for those that webhook or CLI say they can't ask.
func (v *verdicts) whole() (differences []string) {
	if v.webhook.invalid || v.pauses() || v.amongOthers {
		return nil
	}
	for id, missing := range v.informed.missing {
		differ(&differences, "CLI with facts: "+id+" isn't checked for want of", missing, v.unknowable(id))
	}
	skipped := slices.Concat(v.informed.skipped, v.webhook.skipped)
	asked := func(id string) bool { return !slices.Contains(skipped, id) }
	differ(&differences, "CLI with facts: refused", only(v.informed.refused, asked), only(v.webhook.refused, asked))
	differ(&differences, "CLI with facts: warned", only(v.informed.warned, asked), only(v.webhook.warned, asked))
	return differences
}

// unknowable is what a rule asks that facts in a file can't tell; "" when they can.
func (v *verdicts) unknowable(id string) string {
	switch rule := v.rules[id]; {
	case strings.Contains(id, "/"+asksWho):
		return "request"
	case strings.Contains(id, "/"+asksRights), slices.Contains(rule.Reads, "authorizer"):
		return "authorizer"
	case rule.NeedsFacts:
		return "facts"
	}
	return ""
}

// leftOpen says whether the webhook refused or warned by a rule of which the CLI says that it can't ask it.
func (v *verdicts) leftOpen(name string) bool {
	return slices.ContainsFunc(v.informed.skipped, func(id string) bool {
		return strings.Contains(id, "/"+name) && slices.ContainsFunc(slices.Concat(v.webhook.refused, v.webhook.warned), func(line string) bool { return strings.HasPrefix(line, id+": ") })
	})
}

// applied compares an apply that isn't done with what the gates say each by itself: the policy is asked first.
func (v *verdicts) applied() (differences []string) {
	if v.apply.emptied() || v.pauses() {
		return nil
	}
	want := v.webhook
	if len(v.policy.refused) > 0 {
		want = v.policy
	}
	differ(&differences, "apply: refused", v.apply.refused, want.refused)
	differ(&differences, "apply: warned", v.apply.warned, want.warned)
	return differences
}

// compared: the policies and the engine were asked about the same object, behind one schema or the other.
func (v *verdicts) compared() bool {
	return !v.policy.invalid || v.unfit != "" && !v.relaxedPolicy.invalid
}

// tally is how often a rule said what.
type tally struct{ allowed, denied, warned int }

// tallies counts what each rule said of the objects that were compared.
func tallies(all []*verdicts) map[string]tally {
	counts := map[string]tally{}
	for _, v := range all {
		if !v.compared() {
			continue
		}
		for id := range v.rules {
			says := func(line string) bool { return strings.HasPrefix(line, id+": ") }
			n := counts[id]
			switch {
			case slices.ContainsFunc(v.engine.refused, says):
				n.denied++
			case slices.ContainsFunc(v.engine.warned, says):
				n.warned++
			default:
				n.allowed++
			}
			counts[id] = n
		}
	}
	return counts
}

// report prints what was asked. A rule that denies only warns of what an update left as it was. A long run must have seen
// every portable rule kept and broken, and some that only warned.
func report(engine *guard.Guard, all []*verdicts) {
	counts := tallies(all)
	var missed []string
	unchanged := 0
	GinkgoWriter.Printf("%-42s %8s %8s %8s\n", "rule", "allowed", "denied", "warned")
	for _, s := range subjects {
		for _, rule := range engine.Rules(s.kind) {
			if !rule.Portable {
				continue
			}
			n := counts[rule.ID]
			GinkgoWriter.Printf("%-42s %8d %8d %8d\n", rule.ID, n.allowed, n.denied, n.warned)
			broken := n.warned
			if rule.Severity == guard.Deny {
				broken = n.denied
				unchanged += n.warned
			}
			if n.allowed == 0 || broken == 0 {
				missed = append(missed, rule.ID)
			}
		}
	}
	invalid, executions := 0, 0
	skipped := map[string]bool{}
	left := map[string]int{}
	for _, v := range all {
		for _, name := range []string{asksWho, asksRights} {
			if v.leftOpen(name) {
				left[name]++
			}
		}
		executions += 6
		if v.unfit != "" {
			executions += 2
		}
		if v.policy.invalid {
			invalid++
		}
		for _, id := range v.informed.skipped {
			skipped[id] = true
		}
	}
	GinkgoWriter.Printf("seed %d; %d objects, %d of them refused by their schema; %d verdicts; of %v the CLI said that it can't know what the webhook found; it could not ask %s\n",
		seed, len(all), invalid, executions, left, strings.Join(slices.Sorted(maps.Keys(skipped)), ", "))
	if objectsAKind >= longRun {
		Expect(missed).To(BeEmpty(), "rules that the random objects don't reach")
		Expect(unchanged).To(BeNumerically(">", 0), "updates that leave an old violation as it was")
		Expect(left).To(HaveKey(asksWho), "rules over who asks, which only the webhook can ask")
	}
}

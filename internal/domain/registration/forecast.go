package registration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Lines tell a condition's forecast to people: what it is and would be, and below it each check that isn't True, or wasn't made.
func (c *ConditionForecast) Lines() []string {
	lines := []string{fmt.Sprintf("%s: %s", c.Type, c.change())}
	for _, r := range c.Results {
		if r.Status == health.True {
			continue
		}
		line := fmt.Sprintf("  check %s is %s", r.Check, resultText(r))
		if len(r.Codes) > 0 {
			line += " [" + strings.Join(r.Codes, ", ") + "]"
		}
		lines = append(lines, line)
	}
	for _, name := range c.NotEvaluated {
		lines = append(lines, fmt.Sprintf("  check %s isn't made here: %s", name, c.whyNotMade(name)))
	}
	return lines
}

// Chain tells the same from the other end: each check, what it looks at and what its result is, and then the condition.
func (c *ConditionForecast) Chain() []string {
	lines := []string{fmt.Sprintf("%s: %s", c.Type, c.change())}
	for _, r := range c.Results {
		lines = append(lines, fmt.Sprintf("  check %s of %s: %s", r.Check, c.At[r.Check], resultText(r)))
	}
	for _, name := range c.NotEvaluated {
		lines = append(lines, fmt.Sprintf("  check %s%s: not made here, %s", name, strings.TrimSuffix(" of "+c.At[name], " of "), c.whyNotMade(name)))
	}
	return lines
}

func resultText(r health.Result) string {
	text := string(r.Status)
	if r.Status != health.True {
		text += ": " + r.Detail
	}
	if r.Status == health.Progressing {
		text += fmt.Sprintf("; Progressing for at most %s", r.Timeout)
	}
	return text
}

func (c *ConditionForecast) whyNotMade(name string) string {
	if c.At[name] == "" {
		return "its registration names the kind in another version"
	}
	return "it looks at the shoot"
}

// at says what a check looks at for a target.
func (c *Check) at(target *unstructured.Unstructured, there Finder) string {
	nodes := "the nodes in the shoot"
	if !c.hasObject() {
		return nodes
	}
	is := c.Kind.Kind
	if ref, err := c.Ref(target); err == nil {
		is = c.called(there.Resolve(c, ref))
	}
	if c.Shoot {
		is += " in the shoot"
	}
	if c.Nodes {
		return nodes + " and " + is
	}
	return is
}

// called names what a check looks at: one object, or all that are chosen.
func (c *Check) called(ref Ref) string {
	if ref.Name != "" {
		return c.Kind.Kind + " " + strings.TrimPrefix(ref.Key().String(), "/")
	}
	every := "every " + c.Kind.Kind + within(ref)
	if by := c.chosenBy(ref); by != "" {
		every += " that matches " + by
	}
	return every
}

// missing says that what a check looks at isn't there.
func (c *Check) missing(ref Ref) string {
	if ref.Name != "" {
		return c.called(ref) + " doesn't exist"
	}
	if by := c.chosenBy(ref); by != "" {
		return "no " + c.Kind.Kind + within(ref) + " matches " + by
	}
	return "there is no " + c.Kind.Kind + within(ref)
}

func within(ref Ref) string {
	if ref.Namespace == "" {
		return ""
	}
	return " in namespace " + ref.Namespace
}

// chosenBy is what an object of the kind must match; "" where any does.
func (c *Check) chosenBy(ref Ref) string {
	var by []string
	if selector := ref.Selector.String(); selector != "" {
		by = append(by, selector)
	}
	if c.where != nil {
		by = append(by, "object.where")
	}
	return strings.Join(by, " and ")
}

// change says what becomes of the condition.
func (c *ConditionForecast) change() string {
	is := "there is none"
	if c.Now != "" {
		is = string(c.Now)
		if !c.Since.IsZero() {
			is += " since " + c.Since.UTC().Format(time.RFC3339)
		}
	}
	would := string(c.Verdict.Status)
	switch {
	case c.Foreign:
		return is + ", and someone else's: it isn't touched"
	case c.Removed:
		return is + " → removed"
	case c.Unchanged != "":
		return is + ", and stays so: " + c.Unchanged
	case would == "":
		return is + "; what it would be isn't known"
	case c.Held:
		would += ", because the breaker opens when so many turn False at once"
	case c.Verdict.Status == health.Progressing:
		would += ", and False from " + c.Verdict.RequeueAt.UTC().Format(time.RFC3339) + " on if that goes on"
	}
	switch {
	case !c.Changes:
		return is + ", and stays so"
	case !c.Writes:
		would += " (not written)"
	}
	return is + " → " + would
}

// Forecast is what a registration would make of its targets, and what else concerns it. Rules read all but Items.
type Forecast struct {
	// Targets are the selected objects among those that were read, Looked those of them that were looked at. AllRead: no
	// others exist.
	Targets, Looked int
	AllRead         bool
	// WouldFail counts targets with a condition that would turn False, WouldFailTargets reports some. WouldBeDoubted counts
	// those where the breaker wouldn't trust it.
	WouldFail        int
	WouldFailTargets []string
	WouldBeDoubted   int
	// WouldBeUnknown counts targets with a condition that would be Unknown, since an expression of a check can't be evaluated,
	// WouldBeUnknownTargets reports some.
	WouldBeUnknown        int
	WouldBeUnknownTargets []string
	// ForeignConditions are some that are on targets already and someone else's.
	ForeignConditions []string
	// UnknownKinds aren't served; UnreadableKinds Autohealer may not read.
	UnknownKinds, UnreadableKinds []string
	// Unwritable says why targets take no conditions; "" when they do.
	Unwritable string
	// TypeErrors are the parts of expressions that fail for every object, by the types of what they read; UndefinedFields those that they
	// read and that the kinds' schemas don't have.
	TypeErrors, UndefinedFields []string
	// OtherShapes are condition types that another registration writes to the same kind in another shape.
	OtherShapes []string
	// Cycles are ways by which conditions depend on themselves.
	Cycles []string
	// StatuslessChecks judge by status what has none of the conditions that kstatus reads; each with its objects' kind and conditions.
	StatuslessChecks []string
	// Workerless are some targets without workers, for which EveryNodeReady would be decided.
	Workerless []string
	// UnsafeKubeconfigs are some Secrets of shoots, each with what is wrong.
	UnsafeKubeconfigs []string

	// Items tell people the same of each target that was evaluated.
	Items Items
}

// Items are what a registration would make of each target.
type Items struct {
	// Targets that were looked at, the worst first; More says that not all objects of the kind were read.
	Targets []TargetForecast
	More    bool
	// Failing counts targets with a condition that is False already, Writes the conditions that would be written.
	Failing, Writes int
	// Untyped is why the types of some fields that expressions read aren't known; nil when they are.
	Untyped error
}

// NotKnown is why it isn't known what a field of the forecast would be, by its name; nil when it is.
func (f Forecast) NotKnown(field string) error {
	if field == "TypeErrors" && len(f.TypeErrors) == 0 || field == "UndefinedFields" && len(f.UndefinedFields) == 0 {
		return f.Items.Untyped
	}
	return nil
}

// Plan plans targets one after the other, with one breaker over all: targets is how many the registration has among the objects
// that were read, and more says that there are others. Open is its breaker, nil while that is closed.
func (f *Forecast) Plan(inputs []TargetInput, targets int, more bool, open *limit.Opening, now time.Time) {
	var breaker health.Breaker
	if open != nil {
		breaker.Restore(open)
	}
	for _, c := range inputs {
		name := types.NamespacedName{Namespace: c.Target.GetNamespace(), Name: c.Target.GetName()}.String()
		c.AllowFalse = func(index int, conditionType string, doubted, counts bool) bool {
			switch {
			case index > 0:
				return !c.Registrations[index].BreakerOpen
			case more && open == nil: // of how many targets too many are a share isn't known
				return true
			case !counts:
				_, open := breaker.Opening()
				return !open
			}
			return breaker.AllowFalse(name, conditionType, doubted, targets, now)
		}
		f.Items.Targets = append(f.Items.Targets, c.Forecast(now))
	}
	slices.SortStableFunc(f.Items.Targets, func(a, b TargetForecast) int {
		return cmp.Or(health.CompareStatus(a.Worst(), b.Worst()),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	f.Targets, f.Looked, f.Items.More, f.AllRead = targets, len(inputs), more, !more
	for i := range f.Items.Targets {
		f.count(&f.Items.Targets[i])
	}
}

// count takes in what the items say.
func (f *Forecast) count(t *TargetForecast) {
	name := strings.TrimPrefix(t.Namespace+"/"+t.Name, "/")
	fails, held, failing, unknown := 0, 0, 0, 0
	for i := range t.Conditions {
		c := &t.Conditions[i]
		if c.Foreign {
			sample.Once(&f.ForeignConditions, c.Type+" of "+name)
		} else if c.Now == health.False {
			failing = 1
		}
		if c.Fails() {
			fails = 1
			sample.Once(&f.WouldFailTargets, name+": "+c.Type+" "+strings.TrimRight(c.Verdict.Message, "."))
		}
		if c.Held {
			held = 1
		}
		if c.Faulty() {
			unknown = 1
			sample.Once(&f.WouldBeUnknownTargets, name+": "+c.Type+" "+strings.TrimRight(c.Verdict.Message, "."))
		}
		if c.Writes {
			f.Items.Writes++
		}
	}
	f.WouldFail, f.WouldBeDoubted, f.Items.Failing = f.WouldFail+fails, f.WouldBeDoubted+held, f.Items.Failing+failing
	f.WouldBeUnknown += unknown
}

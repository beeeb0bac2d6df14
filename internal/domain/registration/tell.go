package registration

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

// Lines tell a condition's forecast to people: what it is and would be, and below it each check that isn't True, or wasn't made.
func (c *ConditionForecast) Lines() []string {
	lines := []string{fmt.Sprintf("%s: %s", c.Type, c.change())}
	for _, r := range c.Results {
		if r.Status == health.True {
			continue
		}
		line := fmt.Sprintf("  check %s is %s: %s", r.Check, r.Status, r.Detail)
		if r.Status == health.Progressing {
			line += fmt.Sprintf("; believed for %s", r.Timeout)
		}
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

// Chain tells the same from the other end: each check, what it looks at and what it says of it, and then the condition.
func (c *ConditionForecast) Chain() []string {
	var lines []string
	for _, r := range c.Results {
		says := string(r.Status)
		if r.Status != health.True {
			says += ": " + r.Detail
		}
		if r.Status == health.Progressing {
			says += fmt.Sprintf("; believed for %s", r.Timeout)
		}
		lines = append(lines, fmt.Sprintf("  check %s of %s: %s", r.Check, c.At[r.Check], says))
	}
	for _, name := range c.NotEvaluated {
		lines = append(lines, fmt.Sprintf("  check %s%s: not made here, %s", name, strings.TrimSuffix(" of "+c.At[name], " of "), c.whyNotMade(name)))
	}
	return append([]string{fmt.Sprintf("%s: %s", c.Type, c.change())}, lines...)
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
		would += ", because the breaker doesn't believe False of so many at once"
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

package overview

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/cli-runtime/pkg/printers"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/display"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// TextOptions say how people see it.
type TextOptions struct {
	// Wide shows each policy's message in full, also of those that are well.
	Wide bool
	// Colors are for terminals.
	Colors bool
	Now    time.Time
}

// Text writes one screen for people.
func (o *Overview) Text(w io.Writer, opts TextOptions) error {
	var out strings.Builder
	o.head(&out, opts)
	out.WriteString("\n")
	if err := o.table(&out, opts); err != nil {
		return err
	}
	for _, p := range o.Policies {
		if opts.Wide || p.Healthy() && p.HeldBack == 0 || p.Message == "" {
			continue
		}
		fmt.Fprintf(&out, "\n%s: %s\n", display.Colorizer(opts.Colors)(display.Yellow, p.heading()), p.Message)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// head is what concerns all policies, the worst first.
func (o *Overview) head(out *strings.Builder, opts TextOptions) {
	colorize := display.Colorizer(opts.Colors)
	line := func(color display.Color, text string) { out.WriteString(colorize(color, text) + "\n") }
	if stopped := o.stopped(); stopped != "" {
		line(display.Red, stopped)
	}
	switch {
	case o.Manager.Leads:
		line(display.Plain, o.manager(opts.Now))
	case !o.Manager.Unknown:
		line(display.Red, o.manager(opts.Now))
	}
	for _, l := range o.Limits {
		if l.Used >= l.Allowed {
			line(display.Yellow, l.text())
		} else {
			line(display.Plain, l.text())
		}
	}
	for _, text := range slices.Concat(
		shown(o.Held, Held.text, "Left alone: %d more"), shown(o.Orphans, Orphan.text, "Orphaned: %d more taints"),
		shown(o.BrokenRecords, BrokenRecord.text, "Unreadable: the annotations of %d more nodes"),
	) {
		line(display.Yellow, text)
	}
	for _, missing := range o.Missing {
		line(display.Yellow, "Not shown: "+missing)
	}
}

func (o *Overview) stopped() string {
	switch {
	case len(o.FrozenBy) > 0:
		return "Frozen by Guardrail " + strings.Join(o.FrozenBy, ", ") + ": nothing is done and nothing undone."
	case len(o.PausedBy) > 0:
		return "Paused by Guardrail " + strings.Join(o.PausedBy, ", ") + ": nothing new is done; undo goes on."
	}
	return ""
}

func (o *Overview) manager(now time.Time) string {
	m := o.Manager
	replicas := ""
	if m.Replicas >= 0 {
		replicas = fmt.Sprintf("; %d of %d replicas are ready", m.Ready, m.Replicas)
	}
	switch {
	case m.Leads:
		return fmt.Sprintf("Manager: %s leads, heard %s%s", m.Leader, age(m.Renewed.Time, now), replicas)
	case m.Doubt != "":
		return fmt.Sprintf("Manager: none is seen to lead: its Lease %s%s. What to do: kubectl autohealer check", m.Doubt, replicas)
	case m.Renewed != nil && m.Leader != "":
		return fmt.Sprintf("Manager: none leads, so nothing is done; %s did, and was heard %s%s", m.Leader, age(m.Renewed.Time, now), replicas)
	}
	return "Manager: none leads, so nothing is done" + replicas
}

func (l Limit) text() string {
	if l.Of == 0 && l.Unavailable == 0 {
		return fmt.Sprintf("%s: %d of %d used", l.Name, l.Used, l.Allowed)
	}
	without := ""
	if l.Unavailable > 0 {
		without = "; " + sample.Clause(l.Unavailable, "more is cordoned, not Ready or tainted as leaving", "more are cordoned, not Ready or tainted as leaving")
	}
	return fmt.Sprintf("%s: %d of %d used (%s of %d%s)", l.Name, l.Used, l.Allowed, l.Value, l.Of, without)
}

// maxShown of a kind are on a screen; -o json has all.
const maxShown = 5

// shown are the lines of some, and how many more there are.
func shown[T any](all []T, text func(T) string, more string) (lines []string) {
	for _, one := range all[:min(len(all), maxShown)] {
		lines = append(lines, text(one))
	}
	if n := len(all) - maxShown; n > 0 {
		lines = append(lines, fmt.Sprintf(more, n))
	}
	return lines
}

func (t Orphan) text() string {
	return fmt.Sprintf("Orphaned: taint %s on %s, of ConditionSet %s, which does not exist. To take it off: kubectl autohealer undo %s", t.Taint, t.Object, t.Policy, t.Object)
}

func (b BrokenRecord) text() string {
	return fmt.Sprintf("Unreadable: the annotation %s of %s, so that nothing is done and nothing undone there. To fix it, %s", v1alpha1.AnnotationOwnedTaints, b.Object, b.Mend)
}

func (h Held) text() string {
	text := fmt.Sprintf("Left alone: %s until %s", h.Object, h.HoldUntil)
	if h.Reason != "" {
		text += " (" + h.Reason + ")"
	}
	if h.Fault != "" {
		text += ": " + h.Fault
	}
	return text
}

func (p Policy) heading() string {
	if p.Namespace == "" {
		return p.Short()
	}
	return p.Namespace + " " + p.Short()
}

func (o *Overview) table(w io.Writer, opts TextOptions) error {
	if len(o.Policies) == 0 {
		_, err := io.WriteString(w, "There are no policies.\n")
		return err
	}
	table := printers.GetNewTabWriter(w)
	headings := []string{"NAMESPACE", "POLICY", "ACCEPTED", "READY", "REASON", "BREAKER", "HELD", "DOES"}
	if opts.Wide {
		headings = append(headings, "MESSAGE")
	}
	fmt.Fprintln(table, strings.Join(headings, "\t"))
	for _, p := range o.Policies {
		cells := []string{p.Namespace, p.Short(), p.Accepted, p.Ready, p.Reason, "", fmt.Sprint(p.HeldBack), p.Acting}
		if p.BreakerOpen {
			cells[5] = "Open"
		}
		if p.Outdated {
			cells[4] = strings.TrimSpace("Outdated " + p.Reason)
		}
		if opts.Wide {
			cells = append(cells, strings.ReplaceAll(p.Message, "\n", " "))
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	return table.Flush()
}

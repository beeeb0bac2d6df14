package uninstall

import (
	"fmt"
	"io"
	"slices"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Write tells what would be done, step by step, and what stays.
func (s *Survey) Write(w io.Writer) {
	if s.freezes() {
		section(w, "Freeze: nothing new is done while this works", []string{"guardrail/" + v1alpha1.FreezeGuardrail})
	}
	var undone, held []string
	for _, r := range s.Undo {
		for _, did := range r.Did {
			undone = append(undone, r.Object.Title+": "+did)
		}
	}
	for _, o := range s.Held {
		held = append(held, o.Title+": "+released)
	}
	section(w, "Undo", undone)
	section(w, "Release what people keep Autohealer from", held)
	section(w, "Delete policies", titles(s.Policies))
	section(w, "Delete the webhook and the admission policies", titles(s.Parts[gates]))
	section(w, "Delete the manager", titles(s.Parts[manager]))
	section(w, "Delete Guardrails and exceptions", titles(s.Rails))
	section(w, "Delete the kinds", titles(s.Kinds))
	section(w, "Delete the rights, and what the manager made", titles(s.Parts[rights]))
	if s.Namespace != nil {
		section(w, "Delete the namespace", titles([]*object{s.Namespace}))
	}
}

func section(w io.Writer, heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintln(w, heading)
	if len(lines) > most {
		lines = append(slices.Clone(lines[:most]), fmt.Sprintf("… and %d more", len(lines)-most))
	}
	for _, line := range lines {
		fmt.Fprintln(w, "  "+line)
	}
}

func titles(all []*object) []string {
	var found []string
	for _, o := range all {
		found = append(found, title(o))
	}
	return found
}

// Package display puts lists into sentences, and colors on terminals.
package display

import (
	"strings"
)

// List reads as a sentence does: a, b and c.
func List(all []string, conjunction string) string {
	last := len(all) - 1
	if last < 1 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:last], ", ") + " " + conjunction + " " + all[last]
}

// Color of a terminal.
type Color string

// The colors.
const (
	Plain  Color = ""
	Red    Color = "\x1b[31m"
	Yellow Color = "\x1b[33m"
	Faint  Color = "\x1b[2m"
)

// Colorizer gives a function that colors a text, or leaves it as it is.
func Colorizer(colors bool) func(Color, string) string {
	return func(c Color, text string) string {
		if !colors || c == Plain {
			return text
		}
		return string(c) + text + "\x1b[0m"
	}
}

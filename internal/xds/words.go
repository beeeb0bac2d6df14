package xds

import (
	"strings"
	"unicode"
)

// What clients say ends in statuses, Events and logs, and is looked through for names.
const (
	// maxWords of a rejection are read, in bytes. Envoy sends 4096, and brokenOff where it had more to say.
	maxWords  = 8 << 10
	brokenOff = "...(truncated)"
	// maxShown of them are passed on.
	maxShown = 1 << 10
	// maxNames of a certificate are.
	maxNames = 5
)

// words are what a client said, as far as it is read: one line of valid text without control characters.
func words(said string) string {
	line := strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, clip(said, maxWords)))
	if len(said) > maxWords {
		line += brokenOff
	}
	return line
}

// shown is as much of some words as is passed on.
func shown(words string) string {
	if len(words) <= maxShown {
		return words
	}
	return clip(words, maxShown-len("…")) + "…"
}

// clip leaves the first bytes of a text, and nothing that isn't text.
func clip(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

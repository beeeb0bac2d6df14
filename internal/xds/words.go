package xds

import (
	"strings"
	"unicode"
)

// Messages of clients are written to statuses, Events and logs, and searched for names of resources.
const (
	// maxRejectionBytes of a message are read. Envoy sends 4096 bytes, and truncatedSuffix where its message was longer.
	maxWords  = 8 << 10
	brokenOff = "...(truncated)"
	// maxMessageBytes of it are reported.
	maxShown = 1 << 10
	// maxCertificateNames of a certificate are reported.
	maxNames = 5
)

// sanitize returns a client's message, as far as it is read, as one line of valid text without control characters.
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

// truncate returns as much of a message as is reported.
func shown(words string) string {
	if len(words) <= maxShown {
		return words
	}
	return clip(words, maxShown-len("…")) + "…"
}

// clip returns the first bytes of a text, without a character that is cut in two.
func clip(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

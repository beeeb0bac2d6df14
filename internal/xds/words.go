package xds

import (
	"strings"
	"unicode"
)

// Messages of clients are written to statuses, Events and logs, and searched for names of resources.
const (
	// maxRejectionBytes of a message are read. Envoy sends 4096 bytes, and truncatedSuffix where its message was longer.
	maxRejectionBytes = 8 << 10
	truncatedSuffix   = "...(truncated)"
	// maxMessageBytes of it are reported.
	maxMessageBytes = 1 << 10
	// maxCertificateNames of a certificate are reported.
	maxCertificateNames = 5
)

// sanitize returns a client's message, as far as it is read, as one line of valid text without control characters.
func sanitize(raw string) string {
	line := strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, clip(raw, maxRejectionBytes)))
	if len(raw) > maxRejectionBytes {
		line += truncatedSuffix
	}
	return line
}

// truncate returns as much of a message as is reported.
func truncate(message string) string {
	if len(message) <= maxMessageBytes {
		return message
	}
	return clip(message, maxMessageBytes-len("…")) + "…"
}

// clip returns the first bytes of a text, without a character that is cut in two.
func clip(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

package xds

import (
	"strings"
	"time"
	"unicode"
)

// recordSent records the nonce of a response until the client answers it, and returns how many resources the response has.
func (w *watch) recordSent(nonce string, now time.Time) int {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	if w.unackedSince.IsZero() {
		w.unackedSince = now
	}
	w.unacked[nonce], w.sending = w.sending, nil
	return len(w.unacked[nonce])
}

// handleAck takes a client's ACK, or its NACK with a message. It returns the names in the response that was answered: empty, but
// not nil, for the empty response to a client that has everything already; nil for an unknown nonce.
func (w *watch) handleAck(nonce, rejection string) []string {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	sent, ok := w.unacked[nonce]
	if !ok {
		return nil
	}
	if delete(w.unacked, nonce); len(w.unacked) == 0 {
		w.unackedSince = time.Time{}
	}
	blamed := map[string]struct{}{}
	if rejection != "" {
		blamed, rejection = blamedNames(sent, rejection), truncate(rejection)
	}
	names := make([]string, 0, len(sent))
	for name := range sent {
		if _, bad := blamed[name]; bad {
			w.rejections[name] = rejection
		} else {
			delete(w.rejections, name)
		}
		names = append(names, name)
	}
	return names
}

// blamedNames are the names in a rejection's message; all that were sent, when it has none or was truncated. Envoy accepts the valid
// clusters of a response and names the others.
func blamedNames(sent map[string]struct{}, rejection string) map[string]struct{} {
	if strings.HasSuffix(rejection, truncatedSuffix) {
		return sent
	}
	names := map[string]struct{}{}
	for name := range sent {
		if mentionsName(rejection, name) {
			names[name] = struct{}{}
		}
	}
	if len(names) == 0 {
		return sent
	}
	return names
}

// mentionsName: a text with ns/web/8080 or other-ns/web/80 doesn't mention ns/web/80.
func mentionsName(text, name string) bool {
	for at := 0; ; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return false
		}
		begin := at + i
		end := begin + len(name)
		if (begin == 0 || !isNameByte(text[begin-1])) && (end == len(text) || !isNameByte(text[end])) {
			return true
		}
		at = end
	}
}

func isNameByte(c byte) bool {
	return c == '-' || c == '/' || c == '@' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// ackState says whether the client may see any of some clusters, given with their namespaces, and whether it has accepted all of those
// that it may see. It needs the table's mutex.
func (w *watch) ackState(namespaces map[string]string) (visible, complete bool) {
	nothingPending := !w.allDirty && len(w.dirty)+len(w.unacked)+len(w.rejections) == 0
	for name, namespace := range namespaces {
		if !w.scope.allows(namespace) {
			continue
		}
		if nothingPending {
			return true, true
		}
		visible = true
		if _, rejected := w.rejections[name]; rejected || !w.hasAcked(name) {
			return true, false
		}
	}
	return visible, true
}

// hasAcked says whether the client has accepted the resource of a name as it is served. It needs the table's mutex.
func (w *watch) hasAcked(name string) bool {
	if _, marked := w.dirty[name]; marked || w.allDirty {
		return false
	}
	for _, names := range w.unacked {
		if _, isSent := names[name]; isSent {
			return false
		}
	}
	return true
}

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

package xds

import (
	"strings"
	"time"
)

// recordSent records the nonce of a response until the client answers it, and returns how many resources the response has.
func (f *feed) responded(nonce string, now time.Time) int {
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	if f.unanswered.IsZero() {
		f.unanswered = now
	}
	f.sent[nonce], f.telling = f.telling, nil
	return len(f.sent[nonce])
}

// handleAck takes a client's ACK, or its NACK with a message. It returns the names in the response that was answered: empty, but
// not nil, for the empty response to a client that has everything already; nil for an unknown nonce.
func (f *feed) answered(nonce, rejection string) []string {
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	sent, ok := f.sent[nonce]
	if !ok {
		return nil
	}
	if delete(f.sent, nonce); len(f.sent) == 0 {
		f.unanswered = time.Time{}
	}
	blamed := map[string]struct{}{}
	if rejection != "" {
		blamed, rejection = mentioned(sent, rejection), shown(rejection)
	}
	names := make([]string, 0, len(sent))
	for name := range sent {
		if _, bad := blamed[name]; bad {
			f.rejected[name] = rejection
		} else {
			delete(f.rejected, name)
		}
		names = append(names, name)
	}
	return names
}

// blamedNames are the names in a rejection's message; all that were sent, when it has none or was truncated. Envoy accepts the valid
// clusters of a response and names the others.
func mentioned(sent map[string]struct{}, rejection string) map[string]struct{} {
	if strings.HasSuffix(rejection, brokenOff) {
		return sent
	}
	blamed := map[string]struct{}{}
	for name := range sent {
		if mentions(rejection, name) {
			blamed[name] = struct{}{}
		}
	}
	if len(blamed) == 0 {
		return sent
	}
	return blamed
}

// mentionsName: a text with ns/web/8080 or other-ns/web/80 doesn't mention ns/web/80.
func mentions(text, name string) bool {
	for at := 0; ; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return false
		}
		begin := at + i
		end := begin + len(name)
		if (begin == 0 || !partOfName(text[begin-1])) && (end == len(text) || !partOfName(text[end])) {
			return true
		}
		at = end
	}
}

func partOfName(c byte) bool {
	return c == '-' || c == '/' || c == '@' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// ackState says whether the client may see any of some clusters, given with their namespaces, and whether it has accepted all of those
// that it may see. It needs the table's mutex.
func (f *feed) hasAccepted(namespaces map[string]string) (sees, all bool) {
	nothingOpen := !f.full && len(f.dirty)+len(f.sent)+len(f.rejected) == 0
	for name, namespace := range namespaces {
		if !f.scope.allows(namespace) {
			continue
		}
		if nothingOpen {
			return true, true
		}
		sees = true
		if _, rejected := f.rejected[name]; rejected || !f.settled(name) {
			return true, false
		}
	}
	return sees, true
}

// hasAcked says whether the client has accepted the resource of a name as it is served. It needs the table's mutex.
func (f *feed) settled(name string) bool {
	if _, marked := f.dirty[name]; marked || f.full {
		return false
	}
	for _, names := range f.sent {
		if _, under := names[name]; under {
			return false
		}
	}
	return true
}

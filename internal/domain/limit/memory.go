package limit

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Act is one that a limit counts: on which object, where, and when it began.
type Act struct {
	UID        types.UID
	Name, Zone string
	Began      time.Time
}

// Memory remembers acts whatever becomes of the objects that they were done to, or of who asked for them: what is deleted, undone or
// made anew gives back no place under a limit that counts in time. The zero value is empty. Not safe for concurrent use.
type Memory struct {
	acts map[types.UID]Act // the latest of each object
}

// Remember takes in an act. It says whether that is news: of an object, the latest counts. What lies after latest comes from a clock that
// was wrong, or is forged: it is ignored, and hides nothing.
func (m *Memory) Remember(a Act, latest time.Time) (news bool) {
	was, known := m.acts[a.UID]
	known = known && !was.Began.After(latest)
	if a.Began.IsZero() || a.Began.After(latest) || known && !a.Began.After(was.Began) {
		return false
	}
	if m.acts == nil {
		m.acts = map[types.UID]Act{}
	}
	m.acts[a.UID] = a
	return true
}

// Last is when an act last began in a zone, zero for none. What lies after before comes from a clock that was wrong, or is forged,
// and would close a limit for ever.
func (m *Memory) Last(zone string, before time.Time) (last time.Time) {
	for _, a := range m.acts {
		if a.Zone == zone && !a.Began.After(before) && a.Began.After(last) {
			last = a.Began
		}
	}
	return last
}

// Forget drops what began before a time, when no limit counts it any more.
func (m *Memory) Forget(before time.Time) {
	maps.DeleteFunc(m.acts, func(_ types.UID, a Act) bool { return a.Began.Before(before) })
}

// Acts are all that are remembered, the oldest first.
func (m *Memory) Acts() []Act {
	return slices.SortedFunc(maps.Values(m.acts), func(a, b Act) int { return a.Began.Compare(b.Began) })
}

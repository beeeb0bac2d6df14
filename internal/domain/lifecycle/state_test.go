package lifecycle_test

import (
	"testing"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

func TestEachStateIsOneOfFour(t *testing.T) {
	frozen, withdrawn, heals, acts := [4]bool{true}, [4]bool{1: true}, [4]bool{2: true}, [4]bool{3: true}
	for name, c := range map[string]struct {
		policy lifecycle.Policy
		state  lifecycle.State
		is     [4]bool
	}{
		"admitted":       {lifecycle.Policy{}, lifecycle.Active, acts},
		"not judged":     {lifecycle.Policy{NotJudged: true}, lifecycle.NotJudged, frozen},
		"unreadable":     {lifecycle.Policy{Unreadable: true}, lifecycle.Unreadable, frozen},
		"no finalizer":   {lifecycle.Policy{Unrecorded: true}, lifecycle.Unrecorded, frozen},
		"all frozen":     {lifecycle.Policy{Frozen: true}, lifecycle.Frozen, frozen},
		"being deleted":  {lifecycle.Policy{Deleted: true}, lifecycle.Deleted, withdrawn},
		"mode: Observe":  {lifecycle.Policy{Observing: true}, lifecycle.Observing, withdrawn},
		"refused":        {lifecycle.Policy{Refused: true}, lifecycle.Refused, heals},
		"lacks rights":   {lifecycle.Policy{Forbidden: true}, lifecycle.Forbidden, heals},
		"paused":         {lifecycle.Policy{Paused: true}, lifecycle.Paused, heals},
		"nothing known":  {state: 0, is: frozen, policy: lifecycle.Policy{NotJudged: true}},
		"freeze of all":  {lifecycle.Policy{Frozen: true, Deleted: true, Unreadable: true}, lifecycle.Frozen, frozen},
		"goes, unread":   {lifecycle.Policy{Deleted: true, Unreadable: true, NotJudged: true, Refused: true}, lifecycle.Deleted, withdrawn},
		"unread":         {lifecycle.Policy{Unreadable: true, Observing: true, Refused: true}, lifecycle.Unreadable, frozen},
		"was judged":     {lifecycle.Policy{NotJudged: true, Observing: true, Refused: true, Paused: true}, lifecycle.NotJudged, frozen},
		"only observes":  {lifecycle.Policy{Observing: true, Refused: true, Unrecorded: true, Paused: true}, lifecycle.Observing, withdrawn},
		"heals, refused": {lifecycle.Policy{Refused: true, Unrecorded: true, Paused: true}, lifecycle.Refused, heals},
		"no record":      {lifecycle.Policy{Unrecorded: true, Paused: true}, lifecycle.Unrecorded, frozen},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.policy.State()
			if is := [4]bool{s.IsFrozen(), s.IsWithdrawn(), s.HealsOnly(), s == lifecycle.Active}; s != c.state || is != c.is {
				t.Errorf("state %d with frozen, withdrawn, heals only, acts = %v; want %d with %v", s, is, c.state, c.is)
			}
		})
	}
}

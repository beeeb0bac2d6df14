package judging

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// RulesChanged has the policies judged again that a change concerns, and no others.
func (j *Judge[T, R]) RulesChanged(c guard.Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.changes++
	if slices.Contains(c.Kinds, j.options.Kind) {
		j.allSoon()
	}
	for _, target := range c.Targets {
		if target.Kind == j.options.Kind {
			j.soon(types.NamespacedName{Namespace: target.Namespace, Name: target.Name})
		}
	}
}

func (j *Judge[T, R]) allSoon() {
	for key := range j.judged {
		j.soon(key)
	}
}

// soon has a policy judged again; until then nobody acts for it. It needs j.mu.
func (j *Judge[T, R]) soon(key types.NamespacedName) {
	was, ok := j.judged[key]
	if !ok {
		return // it is judged when it comes, or being judged: keep notices
	}
	was.Outdated = true
	j.judged[key] = was
	j.again.Add(key)
}

// FollowPolicy takes in what all Guardrails together say of pauses; turned says that it is something else than before.
func (j *Judge[T, R]) FollowPolicy(p guardrail.Policy) (turned bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	was := j.unread
	j.unread = slices.Contains(p.PausedBy, guardrail.UnreadName)
	if was && !j.unread {
		j.allSoon()
	}
	turned = j.paused != PausedBy(p)
	j.paused = PausedBy(p)
	return turned
}

// PausedBy says what pauses new acts; known is false while no Guardrail is read.
func (j *Judge[T, R]) PausedBy() (by status.Pause, known bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.paused, !j.unread
}

// PausedBy says what pauses new acts, as status and holds tell it.
func PausedBy(p guardrail.Policy) status.Pause {
	switch {
	case !p.Paused():
		return status.Pause{}
	case slices.Contains(p.FrozenBy, guardrail.UnreadName):
		return status.Pause{By: "Guardrails aren't read yet, which freezes everything, undo included", Frozen: true}
	case slices.Contains(p.PausedBy, guardrail.UnreadName):
		return status.Pause{By: "Guardrails aren't read yet, which pauses all new acts", Frozen: p.Frozen()}
	case len(p.FrozenBy) == 1:
		return status.Pause{By: "Guardrail " + p.FrozenBy[0] + " freezes everything, undo included", Frozen: true}
	case p.Frozen():
		return status.Pause{By: "Guardrails " + strings.Join(p.FrozenBy, ", ") + " freeze everything, undo included", Frozen: true}
	case p.Lost != "":
		return status.Pause{By: "What Guardrails forbid isn't known, which pauses all new acts: " + p.Lost, Unknown: true}
	case len(p.PausedBy) == 1:
		return status.Pause{By: "Guardrail " + p.PausedBy[0] + " pauses all new acts"}
	}
	return status.Pause{By: "Guardrails " + strings.Join(p.PausedBy, ", ") + " pause all new acts"}
}

// Told is what the conditions that every kind has tell of a verdict. Unreadable says why the spec can't be read.
func Told(v guard.Verdict, unreadable error) status.Judgement {
	return status.Judgement{
		Unreadable: unreadable, Allowed: v.Allowed, Violated: len(v.Violations) > 0,
		RuleSet: v.RuleSetHash, Message: v.Message(), Lifted: lifted(v.Lifted),
	}
}

// lifted tells which exceptions keep which rules from refusing the policy.
func lifted(all []guard.Lifted) string {
	says := make([]string, 0, len(all))
	for _, l := range all {
		says = append(says, fmt.Sprintf("GuardrailException %s lifts %s until %s", l.Exception, l.Rule, l.Until.UTC().Format(time.RFC3339)))
	}
	if len(says) == 0 {
		return ""
	}
	return strings.Join(says, "; ") + "."
}

package guard

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/cel-go/common/types/ref"

	"github.com/resourcestack/autohealer/internal/domain/guardrail"
)

// kindRules is what judges one kind now. It is immutable; a change makes a new one.
type kindRules struct {
	*builtinKind
	// own are the rules of Guardrails, broken ones included.
	own []*compiledRule
	// tableValues are those of variables that are tables, nil for the others.
	tableValues []ref.Val
	// hash names all that decides verdicts.
	hash string
}

// with puts together what judges a kind: the built-in part, the rules of Guardrails, and what they declare.
func (k *builtinKind) with(own []*compiledRule, w world) (*kindRules, error) {
	now := &kindRules{builtinKind: k, own: own, tableValues: make([]ref.Val, len(k.variables))}
	digest := sha256.New()
	digest.Write(k.text)
	encoder := json.NewEncoder(digest)
	readLimits := false
	for _, r := range slices.Concat(k.rules, own) {
		readLimits = readLimits || r.reads.anyOf(rootLimits)
		if r.guardrail == "" {
			continue
		}
		rule := r.Rule
		rule.Tests, rule.Rationale = nil, ""
		if err := encoder.Encode(rule); err != nil {
			return nil, fmt.Errorf("hash rule %s: %w", r.ID, err)
		}
	}
	if k.tables != nil {
		for _, t := range k.tables(w) {
			i := k.index[variablePath+t.name]
			now.tableValues[i] = t.value()
			if v := t.variable(); v.Expression != k.variables[i].Expression {
				digest.Write([]byte(v.Expression))
			}
		}
	}
	if readLimits {
		fmt.Fprint(digest, w.policy.Limits)
	}
	now.hash = hex.EncodeToString(digest.Sum(nil))[:16]
	return now, nil
}

// ruleSet is all that is in force. It is immutable; a change makes a new one.
type ruleSet struct {
	kinds map[string]*kindRules
	// merged is what all Guardrails say, rules apart; policy is that, tightened by what came since.
	merged, policy guardrail.Policy
	limits         map[string]any
	// guardrails in force, by name.
	guardrails map[string]*ownRules
	// compiled are their rules, so that they needn't be compiled again.
	compiled   compiledRules
	exceptions map[Target][]*exception
	// unread: the Guardrails aren't known yet, so that nothing is admitted.
	unread bool
}
